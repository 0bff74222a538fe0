// Folders as mkdir -p makes them; whole files; files of users, which are not overwritten.

#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/memory.h"

// Returns errno, or 0. Where `must` is true, a folder that cannot be made ends the program.
static int make_folder(const char *path, bool must)
{
    struct stat status;
    if (mkdir(path, 0777) == 0)
        return 0;
    int reason = errno; // stat would overwrite it
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return 0;
    if (must)
        die("cannot create the folder %s: %s", path, strerror(reason));
    return reason;
}

static int make_all(const char *path, bool must)
{
    char *part = format_text("%s", path);
    int reason = 0;
    for (char *slash = part; reason == 0 && (slash = strchr(slash, '/')); slash++) {
        if (slash == part)
            continue; // the root folder
        *slash = '\0';
        reason = make_folder(part, must);
        *slash = '/';
    }
    if (reason == 0)
        reason = make_folder(part, must);
    free(part);
    return reason;
}

int try_folders(const char *path)
{
    return make_all(path, false);
}

void make_folders(const char *path)
{
    make_all(path, true);
}

bool write_whole(int file, const void *bytes, size_t size)
{
    const char *from = bytes;
    for (ssize_t now; size > 0; from += now, size -= (size_t)now) {
        now = write(file, from, size);
        if (now < 0 && errno == EINTR)
            now = 0;
        else if (now <= 0) {
            errno = now < 0 ? errno : ENOSPC;
            return false;
        }
    }
    return true;
}

char *file_bytes(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        die("cannot read %s: %s", path, strerror(errno));
    char *bytes = NULL;
    size_t room = 1 << 14, count = 0;
    for (size_t more = 1; more > 0; count += more, room *= 2) {
        bytes = enlarge(bytes, room + 1, 1);
        more = fread(bytes + count, 1, room - count, file);
    }
    if (ferror(file))
        die("cannot read %s: %s", path, strerror(errno));
    fclose(file);
    bytes[count] = '\0';
    *size = count;
    return bytes;
}

FileHash file_hash(int file)
{
    unsigned char bytes[1 << 14];
    uint64_t hash = FNV_START;
    ssize_t count;
    while ((count = read(file, bytes, sizeof bytes)) > 0)
        hash = hash_bytes(hash, bytes, (size_t)count);
    FileHash text = {""};
    if (count == 0)
        snprintf(text.digits, sizeof text.digits, "%016" PRIx64, hash);
    return text;
}

void file_replace(const char *path, const char *bytes, size_t size)
{
    char *fresh = NULL;
    FILE *file = NULL;
    for (int number = 0; !file && (number == 0 || errno == EEXIST); number++) { // nobody else's
        free(fresh);
        fresh = format_text("%s.new-%d-%d", path, (int)getpid(), number);
        file = fopen(fresh, "wxe");
    }
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0 ||
        rename(fresh, path) != 0) {
        int reason = errno; // unlink would overwrite it
        if (file)
            unlink(fresh);
        die("cannot write %s: %s", path, strerror(reason));
    }
    free(fresh);
}

void need_own_file(const char *path, const char *text)
{
    enum { HEAD = 1 << 16 };
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
        return;
    char *head = malloc(HEAD);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = head && file >= 0 ? read(file, head, HEAD) : -1;
    bool own = bytes > 0 && memmem(head, (size_t)bytes, text, strlen(text));
    if (file >= 0)
        close(file);
    free(head);
    if (!own)
        die("%s is there, and was not written by this program: name another file, or move it away",
            path);
}

int sync_file(int file)
{
    bool synced = fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP || errno == ENOSYS;
    return synced ? 0 : errno;
}
