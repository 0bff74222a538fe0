// The learning rate and the momentum of every update of a training with a warm-up, and which
// formula explains them. On its way a rate may be that of the batch's end, as the program asks for,
// or that of its beginning, as others define it.

#ifndef HVDLAB_STEPS_WARMUP_H
#define HVDLAB_STEPS_WARMUP_H

#include "hypotheses.h"
#include "rates.h"

#define SCALED                                                                                     \
    "after the warm-up the learning rate is that of one device, times the number of workers"

#define WARMUP_EPOCHS 3 // as the program has it

typedef struct {
    const Run *run;
    Rates of[MAX_RANKS];
    double lr; // of one device
    double steps;
} WarmupRun;

typedef struct {
    WarmupRun *items;
    int count;
} WarmupRuns;

WarmupRuns warmup_runs(const Runs *runs);
void warmup_runs_free(WarmupRuns *all);

// A row for one update of one rank: what is shown is its rate.
Row warmup_row(const WarmupRun *t, int rank, int number);
const RateOfUpdate *update_of(const Row *row);

// "rank 0, epoch 2, batch 1 of 3"; the caller frees it.
char *moment_name(const Row *row);

// The number of the batch, from 0, over all epochs.
double batch_number(const Row *row);

// Beyond the warm-up, or within; where this update is.
typedef enum { WITHIN, BEYOND } WarmupPart;
WarmupPart part_of(const RateOfUpdate *update);

// Adds a row for each update of that part of the rank's training.
void warmup_add(Rows *rows, const WarmupRun *t, int rank, WarmupPart where);

// A rate on its way is that of the batch's end, or of its beginning, or such that the first batch
// has the line's first point and the last batch its last one. A hypothesis' number holds the variant,
// and a number of epochs: it is tried in each of the variants, with `first` to `last` epochs.
typedef enum { AT_END, AT_BEGIN, END_TO_END, VARIANTS } Variant;
#define EPOCHS(first, last) .from = (first)*VARIANTS, .to = (last)*VARIANTS + VARIANTS - 1

// What the rates of a part have to be, and what is wrong where they are not.
typedef struct {
    const char *property;
    WarmupPart where;
    Hypothesis right;
    const Diagnosis *(*diagnose)(const WarmupRuns *all);
} RateRule;
extern const RateRule rates_in_warmup, rates_after_warmup; // warmup_rates.c

// The first update of the run that is not what it should be, and what is right there, in the variant
// that explains most. False: there is none.
bool first_wrong_rate(const WarmupRun *t, const RateRule *rule, Row *first, double *right);

bool judge_warmup_rates(const WarmupRuns *all, const RateRule *rule, Report *report);

// True where the rates of the warm-up are on a straight line, but to a rate after it that is wrong
// (warmup_rates.c).
bool only_the_goal_is_wrong(const WarmupRuns *all);

// The mistake by which each rank has a last rate of its own; NULL: none that is known
// (warmup_rates.c).
const Diagnosis *wrong_last_rates(const WarmupRun *t);

// Reports whether momentum, if it is corrected, rises with the rate, and is the optimizer's own
// afterwards (warmup_momentum.c).
bool is_momentum_wrong(const WarmupRun *t);
void judge_momentum_within(const WarmupRuns *all, Report *report);
void judge_momentum_beyond(const Runs *runs, const WarmupRuns *all, Report *report);

#endif
