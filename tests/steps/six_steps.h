// What the checks of the six steps have in common.

#ifndef HVDLAB_STEPS_SIX_STEPS_H
#define HVDLAB_STEPS_SIX_STEPS_H

#include "end.h"

extern const Ends six_steps;

#endif
