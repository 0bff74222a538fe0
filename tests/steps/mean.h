// Whether every rank applies the mean of all ranks' gradients. Who computes it, the kit's optimizer
// or one of the student's own, is no matter: what counts are the fingerprints of the gradient that
// each rank computed and of the one that it applied.

#ifndef HVDLAB_STEPS_MEAN_H
#define HVDLAB_STEPS_MEAN_H

#include "judge.h"

#define OWN_BATCHES  "every rank computes a gradient of its own, from batches of its own"
#define MEAN_APPLIED "every rank applies the mean of all ranks' gradients"
#define SILENT       "one worker alone sends nothing"

// Reports both properties, the first only where the exercise is not merely held, in runs in which
// every rank trains: by fit(), or in a loop of its own. Of runs of one rank alone it reports
// nothing: there is nothing to compare.
void judge_mean(const Runs *runs, Report *report);

// Reports what runs of one rank send, if there are such runs; returns whether it is nothing.
bool judge_silence(const Runs *runs, Report *report);

#endif
