// The learning rate and the momentum of every update of a training with a warm-up, and which
// formula explains them. On its way a rate may be that of the batch's end, as the program asks for,
// or that of its beginning, as others define it.

#ifndef HVDLAB_STEPS_WARMUP_H
#define HVDLAB_STEPS_WARMUP_H

#include "judge.h"
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

// One update of one rank.
typedef struct {
    const WarmupRun *training;
    int rank, number;
} Moment;

const RateOfUpdate *update_at(Moment moment);
bool in_warmup(const RateOfUpdate *update);

// "rank 0, epoch 2, batch 1 of 3"; the caller frees it.
char *moment_name(Moment moment);

// The number of the batch, from 0, over all epochs.
double batch_number(Moment moment);

// A rate on its way is that of the batch's end, or of its beginning, or such that the first batch
// has the line's first point and the last batch its last one.
typedef enum { AT_END, AT_BEGIN, END_TO_END, VARIANTS } Variant;

// What the rate of an update may be, right or wrong. `number` is of use to some.
typedef double (*Formula)(Moment moment, Variant variant, int number);

// Beyond the warm-up, or within.
typedef enum { WITHIN, BEYOND } WarmupPart;

// True where the formula explains that part of all runs, in one variant.
bool formula_explains(const WarmupRuns *all, WarmupPart where, Formula formula, int number);

// What the rates of a part have to be, and what is wrong where they are not.
typedef struct {
    const char *property;
    WarmupPart where;
    Formula right;
    const Diagnosis *(*diagnose)(const WarmupRuns *all);
} RateRule;
extern const RateRule rates_in_warmup, rates_after_warmup; // warmup_rates.c

// The first update of the run that is not what it should be in the variant that explains most.
bool first_wrong_rate(const WarmupRun *t, const RateRule *rule, Variant *variant, Moment *moment);

bool judge_warmup_rates(const Runs *runs, const WarmupRuns *all, const RateRule *rule,
                        Report *report);

// The mistake by which each rank has a last rate of its own; NULL: none that is known
// (warmup_rates.c).
const Diagnosis *wrong_last_rates(const WarmupRun *t);

// Reports whether momentum, if it is corrected, rises with the rate, and is the optimizer's own
// afterwards (warmup_momentum.c).
bool is_momentum_wrong(const WarmupRun *t);
void judge_momentum_within(const Runs *runs, const WarmupRuns *all, Report *report);
void judge_momentum_beyond(const Runs *runs, const WarmupRuns *all, Report *report);

#endif
