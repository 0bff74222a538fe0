// What the benchmark times, as steps that can be run one at a time.

#ifndef BENCH_WORK_H
#define BENCH_WORK_H

typedef struct {
    const char *model; // wrn or lenet
    int width;         // of wrn
    int batch;
} Subject;

typedef struct Work Work;

// One training step of the kit: forward, backward, update, on a batch that is in memory already;
// under mpirun through the distributed optimizer.
Work *training_step(Subject subject);

// The limit: the network's convolutions alone, forward and backward, through oneDNN, each with the
// layouts that it likes best and nothing between them.
Work *convolutions_only(Subject subject);

void work_run(Work *work);

// Returns when all that was begun is done: a GPU works while the host goes on.
void work_finish(Work *work);

#endif
