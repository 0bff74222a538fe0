// Whether every step equals that of an uninterrupted training, the run with as many ranks that is
// not killed and does not come after another: at the same rate, from the same images, to the same
// weights. Which of these differs first names the mistake.

#include "rates.h"
#include "resumed_steps.h"
#include "diagnoses/resumed_steps.h"

#include <string.h>
#include "base/format.h"

#define FALL 0.005 // as the program has it

// The uninterrupted run with as many ranks.
static const Run *whole_run(const Runs *runs, const Run *run)
{
    for (int i = 0; i < runs->count; i++) {
        const Run *other = &runs->items[i];
        if (other->ranks == run->ranks && !other->plan.after && !other->plan.kill)
            return other;
    }
    return NULL;
}

// The place of the event in which that step ends, or -1.
static int find_step(const Events *events, double epoch, double step)
{
    EACH (at, events, "step")
        if (event_number(events->items[at], "epoch") == epoch &&
            event_number(events->items[at], "step") == step)
            return at;
    return -1;
}

const cJSON *event_before(const Events *events, const char *name, int place)
{
    int at = event_find_before(events, name, place);
    return at < 0 ? NULL : events->items[at];
}

// A step that is not the same in both runs.
typedef struct {
    int rank;
    const Events *events, *other; // of the rank in both
    int at, there;                // the step in these
} Difference;

static bool same_state(const cJSON *a, const cJSON *b)
{
    return event_number(a, "weights") == event_number(b, "weights") &&
           event_number(a, "statistics") == event_number(b, "statistics");
}

// The rank's first step that differs; false: none does.
static bool find_difference(const Run *run, const Run *whole, int rank, Difference *d)
{
    *d = (Difference){rank, &run->traces.of[rank], &whole->traces.of[rank], -1, -1};
    EACH (at, d->events, "step") {
        const cJSON *step = d->events->items[at];
        d->at = at;
        d->there = find_step(d->other, event_number(step, "epoch"), event_number(step, "step"));
        if (d->there < 0 || !same_state(step, d->other->items[d->there]))
            return true;
    }
    return false;
}

// What the step was made from, in this run and in the whole one.
static const cJSON *own(const Difference *d, const char *event)
{
    return event_before(d->events, event, d->at);
}

static const cJSON *others(const Difference *d, const char *event)
{
    return event_before(d->other, event, d->there);
}

static bool same_images(const Difference *d)
{
    return strcmp(event_text(own(d, "images"), "drawn"),
                  event_text(others(d, "images"), "drawn")) == 0;
}

static double rate_of(const cJSON *apply)
{
    return event_number(apply, "learning_rate");
}

// The rate is the one that the whole training had as many batches after its beginning as this one
// is after its own.
static bool rate_begins_again(const Difference *d)
{
    int steps = 0;
    EACH (at, d->events, "step")
        steps += at < d->at;
    return same_rate(rate_of(own(d, "apply")), rate_of(event_nth(d->other, "apply", steps)));
}

// The weights, when the training goes on, are those of the step before.
static bool begins_with_the_weights(const Difference *d)
{
    const cJSON *first = event_nth(d->events, "first_batch", 0);
    const cJSON *before = event_before(d->other, "step", d->there);
    return event_number(first, "weights") == event_number(before, "weights");
}

static bool is_first(const Difference *d)
{
    return d->events->items[d->at] == event_nth(d->events, "step", 0);
}

static const Diagnosis *why(const Difference *d)
{
    if (d->there < 0)
        return &d_steps_beyond;
    if (!same_images(d))
        return &d_other_batches;
    if (!same_rate(rate_of(own(d, "apply")), rate_of(others(d, "apply"))))
        return rate_begins_again(d) ? &d_count_lost : &d_other_rate;
    return is_first(d) && !begins_with_the_weights(d) ? &d_other_weights : &d_goes_on_otherwise;
}

static Fault difference_fault(const Difference *d)
{
    const cJSON *step = d->events->items[d->at];
    Fault fault = fault_with(why(d), "rank %d: step %g of epoch %g is another one", d->rank,
                             event_number(step, "step") + 1, event_number(step, "epoch") + 1);
    if (d->there < 0)
        return fault;
    text_add(&fault.evidence,
             "\nimages: %s, where %s come next\nlearning rate: %.6g, where %.6g is next\nweights "
             "after it, as a fingerprint: %.9g, where %.9g is right",
             event_text(own(d, "images"), "drawn"), event_text(others(d, "images"), "drawn"),
             rate_of(own(d, "apply")), rate_of(others(d, "apply")), event_number(step, "weights"),
             event_number(d->other->items[d->there], "weights"));
    return fault;
}

Fault resumed_steps_fault(const Runs *runs, const Run *run)
{
    const Run *whole = whole_run(runs, run);
    for (int r = 0; whole && whole != run && r < run->ranks; r++) {
        Difference d;
        if (find_difference(run, whole, r, &d))
            return difference_fault(&d);
        const cJSON *last = event_last(d.events, "step"), *right = event_last(d.other, "step");
        double epoch = event_number(last, "epoch"), step = event_number(last, "step");
        if (last && !run->killed &&
            (epoch != event_number(right, "epoch") || step != event_number(right, "step")))
            return fault_with(&d_steps_missing, "rank %d ends after step %g of epoch %g", r,
                              step + 1, epoch + 1);
    }
    return NO_FAULT;
}

// The rate of an uninterrupted training.
Fault resumed_rates_fault(const Runs *runs, const Run *run)
{
    (void)runs;
    for (int r = 0; r < run->ranks && !run->plan.after; r++) {
        int batch = 0;
        EACH (at, &run->traces.of[r], "apply") {
            double rate = rate_of(run->traces.of[r].items[at]);
            double right = run_flag(run, "--base-lr ") / (1 + FALL * batch++);
            if (!same_rate(rate, right))
                return fault_with(&d_rate_changed,
                                  "rank %d, batch %d of the training: learning rate %.6g, where "
                                  "%.6g is right",
                                  r, batch, rate, right);
        }
    }
    return NO_FAULT;
}
