// What a run takes of the machine, from /proc.

#include "usage.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/process.h"

// "RssAnon:  1234 kB": the number in a line of a process's status.
static double bytes_in(const char *status, const char *line)
{
    const char *at = strstr(status, line);
    return at ? 1024 * atof(at + strlen(line)) : 0;
}

// What processes share in memory counts for each; a program's own file and those of libraries do
// not.
static double memory_of(int process)
{
    char path[64], status[8192];
    snprintf(path, sizeof path, "/proc/%d/status", process);
    file_beginning(path, status, sizeof status);
    return bytes_in(status, "\nRssAnon:") + bytes_in(status, "\nRssShmem:");
}

int processes_below(int process, int *found, int max)
{
    int all[MAX_PROCESSES], parents[MAX_PROCESSES], count = process_list(all, MAX_PROCESSES),
                                                    below = 1;
    for (int i = 0; i < count; i++) {
        ProcessStatus status;
        parents[i] = process_status(all[i], &status) ? status.parent : 0;
    }
    found[0] = process;
    for (int i = 0; i < below; i++)
        for (int p = 0; p < count && below < max; p++)
            if (parents[p] == found[i])
                found[below++] = all[p];
    return below;
}

Usage usage_below(int process)
{
    int below[MAX_PROCESSES], count = processes_below(process, below, MAX_PROCESSES);
    Usage usage = {0};
    for (int i = 0; i < count; i++) {
        ProcessStatus status;
        if (!process_status(below[i], &status))
            continue;
        usage.processes++;
        usage.memory += memory_of(below[i]);
        usage.seconds += status.seconds;
    }
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
                   .disk = a.disk > b.disk ? a.disk : b.disk,
                   .full = a.full || b.full};
}
