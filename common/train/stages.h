// Model parallelism: a model that is cut in parts, one behind the other, each on a device of its own
// and computed by a thread of its own. The first part reads images and passes on a vector for each
// of them; the others read that (input_vector), and return the gradient of the vector; the last one
// ends in softmax. A batch passes in micro-batches, so that one device may compute on one of them
// while another computes on the next (Huang et al., "GPipe: Efficient Training of Giant Neural
// Networks using Pipeline Parallelism", 2019). In which order a stage does what is its schedule, a
// function of the program's own:
//
//     static void schedule(Stage *stage, int micro_batches)
//     {
//         stage_receive_values(stage, 0);    // from the stage before
//         stage_forward(stage, 0);           // of micro-batch 0
//         stage_send_values(stage, 0);       // what came out, to the next stage
//         stage_receive_gradient(stage, 0);  // of what came out, from there
//         stage_backward(stage, 0);
//         stage_send_gradient(stage, 0);     // of what was received, to the stage before
//         ...
//         stage_apply(stage);                // one update from all of them
//     }
//
// The gradients of micro-batches are added up by their share of the batch's images, so that the
// sum is the gradient of the whole batch's mean loss, as on one device. (But batch norm sees a
// micro-batch at a time, and moves its statistics with each; and dropout drops the same pattern in
// all micro-batches of a batch.) A stage keeps a micro-batch's activations from its forward to its
// backward pass.
//
// Stages on the same device share what there is. With --pace MS a batch takes each of N stages an
// N-th of so many milliseconds at least, a third of it forward and two thirds backward, and a
// micro-batch its share: devices that are as slow as one wants.

#ifndef HVDLAB_STAGES_H
#define HVDLAB_STAGES_H

#include "train/fit.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Stages Stages; // all of them
typedef struct Stage Stage;   // one of them, as its schedule sees it

// A stage's work on one batch. `micro_batches` is how many parts this batch has, at least 1; they
// are numbered from 0.
typedef void (*Schedule)(Stage *stage, int micro_batches);

enum { MAX_STAGES = 16 };

// What a stage computes, and where.
typedef struct {
    Model *model; // not compiled yet
    Optimizer *optimizer;
    int device; // beyond the last one a warning, as with device_use
} StagePart;

// Stages in a row, the first one first: 1 to MAX_STAGES. Weights begin as those of one model with
// all the layers would. Takes models and optimizers over. To be freed with stages_free, not by a
// schedule, though a program that ends need not. Parts that don't fit together, and a distributed
// optimizer, make the program exit with an error message.
Stages *stages_in_a_row(const StagePart *parts, int count);

// The same of two, the halves of a model, on these devices.
Stages *two_stages(Model *first, Optimizer *first_optimizer, Model *second,
                   Optimizer *second_optimizer, const int devices[2]);
void stages_free(Stages *stages);

// One update: cuts the batch into micro-batches (as many as asked for, or as it has images; the
// first ones get one image more where they can't be equal) and calls the schedule for every stage,
// each in the stage's thread. Returns when all have returned, and drops micro-batches that were
// sent and not received, and gradients that were not applied.
void train_by_schedule(Stages *stages, const Batch *batch, int micro_batches, Schedule schedule);

// The same with two stages, each by a schedule of its own.
void train_in_stages(Stages *stages, const Batch *batch, int micro_batches, Schedule first,
                     Schedule second);

// Sums over all micro-batches that were trained on since the last reset.
Metrics stages_metrics(const Stages *stages);
void stages_reset_metrics(Stages *stages);

// What a stage used since then.
typedef struct {
    int kept;         // micro-batches whose activations it kept at a time, at most
    double megabytes; // 10^6 bytes: the memory that it has for them
    double idle;      // fraction of the batches' time: it waited for others, or had returned
} StageUse;
StageUse stage_use(const Stages *stages, int stage);

// Loss and accuracy over one permutation of the batches: each image exactly once.
Score evaluate_in_stages(Stages *stages, Batches *batches);

// ---- What a schedule calls, for its own stage, each at most once for a micro-batch of a batch
// (stage_apply: whenever there are gradients; usually once, at the end). A call that is not
// possible makes the program exit with an error message: an earlier call is missing, the
// micro-batch does not exist, another thread calls. So does a stage that waits without progress:
// the one that would have to send waits, too, or has returned.

// Which stage it is, from 0, of how many.
int stage_index(const Stage *stage);
int stage_count(const Stage *stage);

// Computes this part of the model: of the images, or of the values that were received. The last
// stage computes the loss, too.
void stage_forward(Stage *stage, int micro_batch);

// Computes the gradients of this part's weights and adds them to the sum: from the gradient that
// was received, or from the loss. Then the micro-batch's activations are no longer kept.
void stage_backward(Stage *stage, int micro_batch);

// Sends to the next stage what this one has computed forward; and to the stage before the gradient
// of what it received. Don't wait for the receiver. Where there is no such stage, they do nothing.
void stage_send_values(Stage *stage, int micro_batch);
void stage_send_gradient(Stage *stage, int micro_batch);

// Waits until the stage before has sent the values of this micro-batch, which stage_forward needs.
// In the first stage it does nothing.
void stage_receive_values(Stage *stage, int micro_batch);

// Waits until the next stage has sent the gradient of the values that this one has sent for this
// micro-batch; stage_backward needs it. In the last stage it does nothing.
void stage_receive_gradient(Stage *stage, int micro_batch);

// The same between two stages: the first one sends values and receives their gradient, the second
// one receives values and sends their gradient.
void stage_send(Stage *stage, int micro_batch);
void stage_receive(Stage *stage, int micro_batch);

// Updates the weights of this part from the sum of the gradients, which is empty then.
void stage_apply(Stage *stage);

#pragma GCC visibility pop

#endif
