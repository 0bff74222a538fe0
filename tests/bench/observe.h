// Looks at a model through its backend: which operations it is made of, and what each kind of work
// takes. Where nothing is observed, a model gets the backend itself, and nothing is lost.
//
// This program defines backend_of() in place of the library's (common/backend/backend.c).

#ifndef BENCH_OBSERVE_H
#define BENCH_OBSERVE_H

#include "demand.h"

typedef enum {
    OBSERVE_NOTHING,
    OBSERVE_OPERATIONS, // notes the operations that are compiled and prepared
    OBSERVE_TIMES       // notes what each of them takes, too
} Observation;

// From now on. The operations must have been observed while they were prepared (in the first step
// on a batch) for their times to be. A convolution's backward pass is run twice then, first for the
// kernel's gradient alone, so that the two directions can be told apart.
void observe(Observation what);

// The operations that were compiled while something was observed, in forward order. Returns how
// many; they live as long as their model.
int observed_operations(const Op *const **ops);

// What the device did for a kind of work, in a step.
typedef struct {
    double calls, seconds;
} Taken;

// Of everything since OBSERVE_TIMES began, divided by the number of steps. Waits for the device.
void observed_times(int steps, Taken taken[WORK_KINDS]);

#endif
