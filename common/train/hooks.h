// Calls of train/ to a layer above it, which start.c registers: callbacks that every training has
// beside those of its program.

#ifndef HVDLAB_TRAIN_HOOKS_H
#define HVDLAB_TRAIN_HOOKS_H

#include "train/callbacks.h"

// From now on every fit() calls the callback's train_begin before all others, its epoch_end after
// the epoch's line was printed, and its train_end after all others.
void fit_watch(Callback *callback);

#endif
