// Namespaces of mounts (mount_namespaces(7)), and tmpfs (tmpfs(5)). Who is not root mounts in a
// namespace of users, too, in which he is who he is outside.

#include "storage.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/format.h"

#define MAX_MOUNTS 64
#define SLACK      200 // names of mpirun's files, which it removes when it ends

static bool prepared;
static char *mounts[MAX_MOUNTS]; // in their order
static int count;

static bool write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    bool written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return written;
}

static bool stay_the_same(const char *map, unsigned id)
{
    char line[64];
    snprintf(line, sizeof line, "%u %u 1", id, id);
    return write_file(map, line);
}

bool storage_again(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static bool try_mounts(void)
{
    unsigned user = getuid(), group = getgid();
    if (user == 0)
        return storage_again();
    return unshare(CLONE_NEWUSER) == 0 && write_file("/proc/self/setgroups", "deny") &&
           stay_the_same("/proc/self/uid_map", user) &&
           stay_the_same("/proc/self/gid_map", group) && storage_again();
}

bool storage_prepare(void)
{
    // A namespace of users that has no right to mount is left by nobody: another process tries.
    pid_t child = fork();
    if (child == 0)
        _exit(!(try_mounts() && mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0));
    int status = -1;
    waitpid(child, &status, 0);
    return prepared = status == 0 && try_mounts();
}

bool storage_prepared(void)
{
    return prepared;
}

static bool keep_mount(const char *folder)
{
    if (count == MAX_MOUNTS)
        return false;
    mounts[count++] = format_text("%s", folder);
    return true;
}

bool storage_limit(const char *folder)
{
    char options[96];
    snprintf(options, sizeof options, "size=%lld,nr_inodes=%d,mode=0755", MAX_STORAGE, MAX_NAMES);
    return prepared && keep_mount(folder) &&
           mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
}

bool storage_bind(const char *folder, const char *as)
{
    return prepared && keep_mount(as) && mount(folder, as, NULL, MS_BIND, NULL) == 0;
}

double storage_bytes(const char *folder)
{
    struct statvfs space;
    if (statvfs(folder, &space) != 0)
        return 0;
    return (double)(space.f_blocks - space.f_bfree) * (double)space.f_frsize;
}

bool storage_has_names(const char *folder)
{
    struct statvfs space;
    return statvfs(folder, &space) != 0 || space.f_ffree > SLACK;
}

void storage_release(const char *folder)
{
    for (int i = count - 1; i >= 0; i--)
        if (mounts[i] && strcmp(mounts[i], folder) == 0)
            umount2(folder, MNT_DETACH);
}

void storage_release_all(void)
{
    for (int i = count - 1; i >= 0; i--)
        umount2(mounts[i], MNT_DETACH);
}
