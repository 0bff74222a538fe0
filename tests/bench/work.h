// What the benchmark times, as steps that can be run one at a time.

#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include "nn/model.h"
#include "subject.h"

typedef struct Work Work;

// The subject's model, compiled, with the kit's L2 penalty and plain SGD; under mpirun with the
// distributed optimizer.
Model *subject_model(const Subject *subject);

// One training step of the kit: forward, backward, update, on a batch that is in memory already; on
// a GPU it is copied there in each step.
Work *training_step(const Subject *subject);

// The limit: the network's convolutions alone, forward and backward, through oneDNN, each with the
// layouts that it likes best and nothing between them.
Work *convolutions_only(const Subject *subject);

void work_run(Work *work);

// Returns when all that was begun is done: a GPU works while the host goes on.
void work_finish(Work *work);

#endif
