// Inside the library: how fit() goes on with a training that was restored.

#ifndef HVDLAB_RESUME_H
#define HVDLAB_RESUME_H

#include "train/callbacks.h"

struct Resume {
    History history; // of the epochs before
    bool stop;       // a callback had ended the training
    // Restores the rest of the state, which the callbacks' train_begin would change, and
    // epoch_begin if the training continues inside an epoch. True where the batches of that epoch,
    // and its metrics, go on, too; else they begin again.
    bool (*apply)(const struct Resume *resume, Training *training);
};

#endif
