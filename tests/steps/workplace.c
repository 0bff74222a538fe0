// A check's own folder, BUILD/check/run-XXXXXX. Its owner holds a lock on a file in it: a folder
// whose lock is free belongs to a check that was killed.

#include "workplace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/format.h"
#include "sandbox.h"
#include "storage.h"

static char own[PATH_MAX]; // absolute; empty: none

// ---- Removing.

static void remove_at(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return;
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int folder = openat(parent, name, flags);
    if (folder < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
        folder = openat(parent, name, flags);
    if (folder < 0)
        return;
    fchmod(folder, 0700); // to remove what is in it
    DIR *entries = fdopendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_at(folder, entry->d_name);
    if (entries)
        closedir(entries);
    else
        close(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

void remove_tree(const char *path)
{
    remove_at(AT_FDCWD, path);
}

void workplace_remove(void)
{
    storage_release_all();
    if (*own)
        remove_tree(own);
    own[0] = '\0';
}

// ---- Locks.

// Ends this program where BUILD/check can't be used. Who made it as root must know.
static _Noreturn void refuse(const char *folder)
{
    int reason = errno;
    struct stat status;
    char *parent = format_text("%s", folder), *slash = strrchr(parent, '/');
    if (slash)
        *slash = '\0';
    if (stat(folder, &status) != 0 && stat(parent, &status) != 0)
        status.st_uid = getuid();
    if (reason == EACCES && status.st_uid != getuid())
        die("cannot write in %s, which belongs to %s: sudo rm -rf %s, then make without sudo",
            folder, status.st_uid == 0 ? "root" : "another user", parent);
    die("cannot write in %s: %s", folder, strerror(reason));
}

// -1: the file can't be made.
static int open_lock(const char *folder)
{
    char *path = format_text("%s/lock", folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    free(path);
    return file;
}

// Without locks (on some network file systems) no other check's folder is ever removed.
static bool try_lock(int file, int how)
{
    int result;
    do
        result = flock(file, LOCK_EX | how);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

WorkplaceLock workplace_lock(const char *build)
{
    char *folder = format_text("%s/check", build);
    WorkplaceLock lock = {open_lock(folder)};
    if (lock.file < 0)
        refuse(folder);
    try_lock(lock.file, 0);
    free(folder);
    return lock;
}

void workplace_unlock(WorkplaceLock lock)
{
    close(lock.file);
}

// ---- Folders.

// Removes a folder to which ranks of a killed check may still write: they end a moment after it.
static void remove_after_writers(const char *folder)
{
    enum { TRIES = 100, PAUSE_US = 50000 };
    for (int tries = 0; tries < TRIES; tries++) {
        remove_tree(folder);
        if (access(folder, F_OK) != 0)
            return;
        usleep(PAUSE_US);
    }
}

// mpirun's files are elsewhere, and a link in each run's folder leads there.
static void remove_temporary_files(const char *folder)
{
    DIR *runs = opendir(folder);
    for (struct dirent *run; runs && (run = readdir(runs));) {
        char *link = format_text("%s/%s/" TEMPORARY_LINK, folder, run->d_name), target[64];
        ssize_t length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        size_t begin = strlen(TEMPORARY_BEGIN);
        if (strncmp(target, TEMPORARY_BEGIN, begin) == 0 && !strchr(target + begin, '/'))
            remove_after_writers(target);
        free(link);
    }
    if (runs)
        closedir(runs);
}

// Removes what checks have left that were killed. Only for who holds the lock of BUILD/check, since
// a new folder has no owner yet.
static void remove_leftovers(const char *check)
{
    DIR *entries = opendir(check);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (strncmp(entry->d_name, "run-", 4) != 0)
            continue;
        char *folder = format_text("%s/%s", check, entry->d_name);
        int lock = open_lock(folder);
        if (lock >= 0 && try_lock(lock, LOCK_NB)) {
            remove_temporary_files(folder);
            remove_tree(folder);
        }
        if (lock >= 0)
            close(lock);
        free(folder);
    }
    if (entries)
        closedir(entries);
}

static void tidy_up_and_exit(int status)
{
    sandbox_tidy_up();
    workplace_remove();
    _exit(status);
}

char *workplace_make(const char *build, bool strict)
{
    char *check = format_text("%s/check", build);
    if (mkdir(check, 0777) != 0 && errno != EEXIST)
        refuse(check);
    char *absolute = realpath(check, NULL);
    if (!absolute)
        refuse(check);
    // Another user's submission must not find those that are graded at the same time.
    bool hide = strict && getuid() == 0;
    if (hide)
        chmod(absolute, 0711);
    WorkplaceLock lock = workplace_lock(build);
    remove_leftovers(absolute);
    set_abort_handler(tidy_up_and_exit);
    char *folder = format_text("%s/run-XXXXXX", absolute);
    if (!mkdtemp(folder))
        refuse(check);
    snprintf(own, sizeof own, "%s", folder);
    int file = open_lock(folder); // held as long as this process lives
    if (file < 0 || (hide && chmod(folder, 0711) != 0))
        refuse(check);
    try_lock(file, LOCK_NB);
    workplace_unlock(lock);
    free(absolute);
    free(check);
    return folder;
}

// ---- Messages.

static void take_out(char *text, const char *folder, const char *below)
{
    char *words = format_text("%s%s", folder, below);
    size_t length = strlen(words);
    for (char *at = text; length > 1 && (at = strstr(at, words));)
        memmove(at, at + length, strlen(at + length) + 1);
    free(words);
}

void workplace_hide(char *text)
{
    if (!text || !*own)
        return;
    char *kit = realpath(".", NULL);
    take_out(text, own, "/program/");
    take_out(text, own, "/");
    take_out(text, kit ? kit : "", "/");
    free(kit);
}
