// Inside hvd: calls that inform watch_training.c.

#ifndef HVDLAB_WATCH_TRAINING_H
#define HVDLAB_WATCH_TRAINING_H

#include "nn/model.h"

// True where a distributed optimizer is part of this one.
bool hvd_is_distributed(const Optimizer *optimizer);

// Before main (start.c): every training is compared among its workers.
void training_watch(void);

#endif
