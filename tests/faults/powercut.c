// Writes down what a program does to the files of one folder, and what a disk then has for certain:
// a library for LD_PRELOAD (glibc's). From that tests/faults/cuts.c makes what a power cut may have
// left at any moment.
//
//     CUT_FOLDER=FOLDER    that folder, as the program names it
//     CUT_LOG=FOLDER       where the list is, in `log`: a line for each call, from all processes
//
//     create NAME          a new file; its bytes, and its name, may get lost
//     synced NAME DATA     the file's bytes are on the disk; a copy of them is in DATA
//     folder               all names are
//     rename NAME NAME, unlink NAME
//     returned             the program called sync(), by which it says here that it has saved what
//                          it wanted to; nothing is synced by that
//
// What may be lost is written down before the call, what is certain after it.

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

// By a single call, so that lines of several processes don't mix.
static void note(const char *what, const char *first, const char *second)
{
    char path[4096], line[4096];
    snprintf(path, sizeof path, "%s/log", getenv("CUT_LOG"));
    int length = snprintf(line, sizeof line, "%s%s%s%s%s\n", what, first ? " " : "",
                          first ? first : "", second ? " " : "", second ? second : "");
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || write(file, line, (size_t)length) != length)
        abort();
    close(file);
}

// The name of a file in the folder; NULL: it is elsewhere.
static const char *name_of(const char *path)
{
    const char *folder = getenv("CUT_FOLDER");
    size_t length = folder ? strlen(folder) : 0;
    bool within = folder && strncmp(path, folder, length) == 0 && path[length] == '/';
    return within ? path + length + 1 : NULL;
}

FILE *fopen(const char *path, const char *mode)
{
    const char *name = name_of(path);
    if (name && *mode == 'w')
        note("create", name, NULL);
    return REAL(fopen)(path, mode);
}

int rename(const char *from, const char *to)
{
    if (name_of(from) && name_of(to))
        note("rename", name_of(from), name_of(to));
    return REAL(rename)(from, to);
}

int unlink(const char *path)
{
    if (name_of(path))
        note("unlink", name_of(path), NULL);
    return REAL(unlink)(path);
}

// A copy of a file as it is now; its name is put in `name`.
static void copy(int file, char *name, size_t size)
{
    static int copies;
    char path[4096], bytes[65536];
    ssize_t count;
    snprintf(name, size, "data-%d-%d", (int)getpid(), ++copies);
    snprintf(path, sizeof path, "%s/%s", getenv("CUT_LOG"), name);
    int to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    while ((count = read(from, bytes, sizeof bytes)) > 0)
        if (write(to, bytes, (size_t)count) != count)
            abort();
    close(from);
    close(to);
}

int fsync(int file)
{
    char link[64], path[4096], data[64];
    struct stat kind;
    int result = REAL(fsync)(file);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    if (result != 0 || fstat(file, &kind) != 0)
        return result;
    if (S_ISDIR(kind.st_mode) && getenv("CUT_FOLDER") && strcmp(path, getenv("CUT_FOLDER")) == 0)
        note("folder", NULL, NULL);
    else if (S_ISREG(kind.st_mode) && name_of(path)) {
        copy(file, data, sizeof data);
        note("synced", name_of(path), data);
    }
    return result;
}

void sync(void)
{
    note("returned", NULL, NULL);
}
