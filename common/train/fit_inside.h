// Inside the library: the training loop for a model or its replicas, and its trace (fit_trace.c).

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

// What the trace says of a training: at its beginning; of the weights, as an event of this name;
// before a step, and after it. Where tracing is off, these do nothing.
void fit_trace_begin(const Fit *fit);
void fit_trace_weights(const char *event, const Model *model);
void fit_trace_batch(const Fit *fit, const Training *training);
void fit_trace_step(const Fit *fit, const Training *training);

#endif
