// The training loop.

#ifndef HVDLAB_FIT_H
#define HVDLAB_FIT_H

#include "train/callbacks.h"
#include "nn/model.h"

#pragma GCC visibility push(default) // a step may call what follows

// The state of a training in a checkpoint (hvd/checkpoint.h).
typedef struct Resume Resume;

typedef struct {
    Batches *train;
    int epochs;
    int64_t steps_per_epoch;  // training batches in an epoch
    Batches *validation;      // NULL: none
    int64_t validation_steps; // validation batches after each epoch
    Callbacks *callbacks;     // NULL: none
    int verbose;              // 1: shows progress and metrics on standard output; 0: silent
    bool allow_nan;           // true: goes on where a loss is infinite or not a number
    int initial_epoch;        // the first one to be trained, from 0,
    int64_t initial_step;     // from this step on, from 0
    const Resume *resume;     // what restore_checkpoint found, with these two; NULL: nothing
} Fit;

// Trains a compiled model: in each epoch `steps_per_epoch` batches of a fresh permutation, then
// `validation_steps` batches of validation, with the callbacks around. Steps must be at least 1;
// where initial_epoch is not below epochs (0 epochs, say) nothing is trained. The history returned
// begins with the last 5,000 epochs of the training that was resumed, if there is one. Wrong
// arguments (a model that is not compiled, NULL, images that don't fit the model) make the program
// exit with an error message, here and in evaluate.
//
// As with Keras's TerminateOnNaN, a batch whose loss is infinite or not a number ends the training.
// Unless `allow_nan`, the program then exits with status 1 and an error message that names rank,
// epoch, step and learning rate. So does such a loss in validation. A CPU checks each batch; a GPU
// checks the sum now and then and at the end of each epoch, and still names the first such step.
History fit(Model *model, const Fit *fit);

typedef struct {
    double loss, accuracy;
} Score;

// Loss and accuracy over one permutation of the batches: each image exactly once.
Score evaluate(Model *model, Batches *batches, int verbose);

#pragma GCC visibility pop

#endif
