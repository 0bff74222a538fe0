// What each rank applied in an update, beside what all computed for it: fingerprints. Where nobody
// calls the kit's optimizers to apply it, the weights tell, after a step of fit(): SGD changes them
// by the gradient times the learning rate.

#ifndef HVDLAB_STEPS_APPLIED_H
#define HVDLAB_STEPS_APPLIED_H

#include "judge.h"

// Of the largest gradient of the step.
#define TOLERANCE 1e-4

// One update on every rank, as fingerprints.
typedef struct {
    double own[MAX_RANKS], applied[MAX_RANKS];
    double tolerance;
} AppliedUpdate;

typedef struct {
    const Run *run;
    AppliedUpdate *items;
    int count;
} AppliedUpdates;

// Of a run; the caller frees `items`.
AppliedUpdates applied_updates(const Run *run);

// Up to where there is something to explain: not where, after the first, numbers are not finite.
int finite_updates(const AppliedUpdates *updates);

double sum_over_ranks(const Run *run, const double values[]);
double largest_of_ranks(const Run *run, const double values[]);

// What a rank may have applied, given what all computed. `number` is of use to some.
typedef double (*AppliedFormula)(const Run *run, const double own[], int rank, int number);

// True where the formula explains what each rank applied.
bool explains_applied(const Run *run, const AppliedUpdate *update, AppliedFormula formula,
                      int number);

// The first update that the formula does not explain, or -1.
int first_not_applied(const AppliedUpdates *updates, AppliedFormula formula, int number);

// The ranks that applied the same as this one.
RankSet applied_the_same(const Run *run, const AppliedUpdate *update, int rank);

#endif
