// What each rank applied in an update, beside what all computed for it: fingerprints. Where nobody
// calls the kit's optimizers to apply it, the weights tell, after a step of fit(): SGD changes them
// by the gradient times the learning rate.

#ifndef HVDLAB_STEPS_APPLIED_H
#define HVDLAB_STEPS_APPLIED_H

#include "hypotheses.h"

// Of the largest gradient of the step.
#define TOLERANCE 1e-4

// Adds a row for each update of the run, up to where, after the first, numbers are not finite.
void applied_add(Rows *rows, const Run *run);

#endif
