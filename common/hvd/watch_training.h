// Inside hvd: calls that inform watch_training.c.

#ifndef HVDLAB_WATCH_TRAINING_H
#define HVDLAB_WATCH_TRAINING_H

#include "nn/model.h"

// Before main (start.c): every training is compared among its workers.
void training_watch(void);

#endif
