// Looks at a model through its backend: which operations it is made of, and what each kind of work
// takes. While it is off a model gets the backend itself, and nothing is lost.
//
// The linker sends this program's calls of backend() here first (--wrap, in the Makefile).

#ifndef BENCH_PROFILER_H
#define BENCH_PROFILER_H

#include "roofline.h"

typedef enum {
    PROFILER_OFF,
    PROFILER_OPERATIONS, // notes the operations that are compiled and prepared
    PROFILER_TIMES       // notes what each of them takes, too
} ProfilerMode;

// From now on. For their times, operations must have been noted while they were prepared, in the
// first step on a batch. A convolution's backward pass is run twice then, first for the kernel's
// gradient alone, so that the two directions can be told apart.
void profiler_set(ProfilerMode mode);

// The operations that were compiled while the profiler was not off, in forward order. Returns how
// many; they live as long as their model.
int profiled_operations(const Op *const **ops);

// What the device did for a kind of work, in a step.
typedef struct {
    double calls, seconds;
} Timing;

// Of everything since PROFILER_TIMES was set, divided by the number of steps. Waits for the device.
void profiler_timings(int steps, Timing timings[WORK_KINDS]);

// A time stamp on what the device has been given until now: a CUDA event on a GPU, which works
// while the host goes on; the clock on a CPU, where a call returns when its work is done.
typedef struct {
    double time;
    void *event; // a cudaEvent_t, or NULL
} Timestamp;

// `stamp` is zeros, or taken before.
void timestamp_take(Timestamp *stamp);
void timestamp_release(Timestamp *stamp);

// Seconds that the device took from one to the other; waits for the second.
double timestamp_seconds(const Timestamp *begin, const Timestamp *end);

#endif
