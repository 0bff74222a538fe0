// Step 4: before training all ranks have the root's weights, and they keep the same ones. The
// moving statistics may differ: nothing averages them.

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "drawn.h"
#include "six_steps.h"
#include "diagnoses/judge_step_04.h"

#define BATCHES "every rank trains on batches of its own"
#define SAME    "all ranks train from the same weights"
#define SENT    "the root's weights are sent to all ranks"
#define ROOTS   "which are the root's"
#define KEPT    "and have the same ones after every step"

// Fingerprints of each rank's weights at one moment.
typedef struct {
    double of[MAX_RANKS];
} Weights;

static Weights weights_at(const Run *run, const char *event, int n)
{
    Weights weights = {0};
    for (int r = 0; r < run->ranks; r++)
        weights.of[r] = event_number(event_nth(&run->traces.of[r], event, n), "weights");
    return weights;
}

// The place of the last compile() before fit(): that of the model that trains; -1: none.
static int last_compile(const Events *events)
{
    int fit = event_find(events, "fit", 0);
    return event_find_before(events, "compile", fit < 0 ? events->count : fit);
}

static Weights compiled_weights(const Run *run)
{
    Weights weights = {0};
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        int at = last_compile(events);
        weights.of[r] = event_number(at < 0 ? NULL : events->items[at], "weights");
    }
    return weights;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * (1 + fabs(a));
}

static bool same(const Run *run, const Weights *weights)
{
    for (int r = 1; r < run->ranks; r++)
        if (!near(weights->of[0], weights->of[r]))
            return false;
    return isfinite(weights->of[0]);
}

static bool same_after_step(const Run *run, int step)
{
    Weights weights = weights_at(run, "step", step);
    // A training that went astray, with no numbers left to compare, is no matter here.
    return same(run, &weights) || !isfinite(weights.of[0]);
}

// The first step after which all ranks have the same weights until the end; -1: there is none.
static int same_from(const Run *run)
{
    int from = -1;
    for (int step = run_min_events(run, "step") - 1; step >= 0 && same_after_step(run, step);
         step--)
        from = step;
    return from;
}

// ---- What was sent before the first step.

// True for what carries variables: not the gradients, and more than the agreement on a root.
static bool carries_variables(const cJSON *call)
{
    const double words = 64; // bytes
    const char *name = event_text(call, "name");
    return (event_is(call, "collective_begin") || event_is(call, "message_begin")) &&
           strcmp(name, "gradients") != 0 && strcmp(name, "metrics") != 0 &&
           event_number(call, "bytes") > words;
}

// On some rank, between the first or the last compile() and the first step: later it may be gradients
// that travel.
static bool sent_since(const Run *run, bool last)
{
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        int first_step = event_find(events, "gradient", 0);
        int end = first_step < 0 ? events->count : first_step;
        for (int i = last ? last_compile(events) : event_find(events, "compile", 0);
             i >= 0 && i < end; i++)
            if (carries_variables(events->items[i]))
                return true;
    }
    return false;
}

static bool variables_were_sent(const Run *run)
{
    return sent_since(run, false);
}

// After the training.
static bool broadcast_afterwards(const Run *run)
{
    const Events *events = &run->traces.of[0];
    int end = event_find(events, "fit_end", 0);
    return end >= 0 && event_find(events, "broadcast", end) >= 0;
}

// ---- Evidence.

static void add_weights(const Run *run, char **evidence, const char *when, const Weights *weights)
{
    text_add(evidence, "%s%-26s", *evidence ? "\n" : "fingerprints of the weights\n", when);
    for (int r = 0; r < run->ranks; r++)
        text_add(evidence, "%s rank %d %.6f", r ? "," : "", r, weights->of[r]);
}

static char *evidence_of(const Run *run, int step)
{
    char *evidence = NULL;
    Weights compiled = compiled_weights(run), begin = weights_at(run, "first_batch", 0);
    add_weights(run, &evidence, "after compile():", &compiled);
    add_weights(run, &evidence, "at the first batch:", &begin);
    if (step >= 0 && step < run_min_events(run, "step")) {
        Weights after = weights_at(run, "step", step);
        const cJSON *event = event_nth(&run->traces.of[0], "step", step);
        char *when = format_text("after step %.0f of epoch %.0f:", event_number(event, "step") + 1,
                                 event_number(event, "epoch") + 1);
        add_weights(run, &evidence, when, &after);
        free(when);
    }
    return evidence;
}

// ---- Properties.

// Where the seeds made the weights equal, not a broadcast. False where there is more to judge.
static bool judge_seeds(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Weights compiled = compiled_weights(run);
        if (!same(run, &compiled) || variables_were_sent(run))
            continue;
        report_failure(report, SENT, &d_seed_instead_of_broadcast,
                       evidence_in(runs, run, evidence_of(run, -1)));
        judge_drawn_images(runs, BATCHES, report);
        return true;
    }
    return !judge_drawn_images(runs, BATCHES, report);
}

// At the first batch, on each machine with several ranks; false where there is none.
static bool same_within_machines(const Run *run)
{
    Weights begin = weights_at(run, "first_batch", 0);
    int pairs = 0, equal = 0;
    for (int a = 0; a < run->ranks; a++)
        for (int b = a + 1; b < run->ranks; b++) {
            pairs += same_host(run, a, b);
            equal += same_host(run, a, b) && near(begin.of[a], begin.of[b]);
        }
    return pairs > 0 && equal == pairs;
}

static bool changed_since_compile(const Run *run)
{
    Weights compiled = compiled_weights(run), begin = weights_at(run, "first_batch", 0);
    for (int r = 0; r < run->ranks; r++)
        if (!near(compiled.of[r], begin.of[r]))
            return true;
    return false;
}

// Something was sent before training, and yet the weights differ.
static const Diagnosis *sent_without_effect(const Run *run)
{
    if (!sent_since(run, true))
        return &d_broadcast_of_another_model;
    return changed_since_compile(run) ? &d_broadcast_incomplete : &d_broadcast_without_effect;
}

// Another rank has the weights that the root's compile() made; the weights differ.
static bool sent_to_some(const Run *run)
{
    Weights compiled = compiled_weights(run), begin = weights_at(run, "first_batch", 0);
    for (int r = 1; r < run->ranks; r++)
        if (near(compiled.of[0], begin.of[r]) && !near(compiled.of[0], compiled.of[r]))
            return true;
    return false;
}

static const Diagnosis *different_weights(const Run *run)
{
    if (same_from(run) > 0 || (!variables_were_sent(run) && broadcast_afterwards(run)))
        return &d_broadcast_too_late;
    if (same_within_machines(run))
        return &d_broadcast_within_machine;
    if (sent_to_some(run))
        return &d_broadcast_incomplete_some_ranks;
    return variables_were_sent(run) ? sent_without_effect(run) : &d_broadcast_missing;
}

static const Diagnosis *wrong_root(const Run *run, const Weights *compiled, double weights)
{
    double sum = 0;
    for (int r = 0; r < run->ranks; r++)
        sum += compiled->of[r];
    if (near(sum / run->ranks, weights))
        return &d_weights_averaged;
    for (int r = 1; r < run->ranks; r++)
        if (near(compiled->of[r], weights))
            return &d_broadcast_from_another_rank;
    return &d_weights_of_no_rank;
}

static Fault same_fault(const Run *run)
{
    // A broadcast at the beginning of the first epoch, or batch, is in time, too.
    Weights begin = weights_at(run, "first_batch", 0);
    int from = same_from(run);
    return same(run, &begin)
               ? NO_FAULT
               : (Fault){different_weights(run), evidence_of(run, from < 0 ? 0 : from)};
}

static Fault root_fault(const Run *run)
{
    Weights compiled = compiled_weights(run), begin = weights_at(run, "first_batch", 0);
    return near(compiled.of[0], begin.of[0])
               ? NO_FAULT
               : (Fault){wrong_root(run, &compiled, begin.of[0]), evidence_of(run, -1)};
}

static Fault kept_fault(const Run *run)
{
    for (int step = 0; step < run_min_events(run, "step"); step++)
        if (!same_after_step(run, step))
            return (Fault){&d_weights_drift_apart, evidence_of(run, step)};
    return NO_FAULT;
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, SAME, report) || judge_seeds(runs, report))
        return;
    if (judge_property(runs, SAME, same_fault, report)) {
        judge_property(runs, ROOTS, root_fault, report);
        judge_property(runs, KEPT, kept_fault, report);
    }
}

JUDGE("step_04", judge)
ENDS("step_04", &six_steps)
