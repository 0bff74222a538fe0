// What a run takes of the machine, from /proc.

#include "usage.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/process.h"
#include "base/memory.h"

#define MAX_PROCESSES 16384

// "SIZE RESIDENT SHARED ...", in pages.
static double memory_of(int process)
{
    char path[64], text[128];
    long resident = 0, shared = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[bytes > 0 ? bytes : 0] = '\0';
    if (sscanf(text, "%*d %ld %ld", &resident, &shared) != 2)
        return 0;
    return (double)(resident - shared) * (double)sysconf(_SC_PAGESIZE);
}

Usage usage_below(int process)
{
    int all[MAX_PROCESSES], count = process_list(all, MAX_PROCESSES);
    ProcessStatus *status = allocate((size_t)count + 1, sizeof *status);
    bool *below = allocate((size_t)count + 1, sizeof *below), more = true;
    for (int i = 0; i < count; i++)
        below[i] = process_status(all[i], &status[i]) && all[i] == process;
    while (more) { // children mostly come behind their parents in /proc
        more = false;
        for (int i = 0; i < count; i++)
            for (int p = 0; p < count && !below[i] && status[i].parent > 0; p++)
                if (below[p] && all[p] == status[i].parent)
                    below[i] = more = true;
    }
    Usage usage = {0};
    for (int i = 0; i < count; i++)
        if (below[i]) {
            usage.processes++;
            usage.memory += memory_of(all[i]);
            usage.seconds += status[i].seconds;
        }
    free(status);
    free(below);
    return usage;
}

static double bytes_seen; // by nftw

static int add_entry(const char *path, const struct stat *entry, int kind, struct FTW *place)
{
    (void)path;
    (void)place;
    bytes_seen += kind == FTW_F ? 512.0 * (double)entry->st_blocks : 0;
    return 0;
}

double usage_of_disk(const char *folder)
{
    bytes_seen = 0;
    nftw(folder, add_entry, 16, FTW_PHYS);
    return bytes_seen;
}

Usage usage_max(Usage a, Usage b)
{
    return (Usage){.processes = a.processes > b.processes ? a.processes : b.processes,
                   .memory = a.memory > b.memory ? a.memory : b.memory,
                   .seconds = a.seconds > b.seconds ? a.seconds : b.seconds,
                   .disk = a.disk > b.disk ? a.disk : b.disk};
}
