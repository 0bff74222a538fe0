// The updates of a training that clips, as the trace has them: of each variable the gradient that a
// rank computed, and the one that its optimizer got. The trace has norms and fingerprints. Where all
// of what was applied is one multiple of the mean, the norm of the mean follows from the two: it is
// the norm of what was applied, divided by the factor.

#ifndef HVDLAB_STEPS_CLIPPED_H
#define HVDLAB_STEPS_CLIPPED_H

#include "judge.h"

#define MAX_CLIPPED_VARIABLES 16

typedef struct {
    double value[MAX_CLIPPED_VARIABLES]; // fingerprints
    double norm[MAX_CLIPPED_VARIABLES];
    double length;  // of all variables together
    double largest; // of the absolute values
} VariableGradients;

// One update of one rank.
typedef struct {
    VariableGradients own, applied; // the latter times the learning rate, over the command line's
    int applies;                    // how often the optimizer made an update
    bool at_other_rate;
    double weights; // before it
} ClippedUpdate;

typedef struct {
    const Run *run;
    double limit;
    double
        first_scaled; // the first norm that was scaled down, in any run; NaN: none (judge_clip.c)
    ClippedUpdate *of[MAX_RANKS];
    int count; // of updates to judge: made by all ranks, and finite, except the first
} ClippedUpdates;

typedef struct {
    ClippedUpdates *items;
    int count;
} AllClipped;

// Of a run; the caller frees them by clipped_updates_free.
ClippedUpdates clipped_updates(const Run *run);
void clipped_updates_free(ClippedUpdates *updates);

double norm_of(const VariableGradients *gradients);

// What a rank may have multiplied, given what all computed; `number` is of use to some.
typedef double (*ClippedBase)(const ClippedUpdates *updates, int u, int rank, int v, int number);
double mean_base(const ClippedUpdates *updates, int u, int rank, int v, int number);

// True where what the rank applied is the base times one factor above 0, the same for all variables.
bool is_multiple(const ClippedUpdates *updates, int u, int rank, ClippedBase base, int number,
                 double *factor);

// True where a fingerprint that was applied to a variable is this value.
bool is_applied(const ClippedUpdates *updates, int u, int rank, int v, double value);

// Reports whether each rank applies a multiple of the mean (clipped_mean.c).
bool judge_multiple(const Runs *runs, const AllClipped *all, Report *report);

#endif
