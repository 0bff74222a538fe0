// An epoch as `fit` has it, taken apart: steps on batches that threads prepare, then validation,
// then what ranks do together at its end; and what the threads themselves take.

#ifndef BENCH_EPOCH_H
#define BENCH_EPOCH_H

#include "workload.h"

// As the trainer on the whole data set, it validates on half as many images as it trains on.
enum { EPOCH_STEPS = 24, EPOCH_VALIDATION_STEPS = EPOCH_STEPS / 2 };

// Seconds in an epoch, and of the processor's time.
typedef enum {
    EPOCH_TRAINING,   // computing steps, with what ranks exchange in them
    EPOCH_IMAGES,     // waiting for a batch
    EPOCH_VALIDATION, // computing
    EPOCH_OTHERS,     // waiting for the slowest rank at the end
    EPOCH_LOADING,    // the threads', of the processor's
    EPOCH_IDLE,       // the threads', in a second in which they have nothing to do
    EPOCH_PARTS
} EpochPart;

typedef struct Epoch Epoch; // until the process ends

// On synthetic images, augmented as in the lab.
Epoch *epoch_prepare(const Workload *workload, Model *model);
void epoch_run(Epoch *epoch);

// Of all that have run since the last call: of one epoch, the means over all ranks. Takes a second.
void epoch_parts(Epoch *epoch, double parts[EPOCH_PARTS]);

#endif
