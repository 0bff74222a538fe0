// Inside the library: the plan for one batch size. The backend prepares every operation once; the
// values, what the backward pass needs of them, and the gradients get places in one block of
// memory. Values live until the backward pass is over; the gradients of values live from their
// first contribution to the operation that uses them, and reuse each other's places.

#ifndef HVDLAB_PLAN_H
#define HVDLAB_PLAN_H

#include "nn/lower.h"

#define NOWHERE SIZE_MAX

// One operation's part in the backward pass. Places are offsets into the block.
typedef struct {
    int op;
    size_t output_gradient;
    size_t output_gradient2;  // to be added to it, or NOWHERE
    size_t input_gradient;    // NOWHERE: not wanted
    size_t residual_gradient; // OP_ADD: where a copy goes, or NOWHERE
} BackwardStep;

typedef struct {
    Device *device;
    int batch;
    int team;         // OpenMP threads for which it was made (device_team)
    OpState **states; // one per operation
    OpSizes *sizes;
    size_t *values; // place of each value
    size_t *saved;  // place of what each operation saves
    size_t scratch;
    size_t probabilities;
    size_t logits_gradient;
    size_t input_gradient;  // of a vector, else NOWHERE
    BackwardStep *backward; // in the order in which they run, one per operation
    size_t bytes;           // of the whole block
    bool trained;           // a training step has been made
    Recording **training;   // of the pieces of such a step (batch.c), or NULL: one per operation
} Plan;

Plan *plan_create(Device *device, const Program *program, int batch);
// Records the steps again where that is asked for.
void plan_forget_recordings(const Program *program, Plan *plan);
void plan_free(const Program *program, Plan *plan);

#endif
