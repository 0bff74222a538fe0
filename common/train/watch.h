// Inside the library: callbacks that every training has beside those of its program, for what a
// flag asks of the process as a whole, and for what hvd compares.

#ifndef HVDLAB_WATCH_H
#define HVDLAB_WATCH_H

#include "train/callbacks.h"

// From now on every fit() calls the callback's train_begin before all others, its epoch_end after
// the epoch's line was printed, and its train_end after all others.
void fit_watch(Callback *callback);

#endif
