// Inside hvd: several gradients for one update.

#ifndef HVDLAB_ACCUMULATE_H
#define HVDLAB_ACCUMULATE_H

#include "nn/optimizer.h"

// An optimizer that passes the mean of each `passes` gradients, two at least, to `optimizer`, which
// it owns and has the name of.
Optimizer *hvd_accumulate(Optimizer *optimizer, int passes);

// How many gradients an optimizer, however it is wrapped, holds for an update that is not complete;
// `passes` gets how many make one.
int hvd_gradients_held(const Optimizer *optimizer, int *passes);

#endif
