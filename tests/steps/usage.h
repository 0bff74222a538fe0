// What a run takes of the machine: its processes, with all that they started.

#ifndef HVDLAB_STEPS_USAGE_H
#define HVDLAB_STEPS_USAGE_H

#include <stdbool.h>

typedef struct {
    int processes;
    double memory;  // bytes in physical memory; not of files
    double seconds; // of processor time, of the processes that are alive
    double disk;    // bytes of files below a folder (usage_of_disk)
    bool full;      // no name is left there
} Usage;

// A process and all that it and its children started, at most `max`. Returns how many.
int processes_below(int process, int *found, int max);

// Of all processes below one, itself included.
Usage usage_below(int process);

// Bytes that the files below a folder take on the disk.
double usage_of_disk(const char *folder);

// The larger of both, number by number.
Usage usage_max(Usage a, Usage b);

#endif
