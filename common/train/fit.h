// The training loop.

#ifndef HVDLAB_FIT_H
#define HVDLAB_FIT_H

#include "train/callbacks.h"
#include "nn/model.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct {
    Batches *train;
    int epochs;
    int64_t steps_per_epoch;  // training batches in an epoch
    Batches *validation;      // NULL: none
    int64_t validation_steps; // validation batches after each epoch
    Callbacks *callbacks;     // NULL: none
    int verbose;              // 1: shows progress and figures on standard output; 0: silent
} Fit;

// The figures of every epoch that was trained. `logs` may be freed with free(); a program that ends
// need not.
typedef struct {
    Logs *logs;
    int epochs;
} History;

// Trains a compiled model: in each epoch `steps_per_epoch` batches of a fresh permutation, then
// `validation_steps` batches of validation, with the callbacks around. Steps must be at least 1;
// with 0 epochs nothing is trained. What can't be (a model that is not compiled, NULL, images that
// don't fit the model) ends the program with one line, here and in evaluate.
History fit(Model *model, const Fit *fit);

typedef struct {
    double loss, accuracy;
} Score;

// Loss and accuracy over one permutation of the batches: each image exactly once.
Score evaluate(Model *model, Batches *batches, int verbose);

#pragma GCC visibility pop

#endif
