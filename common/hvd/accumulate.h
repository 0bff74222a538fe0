// Inside hvd: several gradients for one update.

#ifndef HVDLAB_ACCUMULATE_H
#define HVDLAB_ACCUMULATE_H

#include "nn/optimizer.h"

// An optimizer that gives the mean of every `passes` (2 or more) gradients to `optimizer`, which it
// owns and has the name of.
Optimizer *hvd_accumulate(Optimizer *optimizer, int passes);

// The number of gradients that an optimizer, however it is wrapped, holds for an incomplete update;
// `passes` gets the number that an update needs, at least 1.
int hvd_gradients_held(const Optimizer *optimizer, int *passes);

// Drops them: they are gradients of other weights than the model has now.
void hvd_drop_held_gradients(Optimizer *optimizer);

#endif
