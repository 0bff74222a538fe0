// Traces renames, removals and syncs of files: the linker's --wrap sends the program's and the
// library's calls here. They don't begin a trace: the tests' framework makes such calls before a
// test has set its trace's folder.

#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include "observe/trace.h"

#define VISIBLE __attribute__((visibility("default")))

int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_remove(const char *path);
int __real_fsync(int file);
void __real_sync(void);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_remove(const char *path);
int __wrap_fsync(int file);
void __wrap_sync(void);

VISIBLE int __wrap_rename(const char *from, const char *to)
{
    int status = __real_rename(from, to), fault = errno;
    if (status == 0 && trace_has_begun())
        trace("renamed", TEXT("from", from), TEXT("to", to));
    errno = fault;
    return status;
}

static int removed(int status, const char *path)
{
    int fault = errno;
    if (status == 0 && trace_has_begun())
        trace("removed", TEXT("path", path));
    errno = fault;
    return status;
}

VISIBLE int __wrap_unlink(const char *path)
{
    return removed(__real_unlink(path), path);
}

VISIBLE int __wrap_remove(const char *path)
{
    return removed(__real_remove(path), path);
}

// The system knows the path of an open file.
static void trace_synced(int file)
{
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    trace("synced", TEXT("path", path));
}

VISIBLE void __wrap_sync(void)
{
    __real_sync();
    if (trace_has_begun())
        trace("synced", TEXT("path", ""));
}

VISIBLE int __wrap_fsync(int file)
{
    int status = __real_fsync(file), fault = errno;
    if (status == 0 && trace_has_begun())
        trace_synced(file);
    errno = fault;
    return status;
}
