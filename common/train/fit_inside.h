// Inside the library: the training loop for a model or its replicas.

#ifndef HVDLAB_FIT_INSIDE_H
#define HVDLAB_FIT_INSIDE_H

#include "train/fit.h"

typedef struct {
    Model *model; // that callbacks see: its weights and its optimizer
    void *self;   // what the functions get
    void (*train_on_batch)(void *self, const Batch *batch);
    void (*test_on_batch)(void *self, const Batch *batch);
    // Of all images since the last reset, wherever they were computed.
    Metrics (*metrics)(void *self);
    void (*reset_metrics)(void *self);
} Trainer;

// fit() and evaluate() of any Trainer.
History fit_with(const Trainer *trainer, const Fit *fit);
Score evaluate_with(const Trainer *trainer, Batches *batches, int verbose);

#endif
