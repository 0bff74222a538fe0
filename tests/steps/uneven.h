// The updates of a training in which workers run out of batches, as the trace has them.

#ifndef HVDLAB_STEPS_UNEVEN_H
#define HVDLAB_STEPS_UNEVEN_H

#include "judge.h"

// One update on one rank, as fingerprints.
typedef struct {
    bool works;     // it has computed a gradient from a batch that it had not used yet
    double own;     // that gradient; before the rank works for the first time, 0
    double images;  // in that batch
    double applied; // what reached the optimizer
    double weights; // that the gradient was computed with; not a number: there is none
} UnevenUpdate;

typedef struct {
    const Run *run;
    UnevenUpdate *of[MAX_RANKS];
    int count[MAX_RANKS];
    int again[MAX_RANKS]; // gradients that were computed without a new batch
} UnevenUpdates;

// Of a run; the caller frees them by uneven_updates_free.
UnevenUpdates uneven_updates(const Run *run);
void uneven_updates_free(UnevenUpdates *updates);

// Reports whether what is applied is the mean of what was computed (uneven.c).
bool judge_mean_of_working(const Runs *runs, Report *report);

#endif
