// Judges whether what the check arranged in its runs took place.

#ifndef HVDLAB_STEPS_ARRANGED_H
#define HVDLAB_STEPS_ARRANGED_H

#include "judge.h"

// After all judges: for a program in which they have found nothing.
void judge_arranged(const Runs *runs, Report *report);

#endif
