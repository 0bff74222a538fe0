// The limit of a training step on a CPU: a network's convolutions alone, forward and backward,
// through oneDNN, each with the layouts that it likes best and nothing between them. In bf16 they
// read and write bf16, and the gradients of kernels and biases are floats, as when the kit trains.

#ifndef BENCH_CONVOLUTIONS_H
#define BENCH_CONVOLUTIONS_H

#include "workload.h"

typedef struct Convolutions Convolutions; // until the process ends

Convolutions *convolutions_of(const Workload *workload);

// All of them once: a step.
void convolutions_run(Convolutions *all);

#endif
