// Makes folders as mkdir -p does.

#include "base/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/format.h"

static void make_folder(const char *path)
{
    struct stat status;
    if (mkdir(path, 0777) == 0)
        return;
    int reason = errno; // stat would overwrite it
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        die("cannot create the folder %s: %s", path, strerror(reason));
}

void make_folders(const char *path)
{
    char *part = format_text("%s", path);
    for (char *slash = part; (slash = strchr(slash, '/')); slash++) {
        if (slash == part)
            continue; // the root folder
        *slash = '\0';
        make_folder(part);
        *slash = '/';
    }
    make_folder(part);
    free(part);
}
