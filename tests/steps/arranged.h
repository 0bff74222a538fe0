// Judges whether what the check arranged in its runs took place.

#ifndef HVDLAB_STEPS_ARRANGED_H
#define HVDLAB_STEPS_ARRANGED_H

#include "judge.h"

// A call of write_checkpoint failed in the run, as in a run with a full disk.
bool save_failed(const Run *run);

// After all judges: for a program in which they have found nothing.
void judge_arranged(const Runs *runs, Report *report);

#endif
