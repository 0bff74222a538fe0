// Opens files and folders without trust in what they are.

#include "safe_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/format.h"

#define SAFE (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

int safe_folder(int parent, const char *path)
{
    int folder = openat(parent, ".", SAFE | O_DIRECTORY);
    while (folder >= 0 && *(path += strspn(path, "/"))) {
        size_t length = strcspn(path, "/");
        char *part = format_text("%.*s", (int)length, path);
        int below = strcmp(part, "..") == 0 ? -1 : openat(folder, part, SAFE | O_DIRECTORY);
        free(part);
        close(folder);
        folder = below;
        path += length;
    }
    return folder;
}

int safe_file(int folder, const char *name, long long limit)
{
    struct stat facts;
    int file = strchr(name, '/') ? -1 : openat(folder, name, SAFE);
    if (file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size <= limit)
        return file;
    if (file >= 0)
        close(file);
    return -1;
}
