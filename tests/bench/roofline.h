// What a training step cannot do without, beside what the device can do at most: the roofline model
// (Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for
// Multicore Architectures", 2009). A step's arithmetic takes at least as long as matrix products of
// as many operations, its bytes at least as long as a copy of as many; no program for the same
// graph is much quicker than the larger of the two.

#ifndef BENCH_ROOFLINE_H
#define BENCH_ROOFLINE_H

#include "backend/backend.h"
#include "workload.h"

// The directions of an operation. Of a convolution, the backward pass is the gradient of its input,
// and that of its kernel is apart.
typedef enum { PASS_FORWARD, PASS_BACKWARD, PASS_KERNEL_GRADIENT, PASSES } Pass;

// The kinds of work: each direction of each kind of operation, and what else a step does.
enum {
    WORK_LOSS = OP_KINDS * PASSES,
    WORK_UPDATE, // of the weights, by plain SGD
    WORK_IMAGES, // images and labels that come to the device
    WORK_KINDS
};
int work_kind(OpKind op, Pass pass);
const char *work_name(int kind);

typedef struct {
    double flops; // 2 for each multiply-add
    double bytes; // read and written
} Cost;

// What one step costs, kind by kind, at least. A convolution is counted tap by tap: Winograd's
// algorithm needs fewer operations. Each operation reads each of its inputs once and writes each of
// its outputs once; what a backend keeps for itself (copies, partial sums, the second reading of a
// batch norm) does not count.
void workload_cost(const Workload *workload, Cost cost[WORK_KINDS]);

Cost total_cost(const Cost cost[WORK_KINDS]);

// What a device does in a second at most: measured, not read from a data sheet, since clocks, power
// limits and libraries have their say.
typedef struct {
    double flops; // of a large product of random matrices, by cuBLAS, in this process's precision;
                  // on a CPU, of multiply-adds in registers or tiles, of what it computes with, on
                  // all cores
    double bytes; // read and written, of a large copy within the GPU's memory; on a CPU, of a triad
                  // of large arrays
} Peak;

// Of this process's device.
Peak measure_peak(void);
Peak measure_cpu_peak(void); // cpu_peak.c

// Seconds that the cost takes at least: its arithmetic or its bytes, whichever takes longer.
double roofline_seconds(Cost cost, Peak peak);

#endif
