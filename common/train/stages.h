// Model parallelism: a model that is cut in two, its halves on two devices, each computed by a
// thread of its own. The first half reads images and passes on a vector for each of them; the
// second reads that (input_vector), ends in softmax, and returns the gradient of the vector. A
// batch passes in micro-batches, so that one device may compute on one of them while the other
// computes on the next (Huang et al., "GPipe: Efficient Training of Giant Neural Networks using
// Pipeline Parallelism", 2019). In which order a stage does what is its schedule, a function of the
// program's own:
//
//     static void first(Stage *stage, int micro_batches)
//     {
//         stage_forward(stage, 0);    // the images of micro-batch 0
//         stage_send(stage, 0);       // what came out, to the other device
//         stage_receive(stage, 0);    // its gradient, from there
//         stage_backward(stage, 0);
//         ...
//         stage_apply(stage);         // one update from all of them
//     }
//
// The gradients of micro-batches are added up by their share of the batch's images, so that the
// sum is the gradient of the whole batch's mean loss, as on one device. (But batch norm sees a
// micro-batch at a time, and moves its statistics with each; and dropout drops the same pattern in
// all micro-batches of a batch.)
//
// Without two devices the halves share what there is. With --pace MS a batch takes each of the two
// half of so many milliseconds at least, a third of it forward and two thirds backward, and a
// micro-batch its share: devices that are as slow as one wants.

#ifndef HVDLAB_STAGES_H
#define HVDLAB_STAGES_H

#include "train/fit.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Stages Stages; // both halves
typedef struct Stage Stage;   // one of them, as its schedule sees it

// A stage's work on one batch. `micro_batches` is how many parts this batch has, at least 1; they
// are numbered from 0.
typedef void (*Schedule)(Stage *stage, int micro_batches);

// The halves of a model, which are not compiled yet, their optimizers, and the two devices (0 and
// 1, or another choice; beyond the last one a warning, as with device_use). Weights begin as those
// of one model with all the layers would. Takes models and optimizers over. To be freed with
// stages_free, not by a schedule, though a program that ends need not. Halves that don't fit
// together, and a distributed optimizer, make the program exit with an error message.
Stages *two_stages(Model *first, Optimizer *first_optimizer, Model *second,
                   Optimizer *second_optimizer, const int devices[2]);
void stages_free(Stages *stages);

// One update: cuts the batch into micro-batches (as many as asked for, or as it has images; the
// first ones get one image more where they can't be equal) and calls both schedules, each in the
// thread of its stage. Returns when both have returned, and drops micro-batches that were sent and
// not received, and gradients that were not applied.
void train_in_stages(Stages *stages, const Batch *batch, int micro_batches, Schedule first,
                     Schedule second);

// Sums over all micro-batches that were trained on since the last reset.
Metrics stages_metrics(const Stages *stages);
void stages_reset_metrics(Stages *stages);

// Loss and accuracy over one permutation of the batches: each image exactly once.
Score evaluate_in_stages(Stages *stages, Batches *batches);

// ---- What a schedule calls, for its own stage, each at most once for a micro-batch of a batch
// (stage_apply: whenever there are gradients; usually once, at the end). A call that is not
// possible makes the program exit with an error message: an earlier call is missing, the
// micro-batch does not exist, another thread calls. So does a stage that waits without progress:
// the other one waits, too, or has returned.

// Computes this half of the model: of the images, or of what was received. The second half computes
// the loss, too.
void stage_forward(Stage *stage, int micro_batch);

// Computes the gradients of this half's weights and adds them to the sum: from the gradient that
// was received, or from the loss.
void stage_backward(Stage *stage, int micro_batch);

// Sends to the other stage: the first one what it has computed forward, the second one the gradient
// of what it received. Does not wait for the other.
void stage_send(Stage *stage, int micro_batch);

// Waits until the other stage has sent this micro-batch: its values, or in the first stage their
// gradient.
void stage_receive(Stage *stage, int micro_batch);

// Updates the weights of this half from the sum of the gradients, which is empty then.
void stage_apply(Stage *stage);

#pragma GCC visibility pop

#endif
