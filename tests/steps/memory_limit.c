// Cgroups of both versions: version 2, and version 1 where the memory controller is there.

#include "memory_limit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/format.h"
#include "base/process.h"

#define CGROUPS "/sys/fs/cgroup"

static bool write_text(const char *folder, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size_t length = strlen(text);
    bool written = write(file, text, length) == (ssize_t)length;
    close(file);
    return written;
}

// The folder of this process's cgroup. /proc/self/cgroup has lines "NUMBER:CONTROLLERS:PATH"; that
// of version 2 names no controllers.
static char *own_folder(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096], *folder = NULL;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *path = strchr(line, '/');
        bool version_1 = strstr(line, ":memory:"), version_2 = strncmp(line, "0::", 3) == 0;
        if (path && (version_1 || (version_2 && !folder))) {
            free(folder);
            folder = format_text(CGROUPS "%s%s", version_1 ? "/memory" : "", path);
        }
    }
    if (file)
        fclose(file);
    return folder;
}

static char *make_below(const char *parent, long long bytes)
{
    static int count;
    char *folder = format_text("%s/hvdlab-%d-%d", parent, (int)getpid(), count++),
         *limit = format_text("%lld", bytes);
    bool limited = mkdir(folder, 0755) == 0 && (write_text(folder, "memory.max", limit) ||
                                                write_text(folder, "memory.limit_in_bytes", limit));
    // Without a limit on swap the system would be slow long before the limit is reached. Both files
    // are missing on a kernel that does not count swap.
    if (limited && !write_text(folder, "memory.swap.max", "0"))
        write_text(folder, "memory.memsw.limit_in_bytes", limit);
    free(limit);
    if (limited)
        return folder;
    rmdir(folder);
    free(folder);
    return NULL;
}

char *memory_limit_begin(long long bytes)
{
    char *own = own_folder(), *folder = own ? make_below(own, bytes) : NULL;
    // Version 2 limits no cgroup below one that has processes of its own, so a sibling it is.
    char *slash = own && !folder ? strrchr(own, '/') : NULL;
    if (slash && slash > own + strlen(CGROUPS)) {
        *slash = '\0';
        folder = make_below(own, bytes);
    }
    free(own);
    return folder;
}

void memory_limit_join(const char *folder)
{
    write_text(folder, "cgroup.procs", "0");
}

// "oom_kill 3" in memory.events, or in version 1's memory.oom_control, never as the first line.
static bool has_killed(const char *folder, const char *name)
{
    char *path = format_text("%s/%s", folder, name), text[4096];
    file_beginning(path, text, sizeof text);
    free(path);
    const char *line = strstr(text, "\noom_kill ");
    return line && atol(line + strlen("\noom_kill ")) > 0;
}

bool memory_limit_end(char *folder)
{
    if (!folder)
        return false;
    bool killed = has_killed(folder, "memory.events") || has_killed(folder, "memory.oom_control");
    rmdir(folder);
    free(folder);
    return killed;
}
