// Plateau: from the losses that the ranks' traces show, what must become of the learning rate, and
// what wrong rules would make of it.

#include "end.h"
#include "mean.h"
#include "rates.h"
#include "diagnoses/judge_plateau.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"

#define REDUCED "the rate is reduced where the mean of the validation losses no longer falls"
#define STEADY  "the rate changes only between two epochs"

// As the program has them.
#define FACTOR    0.2
#define PATIENCE  2
#define MIN_DELTA 1e-4
#define MIN_LR    0.05 // of one device's learning rate

#define MAX_EPOCHS 64

// ---- What a run shows.

typedef enum { VAL_LOSS, LOSS, VAL_ACCURACY, ACCURACY, METRICS } Metric;
static const char *const metric_names[] = {"val_loss", "loss", "val_accuracy", "accuracy"};

// `of` are the metrics that each rank computed itself; `rates` those of its updates in each epoch.
typedef struct {
    const Run *run;
    int epochs;
    double lr; // of one device
    double of[MAX_RANKS][MAX_EPOCHS][METRICS], mean[MAX_EPOCHS][METRICS];
    double rates[MAX_RANKS][MAX_EPOCHS + 1];
} Training;

typedef struct {
    Training *items;
    int count;
} Trainings;

static void read_metrics(Training *t, int rank)
{
    for (int e = 0; e < t->epochs; e++) {
        const cJSON *epoch = event_nth(&t->run->traces.of[rank], "epoch", e);
        for (int m = 0; m < METRICS; m++) {
            t->of[rank][e][m] = event_number(epoch, metric_names[m]);
            t->mean[e][m] += t->of[rank][e][m] / t->run->ranks;
        }
    }
}

// The rates of the epochs' first updates.
static int read_rates(Training *t, int rank)
{
    Rates rates = rates_read(t->run, rank);
    int epochs = 0;
    for (int i = 0; i < rates.count; i++)
        if (rates.items[i].step == 0 && epochs < MAX_EPOCHS)
            t->rates[rank][epochs++] = rates.items[i].learning_rate;
    free(rates.items);
    return epochs;
}

static Training read_training(const Run *run)
{
    Training t = {.run = run, .epochs = MAX_EPOCHS, .lr = run_flag(run, "--base-lr ")};
    for (int r = 0; r < run->ranks; r++) {
        int epochs = read_rates(&t, r);
        t.epochs = epochs < t.epochs ? epochs : t.epochs;
    }
    for (int r = 0; r < run->ranks; r++)
        read_metrics(&t, r);
    return t;
}

static Trainings read_trainings(const Runs *runs)
{
    Trainings all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = read_training(&runs->items[i]);
    return all;
}

// ---- Rules, the right one and others.

// Whose metrics decide.
typedef enum { MEAN, OWN, OF_ROOT } Source;

typedef struct {
    Source source;
    Metric metric;
    bool upwards;          // a higher one is better
    double least;          // by which it must be better than the best
    bool relative;         // ... as a part of that
    int patience;          // epochs in a row without
    bool keeps_count;      // ... which are counted on after a reduction
    bool not_in_a_row;     // ... and where one was better
    bool from_previous;    // better than that of the epoch before, not than the best
    bool best_is_lost;     // a reduction begins with a new best
    bool best_moves;       // what is not better becomes the best, too, where it is lower
    bool begins_with_zero; // the best, at first
    double factor, min_lr;
    bool stays_above; // a reduction that would lead below min_lr is not made
} Rule;

#define RIGHT .least = MIN_DELTA, .patience = PATIENCE, .factor = FACTOR, .min_lr = MIN_LR

static const Rule right = {RIGHT};

static double metric_of(const Training *t, const Rule *rule, int rank, int epoch)
{
    const double *metrics =
        rule->source == MEAN ? t->mean[epoch] : t->of[rule->source == OWN ? rank : 0][epoch];
    return rule->upwards ? -metrics[rule->metric] : metrics[rule->metric];
}

static double reduced(const Training *t, const Rule *rule, double rate)
{
    double min_lr = rule->min_lr * t->lr, next = rate * rule->factor;
    if (next >= min_lr)
        return next;
    return rule->stays_above ? rate : fmin(rate, min_lr);
}

// The rates that the rule makes, for the epochs up to and with `epochs`.
static void follow(const Training *t, const Rule *rule, int rank, int epochs, double rates[])
{
    double best = rule->begins_with_zero ? 0 : INFINITY;
    int waited = 0;
    rates[0] = t->lr * t->run->ranks;
    for (int e = 0; e < epochs; e++) {
        double metric = metric_of(t, rule, rank, e);
        rates[e + 1] = rates[e];
        double least = rule->relative && isfinite(best) ? rule->least * fabs(best) : rule->least;
        bool better = metric < best - least;
        if (better || rule->from_previous || (rule->best_moves && metric < best))
            best = metric;
        if (better) {
            waited = rule->not_in_a_row ? waited : 0;
            continue;
        }
        if (++waited < rule->patience)
            continue;
        rates[e + 1] = reduced(t, rule, rates[e]);
        waited = rule->keeps_count ? waited : 0;
        if (rule->best_is_lost)
            best = INFINITY;
    }
}

// The first epoch whose rate is not what the rule says, or -1.
static int first_other(const Training *t, const Rule *rule, int rank)
{
    double rates[MAX_EPOCHS + 1];
    follow(t, rule, rank, t->epochs - 1, rates);
    for (int e = 0; e < t->epochs; e++)
        if (!same_rate(t->rates[rank][e], rates[e]))
            return e;
    return -1;
}

static bool explains_run(const Training *t, const Rule *rule)
{
    for (int r = 0; r < t->run->ranks; r++)
        if (first_other(t, rule, r) >= 0)
            return false;
    return true;
}

static bool explains(const Trainings *all, const Rule *rule)
{
    for (int i = 0; i < all->count; i++)
        if (!explains_run(&all->items[i], rule))
            return false;
    return true;
}

// ---- Diagnoses.

static const struct {
    Rule rule;
    const Diagnosis *diagnosis;
} known[] = {
    {{RIGHT, .source = OWN}, &d_own_figures},
    {{RIGHT, .source = OF_ROOT}, &d_figures_of_the_root},
    {{RIGHT, .metric = LOSS}, &d_training_loss},
    {{RIGHT, .metric = VAL_ACCURACY}, &d_accuracy_instead_of_loss},
    {{RIGHT, .metric = VAL_ACCURACY, .upwards = true}, &d_accuracy_instead_of_loss},
    {{.least = 0, .patience = PATIENCE, .factor = FACTOR, .min_lr = MIN_LR}, &d_min_delta_ignored},
    {{RIGHT, .relative = true}, &d_min_delta_relative},
    {{.least = MIN_DELTA, .patience = PATIENCE + 1, .factor = FACTOR, .min_lr = MIN_LR},
     &d_patience_too_long},
    {{.least = MIN_DELTA, .patience = PATIENCE - 1, .factor = FACTOR, .min_lr = MIN_LR},
     &d_patience_too_short},
    {{RIGHT, .keeps_count = true}, &d_count_not_reset},
    {{RIGHT, .not_in_a_row = true}, &d_not_in_a_row},
    {{RIGHT, .from_previous = true}, &d_previous_not_best},
    {{RIGHT, .best_is_lost = true}, &d_best_lost},
    {{RIGHT, .best_moves = true}, &d_best_creeps},
    {{RIGHT, .begins_with_zero = true}, &d_best_from_zero},
    {{.least = MIN_DELTA, .patience = PATIENCE, .factor = FACTOR, .min_lr = 0}, &d_floor_ignored},
    {{RIGHT, .stays_above = true}, &d_floor_not_reached},
};

static bool rates_stay(const Trainings *all)
{
    for (const Training *t = all->items; t < all->items + all->count; t++)
        for (int r = 0; r < t->run->ranks; r++)
            for (int e = 1; e < t->epochs; e++)
                if (!same_rate(t->rates[r][e], t->rates[r][0]))
                    return false;
    return true;
}

static const Diagnosis *diagnose(const Trainings *all, int epoch)
{
    if (epoch == 0)
        return &d_rate_wrong;
    if (rates_stay(all))
        return &d_never_reduced;
    const Diagnosis *found = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const Diagnosis *other = known[i].diagnosis;
        if (!explains(all, &known[i].rule))
            continue;
        if (found && strcmp(found->name, other->name) != 0)
            return &d_reduced_otherwise; // which one it is can't be told
        found = other;
    }
    return found ? found : &d_reduced_otherwise;
}

// The losses up to the epoch that follows another rate, and what is right there.
static char *evidence_of(const Training *t, int rank, int epoch)
{
    double rates[MAX_EPOCHS + 1];
    follow(t, &right, rank, t->epochs - 1, rates);
    char *evidence =
        format_text("rank %d trains epoch %d at learning rate %.5g, where %.5g is right", rank,
                    epoch + 1, t->rates[rank][epoch], rates[epoch]);
    text_add(&evidence, "\nmean validation losses:");
    for (int e = 0; e < epoch; e++)
        text_add(&evidence, " %.6f", t->mean[e][VAL_LOSS]);
    if (t->run->ranks > 1) {
        text_add(&evidence, "\nrank %d's own:         ", rank);
        for (int e = 0; e < epoch; e++)
            text_add(&evidence, " %.6f", t->of[rank][e][VAL_LOSS]);
    }
    text_add(&evidence, "\nrates of the epochs:   ");
    for (int e = 0; e <= epoch; e++)
        text_add(&evidence, " %.5g", t->rates[rank][e]);
    return evidence;
}

static bool judge_reductions(const Runs *runs, const Trainings *all, Report *report)
{
    for (const Training *t = all->items; t < all->items + all->count; t++)
        for (int r = 0; r < t->run->ranks; r++) {
            int epoch = first_other(t, &right, r);
            if (epoch >= 0)
                return report_failure(report, REDUCED, diagnose(all, epoch),
                                      evidence_in(runs, t->run, evidence_of(t, r, epoch)));
        }
    return report_ok(report, REDUCED);
}

// ---- Within an epoch, and how many of them there are.

static Fault steadiness_fault(const Run *run)
{
    Fault fault = NO_FAULT;
    for (int r = 0; r < run->ranks && !fault.diagnosis; r++) {
        Rates rates = rates_read(run, r);
        for (int i = 1; i < rates.count && !fault.diagnosis; i++) {
            const RateOfUpdate *update = &rates.items[i];
            if (update->step > 0 && !same_rate(update->learning_rate, update[-1].learning_rate))
                fault = fault_with(&d_reduced_within_an_epoch,
                                   "rank %d: another learning rate, %.5g, from batch %d of epoch "
                                   "%d on",
                                   r, update->learning_rate, update->step + 1, update->epoch + 1);
        }
        free(rates.items);
    }
    return fault;
}

static bool enough_epochs(const Runs *runs, const Trainings *all, Report *report)
{
    for (const Training *t = all->items; t < all->items + all->count; t++)
        if (t->epochs < run_flag(t->run, "--epochs "))
            return report_failure_in(report, runs, t->run, REDUCED, &d_epochs_missing,
                                     "some rank trained %d epochs of %g", t->epochs,
                                     run_flag(t->run, "--epochs "));
    return true;
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, REDUCED, report))
        return;
    Trainings all = read_trainings(runs);
    judge_mean(runs, report);
    if (enough_epochs(runs, &all, report) && judge_property(runs, STEADY, steadiness_fault, report))
        judge_reductions(runs, &all, report);
    free(all.items);
}

// ---- Ranks that come to an update with different rates are ended by the library.

// What the ranks could not agree on becomes the rates of one epoch more. False where they did.
static bool add_disagreement(Training *t)
{
    double rates[MAX_RANKS];
    if (!rates_disagree(t->run, rates))
        return false;
    for (int r = 0; r < t->run->ranks; r++)
        t->rates[r][t->epochs] = rates[r];
    t->epochs++;
    return true;
}

// Whether the ranks disagree by what each sees itself, whatever the rest of the rule.
static bool own_metrics_explain(const Training *t)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        Rule rule = known[i].rule;
        rule.source = OWN;
        if (explains_run(t, &rule))
            return true;
    }
    return false;
}

// Whether the root alone follows the rule, and the rates of all others stay.
static bool root_alone_reduces(const Training *t)
{
    for (int r = 1; r < t->run->ranks; r++)
        if (!same_rate(t->rates[r][t->epochs - 1], t->rates[r][0]))
            return false;
    return first_other(t, &right, 0) < 0;
}

static char *disagreement_evidence(const Training *t)
{
    char *evidence = format_text("own validation losses, epoch by epoch:");
    for (int r = 0; r < t->run->ranks; r++) {
        text_add(&evidence, "\nrank %d:", r);
        for (int e = 0; e < t->epochs - 1; e++)
            text_add(&evidence, " %.6f", t->of[r][e][VAL_LOSS]);
        text_add(&evidence, ", then rate %.5g", t->rates[r][t->epochs - 1]);
    }
    return evidence;
}

static void crashed(const Run *run, Report *report)
{
    Training t = read_training(run);
    if (t.epochs == 0 || !add_disagreement(&t))
        return;
    const Diagnosis *diagnosis = root_alone_reduces(&t)    ? &d_reduced_on_the_root_only
                                 : own_metrics_explain(&t) ? known[0].diagnosis
                                                           : NULL;
    if (diagnosis)
        report_failure(report, REDUCED, diagnosis, evidence_of_run(run, disagreement_evidence(&t)));
}

JUDGE("plateau", judge)
OWN_ENDS("plateau", .crashed = crashed, .rates_differ = &d_rates_differ)
