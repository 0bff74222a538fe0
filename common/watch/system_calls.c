// Traces renames, removals and syncs of files, and a process that moves to other cores: the
// linker's --wrap sends the program's and the library's calls here. Those about files don't begin a
// trace: the tests' framework makes such calls before a test has set its trace's folder. A check's
// faults of the disk (arranged.h) happen here.

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include "observe/trace.h"
#include "watch/arranged.h"

#define VISIBLE __attribute__((visibility("default")))

int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_remove(const char *path);
int __real_fsync(int file);
void __real_sync(void);
struct dirent *__real_readdir(DIR *folder);
int __real_sched_setaffinity(pid_t process, size_t size, const cpu_set_t *cores);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_remove(const char *path);
int __wrap_fsync(int file);
void __wrap_sync(void);
struct dirent *__wrap_readdir(DIR *folder);
int __wrap_sched_setaffinity(pid_t process, size_t size, const cpu_set_t *cores);

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
    if (disk_is_full(file)) {
        errno = ENOSPC;
        return -1;
    }
    int status = __real_fsync(file), fault = errno;
    if (status == 0 && trace_has_begun())
        trace_synced(file);
    errno = fault;
    return status;
}

VISIBLE struct dirent *__wrap_readdir(DIR *folder)
{
    struct dirent *entry = __real_readdir(folder);
    return entry && name_is_late(folder, entry->d_name) ? __real_readdir(folder) : entry;
}

VISIBLE int __wrap_sched_setaffinity(pid_t process, size_t size, const cpu_set_t *cores)
{
    trace("affinity", {0});
    return __real_sched_setaffinity(process, size, cores);
}
