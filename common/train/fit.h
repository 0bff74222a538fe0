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
    bool allow_nan;           // true: goes on where a loss is infinite or not a number
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
//
// As with Keras's TerminateOnNaN, a batch whose loss is infinite or not a number ends the training,
// and here the program: with one line that names rank, epoch, step and learning rate, and status 1,
// since it is incomplete. So does such a loss in validation. On a CPU each batch is looked at, on a
// GPU what has been added up is, now and then and at the end of each epoch; the step that is named
// is the first one all the same. Unless `allow_nan`.
History fit(Model *model, const Fit *fit);

typedef struct {
    double loss, accuracy;
} Score;

// Loss and accuracy over one permutation of the batches: each image exactly once.
Score evaluate(Model *model, Batches *batches, int verbose);

#pragma GCC visibility pop

#endif
