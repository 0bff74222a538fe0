// What a training step cannot do without: the arithmetic of its convolutions and dense layers, and
// the bytes that its operations, as they are fused, must move. Counted from the list of operations,
// kind of work by kind of work; how a backend goes about it makes no difference.

#ifndef BENCH_DEMAND_H
#define BENCH_DEMAND_H

#include "sys/args.h"
#include "backend/backend.h"

// The directions of an operation. Of a convolution, the backward pass is the gradient of its input,
// and that of its kernel is apart.
typedef enum { PASS_FORWARD, PASS_BACKWARD, PASS_KERNEL_GRADIENT, PASSES } Pass;

// The kinds of work: each direction of each kind of operation, and what else a step does.
enum { OP_KINDS = OP_DENSE + 1 };
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
} Demand;

// Adds up, kind by kind, what one step on `batch` images demands. `ops` are the operations in
// forward order. A convolution is counted tap by tap: Winograd's algorithm needs fewer operations.
// Each operation reads each of its inputs once and writes each of its outputs once; what a backend
// keeps for itself (copies, partial sums, the second reading of a batch norm) does not count.
void count_demand(const Op *const *ops, int count, int batch, Precision precision,
                  Demand demand[WORK_KINDS]);

Demand total_demand(const Demand demand[WORK_KINDS]);

#endif
