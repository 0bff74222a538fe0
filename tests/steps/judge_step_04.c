// Step 4: before training all ranks have the root's weights, and they keep the same ones. The
// moving statistics may differ: nothing averages them.

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES "every rank trains on batches of its own"
#define SAME    "all ranks train from the same weights"
#define ROOTS   "which are the root's"
#define KEPT    "and have the same ones after every step"

// Fingerprints of each rank's weights at one moment.
typedef struct {
    double of[RANKS];
} Weights;

static Weights weights_at(const Run *run, const char *event, int n)
{
    Weights weights;
    for (int r = 0; r < RANKS; r++)
        weights.of[r] = event_number(event_nth(&run->events[r], event, n), "weights");
    return weights;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * (1 + fabs(a));
}

static bool same(const Weights *weights)
{
    for (int r = 1; r < RANKS; r++)
        if (!near(weights->of[0], weights->of[r]))
            return false;
    return isfinite(weights->of[0]);
}

static int step_count(const Run *run)
{
    int count = event_count(&run->events[0], "step");
    for (int r = 1; r < RANKS; r++) {
        int other = event_count(&run->events[r], "step");
        count = other < count ? other : count;
    }
    return count;
}

static bool same_after_step(const Run *run, int step)
{
    Weights weights = weights_at(run, "step", step);
    // A training that went astray, with no numbers left to compare, is no matter here.
    return same(&weights) || !isfinite(weights.of[0]);
}

// The first step after which all ranks have the same weights for good; -1: there is none.
static int same_from(const Run *run)
{
    int from = -1;
    for (int step = step_count(run) - 1; step >= 0 && same_after_step(run, step); step--)
        from = step;
    return from;
}

// ---- What was sent before the first step.

// True for what carries variables: not the gradients, and more than the agreement on a root.
static bool carries_variables(const cJSON *call)
{
    const double words = 64; // bytes
    const char *name = event_text(call, "name");
    return strcmp(event_text(call, "event"), "collective_begin") == 0 &&
           strcmp(name, "gradients") != 0 && strcmp(name, "metrics") != 0 &&
           event_number(call, "bytes") > words;
}

static bool variables_were_sent(const Run *run)
{
    for (int r = 0; r < RANKS; r++) {
        const Events *events = &run->events[r];
        int first_step = event_find(events, "gradient", 0); // later it may be gradients that travel
        for (int i = event_find(events, "compile", 0); i >= 0 && i < events->count; i++)
            if ((first_step < 0 || i < first_step) && carries_variables(events->items[i]))
                return true;
    }
    return false;
}

// In the first step: there the weights are those that were broadcast.
static bool gradients_are_equal(const Run *run)
{
    double first = event_number(event_nth(&run->events[0], "gradient", 0), "value");
    for (int r = 1; r < RANKS; r++) {
        double other = event_number(event_nth(&run->events[r], "gradient", 0), "value");
        if (!(fabs(other - first) <= 1e-4 * fabs(first)))
            return false;
    }
    return true;
}

// ---- Evidence.

static void add_weights(char **evidence, const char *when, const Weights *weights)
{
    text_add(evidence, "%s%-22s", *evidence ? "\n" : "fingerprints of the weights\n", when);
    for (int r = 0; r < RANKS; r++)
        text_add(evidence, "%s rank %d %.6f", r ? "," : "", r, weights->of[r]);
}

static char *evidence_of(const Run *run, int step)
{
    char *evidence = NULL;
    Weights compiled = weights_at(run, "compile", 0), begin = weights_at(run, "first_batch", 0);
    add_weights(&evidence, "after compile():", &compiled);
    add_weights(&evidence, "at the first batch:", &begin);
    if (step >= 0 && step < step_count(run)) {
        Weights after = weights_at(run, "step", step);
        char *when = format_text("after step %d:", step + 1);
        add_weights(&evidence, when, &after);
        free(when);
    }
    return evidence;
}

// ---- Properties.

// Where the seeds made the weights equal, not a broadcast. False where there is more to judge.
static bool judge_seeds(const Run *run, Report *report)
{
    static const Diagnosis seed = {"seed-instead-of-broadcast",
                                   "the ranks drew the same weights, from the same seed, and "
                                   "nothing was sent. Weights that come from a file, say, would "
                                   "differ again; a broadcast makes them equal wherever they come "
                                   "from.",
                                   0};
    static const Diagnosis seeds_equal = {
        "seeds-equal",
        "all ranks have the same seed, so they train on the same images: 4 times the "
        "work for the result of one. Without set_seed() each rank draws its own.",
        0};
    Weights compiled = weights_at(run, "compile", 0);
    if (same(&compiled) && !variables_were_sent(run)) {
        report_failure(report, SAME, &seed, evidence_of(run, -1));
        return true;
    }
    if (gradients_are_equal(run)) {
        double value = event_number(event_nth(&run->events[0], "gradient", 0), "value");
        report_failure(
            report, BATCHES, &seeds_equal,
            format_text("in the first step all ranks computed the gradient %.5f", value));
        return true;
    }
    report_ok(report, BATCHES);
    return false;
}

static const Diagnosis *different_weights(const Run *run)
{
    static const Diagnosis missing = {
        "broadcast-missing",
        "nothing sent the root's weights to the others: the broadcast is "
        "missing among the callbacks.",
        0};
    static const Diagnosis partly = {"broadcast-one-layer-only",
                                     "something was broadcast, but not all of the weights. A model "
                                     "has as many variables as model_variable_count() says.",
                                     0};
    static const Diagnosis too_late = {
        "broadcast-too-late",
        "the weights are broadcast only after training has begun: the first "
        "gradients were computed with different weights.",
        0};
    if (same_from(run) > 0)
        return &too_late;
    return variables_were_sent(run) ? &partly : &missing;
}

static const Diagnosis *wrong_root(const Weights *compiled, double weights)
{
    static const Diagnosis another = {"broadcast-from-another-rank",
                                      "the weights are those of another rank. The root is rank 0 "
                                      "everywhere in this lab.",
                                      0};
    static const Diagnosis averaged = {
        "weights-averaged",
        "the weights are the mean of all ranks' weights. A mean of random "
        "weights is smaller than they are meant to be: take the root's, by a "
        "broadcast.",
        0};
    double sum = 0;
    for (int r = 0; r < RANKS; r++)
        sum += compiled->of[r];
    return near(sum / RANKS, weights) ? &averaged : &another;
}

static void judge_root(const Run *run, Report *report)
{
    Weights compiled = weights_at(run, "compile", 0), begin = weights_at(run, "first_batch", 0);
    if (near(compiled.of[0], begin.of[0]))
        report_ok(report, ROOTS);
    else
        report_failure(report, ROOTS, wrong_root(&compiled, begin.of[0]), evidence_of(run, -1));
}

static void judge_kept(const Run *run, Report *report)
{
    static const Diagnosis drift = {
        "weights-drift-apart",
        "the ranks begin with the same weights, but make different updates: "
        "the gradients are not averaged. See step 3.",
        3};
    for (int step = 0; step < step_count(run); step++)
        if (!same_after_step(run, step)) {
            report_failure(report, KEPT, &drift, evidence_of(run, step));
            return;
        }
    report_ok(report, KEPT);
}

void judge_step_4(const Run *run, Report *report)
{
    // A broadcast at the beginning of the first epoch, or batch, is in time, too.
    Weights begin = weights_at(run, "first_batch", 0);
    if (judge_seeds(run, report))
        return;
    if (!same(&begin)) {
        int step = same_from(run);
        report_failure(report, SAME, different_weights(run), evidence_of(run, step < 0 ? 0 : step));
        return;
    }
    report_ok(report, SAME);
    judge_root(run, report);
    judge_kept(run, report);
}
