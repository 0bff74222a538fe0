// What a run takes of the machine: its processes, with all that they started.

#ifndef HVDLAB_STEPS_USAGE_H
#define HVDLAB_STEPS_USAGE_H

typedef struct {
    int processes;
    double memory;  // bytes in physical memory, what processes share left out
    double seconds; // of processor time, of the processes that are alive
} Usage;

// Of all processes below one, itself included.
Usage usage_below(int process);

// The larger of both, number by number.
Usage usage_max(Usage a, Usage b);

#endif
