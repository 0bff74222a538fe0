// Tensor: each worker has a part of the two wide layers, and every batch has the loss that the
// undivided network has, which one worker alone computes.

#include "divided.h"
#include "judge.h"
#include "diagnoses/judge_tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIVIDED "each worker has an equal part of the wide layers"
#define START   "the workers' parts are together the undivided weights, and so is what they compute"
#define TRAINED "the divided model is the one that is trained"
#define UPDATES "after each update, too, they compute what the undivided network computes"

static bool judge_divided(const Runs *runs, Report *report)
{
    const Run *one = undivided_run(runs);
    if (!one)
        return true;
    bool all_whole = true, all_local = true;
    const Run *other = NULL;
    int other_rank = 0;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++) {
            all_whole = all_whole && has_units(run, r, one, 1);
            all_local = all_local && has_units(run, r, one, run_local_size(run, r));
            if (other || has_units(run, r, one, run->ranks))
                continue;
            other = run;
            other_rank = r;
        }
    if (!other)
        return report_ok(report, DIVIDED);
    char *text = units_text(trained_model(other, other_rank));
    char *expected = units_text(undivided_model(one));
    report_failure_in(report, runs, other, DIVIDED,
                      all_whole   ? &d_not_divided
                      : all_local ? &d_divided_by_local_size
                                  : &d_units_wrong,
                      "rank %d of %d has dense layers of %s units\nthe undivided network has %s",
                      other_rank, other->ranks, text, expected);
    free(text);
    free(expected);
    return false;
}

// ---- The losses.

// The first rank whose loss of batch n is not the undivided network's, or -1.
static int first_other_loss(const Run *run, const Run *one, int n)
{
    double expected = loss_of(one, 0, n);
    for (int r = 0; r < run->ranks; r++)
        if (!(fabs(loss_of(run, r, n) - expected) <= TOLERANCE * expected))
            return r;
    return -1;
}

// ---- What the custom layers of a batch did.

typedef struct {
    bool there;         // a layer of that length was called for the pass
    bool exchanged;     // on every rank that has it
    double before, sum; // over the ranks: before, and in the end on the root
    double size;        // over the ranks: the absolute values before
    bool equal;         // before, on all ranks
} Passed;

// The events of the layers of batch n are the last ones before the batch's "answers".
static Passed custom(const Run *run, int n, const char *pass, int length)
{
    Passed all = {.exchanged = true, .equal = true};
    double first = 0;
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        const cJSON *before = n > 0 ? trained_batch(events, n - 1) : NULL;
        const cJSON *end = trained_batch(events, n);
        bool inside = false, exchanged = false;
        int i = 0;
        while (before && i < events->count && events->items[i] != before)
            i++;
        for (; i < events->count && events->items[i] != end; i++) {
            const cJSON *event = events->items[i];
            bool its = event_has(event, "pass", pass) && event_int(event, "length") == length;
            if (event_is(event, "custom_begin") && its) {
                double sum = event_number(event, "sum");
                first = r == 0 ? sum : first;
                all.equal = all.equal && sum == first;
                all.before += sum;
                all.size += fabs(sum);
                inside = all.there = true;
            } else if (event_is(event, "custom_end") && its) {
                all.sum = r == 0 ? event_number(event, "sum") : all.sum;
                inside = false;
            } else if (inside && event_bytes(event) > 64) {
                exchanged = true;
            }
        }
        all.exchanged = all.exchanged && exchanged;
    }
    return all;
}

// True where a custom layer of the outputs' length reads what a relu gives.
static bool relu_before_sum(const Run *run)
{
    const char *model = trained_model(run, 0);
    for (const char *at = model; (at = strstr(at, ": custom_layer of layer ")) != NULL;) {
        int read = 0, length = 0;
        sscanf(at, ": custom_layer of layer %d, 1x1x%d", &read, &length);
        char *layer = format_text("layer %d: relu ", read);
        bool relu = length == output_length(run) && strstr(model, layer);
        free(layer);
        if (relu)
            return true;
        at++;
    }
    return false;
}

static bool near(double a, double b, double scale)
{
    return fabs(a - b) <= TOLERANCE * fmax(scale, 1e-6);
}

static const Diagnosis *wrong_start(const Run *run)
{
    Passed out = custom(run, 0, "forward", output_length(run));
    if (custom(run, 0, "forward", input_length(run)).exchanged)
        return &d_inputs_added;
    if (!out.there || !out.exchanged)
        return &d_outputs_not_added;
    if (out.equal)
        return &d_same_part_on_all;
    if (near(out.sum * run->ranks, out.before, fabs(out.before)))
        return &d_outputs_averaged;
    if (!near(out.sum, out.before, out.size))
        return &d_outputs_not_the_sum;
    return relu_before_sum(run) ? &d_summed_after_relu : &d_parts_wrong;
}

static const Diagnosis *wrong_update(const Run *run, const Run *one, int n)
{
    if (other_optimizer(run, one))
        return &d_optimizer_changed;
    Passed in = custom(run, n - 1, "backward", input_length(run));
    if (custom(run, n - 1, "backward", output_length(run)).exchanged)
        return &d_output_gradient_added;
    if (!in.there || !in.exchanged)
        return &d_input_gradient_not_added;
    if (near(in.sum * run->ranks, in.before, fabs(in.before)) && fabs(in.before) > 1e-6)
        return &d_input_gradient_averaged;
    return near(in.sum, in.before, in.size) ? &d_updates_differ : &d_input_gradient_not_the_sum;
}

static bool judge_losses(const Runs *runs, const Run *one, bool start, Report *report)
{
    const char *property = start ? START : UPDATES;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int n = start ? 0 : 1; run != one && trained_batch(&one->traces.of[0], n); n++) {
            int r = first_other_loss(run, one, n);
            if (r >= 0)
                return report_failure_in(report, runs, run, property,
                                         start ? wrong_start(run) : wrong_update(run, one, n),
                                         "the loss of batch %d is %.6f on rank %d of %d\nthe "
                                         "undivided network's is %.6f",
                                         n + 1, loss_of(run, r, n), r, run->ranks,
                                         loss_of(one, 0, n));
            if (start)
                break;
        }
    return report_ok(report, property);
}

// The first batch on which a rank trained a model without the layers that add up; -1: there is
// none.
static int undivided_batch(const Events *events)
{
    bool adds = false;
    int batch = 0;
    EACH_EVENT (event, events) {
        adds = adds || event_is(event, "custom_begin");
        if (!event_is(event, "answers"))
            continue;
        if (event_number(event, "training") > 0 && !adds)
            return batch;
        batch += event_number(event, "training") > 0;
        adds = false;
    }
    return -1;
}

// Right losses, of a model that is not divided.
static Fault trained_fault(const Run *run)
{
    for (int r = 0; run->ranks > 1 && r < run->ranks; r++) {
        int batch = undivided_batch(&run->traces.of[r]);
        if (batch >= 0)
            return fault_with(&d_divided_not_trained,
                              "rank %d of %d: batch %d goes through no custom layer", r, run->ranks,
                              batch + 1);
    }
    return NO_FAULT;
}

static void judge(const Runs *runs, Report *report)
{
    if (none_computed(runs, DIVIDED, report))
        return;
    const Run *one = undivided_run(runs);
    if (!judge_divided(runs, report) || !one || runs->count == 1)
        return;
    if (judge_losses(runs, one, true, report) && judge_losses(runs, one, false, report))
        judge_property(runs, TRAINED, trained_fault, report);
}

JUDGE("tensor", judge)
