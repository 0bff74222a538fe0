// The memory that an update of a model works on.

#ifndef HVDLAB_PARAMETERS_H
#define HVDLAB_PARAMETERS_H

#include "base/types.h"
#include "run/device.h"

// The weights that an optimizer updates, and their gradients: two arenas of `length` floats, laid
// out in the order in which the backward pass completes the gradients.
typedef struct {
    Device *device; // whose memory it is
    float *weights, *gradients;
    size_t length;
    size_t first_gradient;   // offset of what `gradients` points to; 0 where all are kept
    const Segment *segments; // what lies where, with the L2 penalty of each, without padding and
    int segment_count;       // biases of convolutions before a batch norm: they have no gradient
    const Segment *pieces;   // the same by operations: the variables of one are a piece
    int piece_count;
    uint64_t layout; // equal where two processes' arenas hold the same variables in the same order
    const char *description; // what the model computes, a line for each layer and penalty
} Parameters;

#endif
