// Processes of this machine; process.h has the contract.

#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/numbers.h"

// "PID (NAME) STATE PARENT ...", where the name may contain any character, also parentheses.
static bool read_status(const char *line, ProcessStatus *status)
{
    unsigned long user, system;
    const char *begin = strchr(line, '('), *end = strrchr(line, ')');
    if (!begin || !end || end < begin ||
        sscanf(end,
               ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %llu",
               &status->state, &status->parent, &user, &system, &status->began) != 5)
        return false;
    status->seconds = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    snprintf(status->name, sizeof status->name, "%.*s", (int)(end - begin - 1), begin + 1);
    return true;
}

size_t file_beginning(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file < 0 ? 0 : read(file, text, size - 1);
    size_t length = bytes > 0 ? (size_t)bytes : 0;
    text[length] = '\0';
    if (file >= 0)
        close(file);
    return length;
}

bool process_status(int process, ProcessStatus *status)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    file_beginning(path, line, sizeof line);
    return read_status(line, status);
}

MachineName machine_name(void)
{
    MachineName name;
    file_beginning("/proc/sys/kernel/hostname", name.text, sizeof name.text);
    name.text[strcspn(name.text, "\n")] = '\0';
    return name;
}

// The entries of a folder that are numbers: readdir(3) without opendir(3), which allocates.
static int numbers_in(const char *path, int *numbers, int max)
{
    char entries[4096] __attribute__((aligned(8)));
    int count = 0, folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long bytes; folder >= 0 && count < max &&
                     (bytes = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
        const struct dirent64 *entry;
        for (long at = 0; at < bytes && count < max; at += entry->d_reclen) {
            entry = (const void *)(entries + at);
            long number = whole_number(entry->d_name, INT_MAX);
            if (number > 0)
                numbers[count++] = (int)number;
        }
    }
    if (folder >= 0)
        close(folder);
    return count;
}

int process_list(int *processes, int max)
{
    return numbers_in("/proc", processes, max);
}

bool process_has_thread(int process, const char *name)
{
    char path[64], found[32];
    int threads[256];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    int count = numbers_in(path, threads, sizeof threads / sizeof *threads);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/proc/%d/task/%d/comm", process, threads[i]);
        file_beginning(path, found, sizeof found);
        found[strcspn(found, "\n")] = '\0';
        if (strcmp(found, name) == 0)
            return true;
    }
    return false;
}

int process_children(int parent, int *children, int max)
{
    int all[MAX_PROCESSES], seen = process_list(all, MAX_PROCESSES), count = 0;
    ProcessStatus status;
    for (int i = 0; i < seen && count < max; i++)
        if (process_status(all[i], &status) && status.parent == parent)
            children[count++] = all[i];
    return count;
}
