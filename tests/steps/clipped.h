// The updates of a training that clips, as the trace has them: of each variable the gradient that a
// rank computed, and the one that its optimizer got. The trace has norms and fingerprints. Where all
// of what was applied is one multiple of the mean, the norm of the mean follows from the two: it is
// the norm of what was applied, divided by the factor.

#ifndef HVDLAB_STEPS_CLIPPED_H
#define HVDLAB_STEPS_CLIPPED_H

#include "hypotheses.h"

#define MAX_CLIPPED_VARIABLES 16
#define FACTOR_TOLERANCE      1e-3

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
    double rate;                    // the learning rate, over the command line's
    double weights;                 // before it
} ClippedUpdate;

typedef struct {
    const Run *run;
    double limit;
    // The first norm that was scaled down, in any run; NaN: none (judge_clip.c).
    double first_scaled;
    ClippedUpdate *of[MAX_RANKS];
    int count; // of updates to judge: made by all ranks, and finite, except the first
} ClippedUpdates;

// Of a run; the caller frees them by clipped_updates_free.
ClippedUpdates clipped_updates(const Run *run);
void clipped_updates_free(ClippedUpdates *updates);

double norm_of(const VariableGradients *gradients);

// Adds a row for each update: what a rank has of its own is its gradient's norm, and what it shows is
// by what it multiplied the mean. Row.of is `updates`.
void clipped_add(Rows *rows, const ClippedUpdates *updates);
const ClippedUpdate *clipped_update(Cell cell); // of such a row

// The same update as a row of one variable: fingerprints of its gradient, computed and applied. The
// variable's number is Row.batches.
Row clipped_variable(const Row *update, int variable);

extern const Hypothesis mean_gradient; // of such rows

// True where what the rank applied is the base, of each variable, times one factor above 0.
bool is_multiple(const Row *update, int rank, const Hypothesis *base, double *factor);

// Reports whether each rank applies a multiple of the mean (clipped_mean.c).
bool judge_multiple(const Runs *runs, const Rows *rows, Report *report);

#endif
