// Whether a training that goes on is an uninterrupted one.

#ifndef HVDLAB_STEPS_RESUMED_STEPS_H
#define HVDLAB_STEPS_RESUMED_STEPS_H

#include "judge.h"

// The last event of that name before a place; NULL: there is none.
const cJSON *event_before(const Events *events, const char *name, int place);

// Whether the rate falls as in an uninterrupted training, and whether every step equals that of
// such a training.
Fault resumed_rates_fault(const Runs *runs, const Run *run);
Fault resumed_steps_fault(const Runs *runs, const Run *run);

#endif
