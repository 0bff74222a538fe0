// Inside the library: what the training loop trains, a model or the replicas of one.

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

// What fit() and evaluate() do.
History fit_with(const Trainer *trainer, const Fit *fit);
Score evaluate_with(const Trainer *trainer, Batches *batches, int verbose);

#endif
