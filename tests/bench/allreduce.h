// The speed of hvd_allreduce beside MPI's own, over a sweep of sizes.

#ifndef BENCH_ALLREDUCE_H
#define BENCH_ALLREDUCE_H

// On the ranks that mpirun started: times both, and prints a line for each size on the root:
//     BYTES MPI-MICROSECONDS SUM-MICROSECONDS AVERAGE-MICROSECONDS WRONG
// medians, the slowest rank's each time; WRONG is how many values were not what they must be.
int allreduce_serve(void);

#endif
