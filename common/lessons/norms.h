// The norms of gradients (lab 5, exercise clip): the root of the sum of all squares.

#ifndef HVDLAB_NORMS_H
#define HVDLAB_NORMS_H

#pragma GCC visibility push(default) // a step may call what follows

// The largest ones of an epoch: of the gradients that this worker has computed, each time of all
// variables together, and of those that reached the optimizer. Not a number where a norm was not.
typedef struct {
    double computed, applied;
} Norms;

// From now on all gradients are measured; in a trace, too. Of one model, which one thread trains.
void measure_norms(void);

// The largest norms since the last call.
Norms largest_norms(void);

#pragma GCC visibility pop

#endif
