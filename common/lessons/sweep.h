// The sweep of an all-reduce: it is tried on arrays of many sizes, its sums are checked, and it is
// timed. What the time of a small array tells is the latency, what that of a large one tells is the
// bandwidth.

#ifndef HVDLAB_SWEEP_H
#define HVDLAB_SWEEP_H

#include "comm/comm.h"

#pragma GCC visibility push(default) // a step may call what follows

// Tries `allreduce` (NULL: MPI_Allreduce) on arrays of 0 to `largest` floats, on all workers and a
// communicator of their own, checks every sum, and has the root print a table, under the name
// `name`:
//
//     count      floats on each worker: powers of 4, and `largest`
//     bytes      4 * count
//     us         microseconds that a call took: the median of several, each the slowest worker's
//     alg GB/s   bytes / time: what the caller gets
//     bus GB/s   2 (N - 1) / N times that, of N workers: what the busiest of them must send and
//                receive at least, over the time; so it can be held against a link's bandwidth,
//                whatever N is (NVIDIA, nccl-tests, PERFORMANCE.md)
//     wrong      values that were not the sum, on the worker that had the most of them
//
// Before that it is tried once on 0, 1, 2, 3, 4, 5, 7, 10, 101 and 1001 floats; where one of these
// sums is wrong there is a line, too. A size with wrong sums is not timed. Wrong is a value farther
// from the sum x of the workers' values x_i, in double precision, than N * FLT_EPSILON * (|x_1| +
// ... + |x_N|), one that is not a number, and one behind the array's end that was changed. With
// HVDLAB_TRACE set each size is timed three times only, since the trace takes its time, too.
// `largest` is at most SWEEP_LARGEST. Collective.
//
// HVD_SWEEP=FILE in the environment of all workers, as `make sweep` sets it, has the root append
// each line of the table to FILE, as JSON, and the program end after the table, with status 0.
void sweep_allreduce(const char *name, HvdAllreduce allreduce, size_t largest);

// Times `allreduce` and MPI_Allreduce on arrays of `count` floats, one after the other, three
// times, and has the root print how they compare, as "ring: 0.93 times the bandwidth of
// MPI_Allreduce, with 1048576 floats". Nothing is traced meanwhile. With one worker it does
// nothing. Collective.
void sweep_compare(const char *name, HvdAllreduce allreduce, size_t count);

#define SWEEP_LARGEST ((size_t)1 << 28)

#pragma GCC visibility pop

// ---- Inside the library.

// The same, without an end of the program.
void sweep_run(const char *name, HvdAllreduce allreduce, size_t largest);

// The same with hvd's own between hosts, of any size, unless HVD_HIERARCHICAL=0; nothing where
// there is one host.
void sweep_hierarchical(size_t largest);

// The same for NCCL's sum of values in the memory of GPUs, where NCCL is not in use otherwise.
// Nothing where not every rank has a GPU of its own. Collective.
void sweep_nccl(size_t largest);

// An all-reduce that is being tried.
typedef struct {
    const char *name;
    HvdAllreduce allreduce;
    size_t largest;
    MPI_Comm comm;
    int trials;        // calls so far
    float *values;     // `largest` of them, and those behind them
    float *gpu_values; // where it takes them from a GPU's memory; else NULL
} Sweep;

// What one size has shown, on all ranks alike.
typedef struct {
    size_t count;
    double seconds; // 0: it was not timed
    size_t wrong;
} SweepRow;

// What `rank` brings at a place of its array; trials count from 1.
float sweep_value(int trial, int rank, size_t place);

// Begins; tries one size, and times it where that is wanted and its sums are right; ends.
// Collective.
void sweep_begin(Sweep *sweep, const char *name, HvdAllreduce allreduce, size_t largest);
SweepRow sweep_try(Sweep *sweep, size_t count, bool timed);
void sweep_end(Sweep *sweep);

// GB/s, as the table has them.
double sweep_algorithm_bandwidth(const SweepRow *row);
double sweep_bus_bandwidth(const SweepRow *row, int ranks);

#endif
