// Inside the library: how fit() goes on with a training that was restored.

#ifndef HVDLAB_RESUME_H
#define HVDLAB_RESUME_H

#include "train/callbacks.h"

struct Resume {
    History history; // of the epochs before
    bool stop;       // a callback had ended the training
    // Puts everything else in its place, which train_begin of the callbacks, and epoch_begin where
    // the training goes on inside an epoch, would change. True where the batches of that epoch, and
    // its metrics, go on, too; else they begin again.
    bool (*apply)(const struct Resume *resume, Training *training);
};

#endif
