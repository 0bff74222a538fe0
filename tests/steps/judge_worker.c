// A worker: each gradient is that of weights which were pulled from every server since the last
// push, and is pushed to every server, once.

#include "end.h"
#include "pushes.h"
#include "servers.h"
#include "diagnoses/judge_worker.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/format.h"

#define NEWEST "every gradient is that of the newest weights, from every server"
#define PUSHED "every gradient is pushed to every server, once"
#define STEPS  "every worker trains on its shard of the images"

// How many events of that name go to the server, from place `from` up to `end`.
static int to_server(const Events *events, const char *name, int server, int from, int end)
{
    int count = 0;
    for (int at = from; at < end; at++)
        count += event_is(events->items[at], name) &&
                 event_number(events->items[at], "server") == server;
    return count;
}

// The last such event before place `end`; NULL: there is none.
static const cJSON *last_to_server(const Events *events, const char *name, int server, int end)
{
    for (int at = end - 1; at >= 0; at--)
        if (event_is(events->items[at], name) &&
            event_number(events->items[at], "server") == server)
            return events->items[at];
    return NULL;
}

// ---- Weights.

// What the gradient at that place was computed from, if each part was as it was pulled last; NaN:
// some never was.
static double pulled_weights(const Events *events, int servers, int gradient)
{
    double sum = 0;
    for (int s = 0; s < servers; s++)
        sum += event_number(last_to_server(events, "ps_pulled", s, gradient), "weights");
    return sum;
}

// Was a server left out, in the whole trace?
static bool any_never_asked(const Events *events, int servers)
{
    for (int s = 0; s < servers; s++)
        if (to_server(events, "ps_pulled", s, 0, events->count) == 0)
            return true;
    return false;
}

// Was something pulled from each server since the last push to it?
static bool all_are_new(const Events *events, int servers, int gradient)
{
    for (int s = 0; s < servers; s++) {
        int at = gradient;
        while (at > 0 && to_server(events, "ps_push", s, at - 1, at) == 0)
            at--;
        if (to_server(events, "ps_pulled", s, at, gradient) == 0)
            return false;
    }
    return true;
}

static const Diagnosis *wrong_weights(const Events *events, int servers, int gradient)
{
    if (event_count(events, "ps_pulled") == 0)
        return &d_pull_missing;
    if (any_never_asked(events, servers))
        return &d_pull_from_some_servers;
    if (!all_are_new(events, servers, gradient))
        return &d_old_weights;
    double pulled = pulled_weights(events, servers, gradient),
           used = event_number(events->items[gradient], "arena");
    return fabs(used - pulled) <= 1e-9 * (1 + fabs(pulled)) ? NULL
                                                            : &d_weights_changed; // the same bits
}

// A gradient of a worker, with the places of those before and after it.
typedef struct {
    const Events *events;
    int servers, before, at, after;
} Gradient;

static Fault each_gradient(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    for (int r = 0; r < run->plan.ranks; r++) {
        const Events *events = &run->traces.of[r];
        int before = 0, number = 0;
        EACH (at, events, "gradient") {
            int after = event_find(events, "gradient", at + 1);
            Fault found = (*fault)(&(Gradient){events, run->plan.servers, before, at,
                                               after < 0 ? events->count : after});
            number++;
            if (found.diagnosis)
                return fault_at(found, "worker %d, gradient number %d: ", r, number);
            before = at;
        }
    }
    return NO_FAULT;
}

static Fault weights_fault(const void *item)
{
    const Gradient *gradient = item;
    Fault fault = {wrong_weights(gradient->events, gradient->servers, gradient->at), NULL};
    for (int s = 0; s < gradient->servers && fault.diagnosis; s++)
        text_add(&fault.evidence, "%spulled from server %d since the gradient before it: %d times",
                 s ? "\n" : "", s,
                 to_server(gradient->events, "ps_pulled", s, gradient->before, gradient->at));
    return fault;
}

// ---- Gradients.

static Fault pushed_fault(const void *item)
{
    const Gradient *gradient = item;
    const Events *events = gradient->events;
    int least = INT32_MAX, most = 0;
    double sum = 0, value = event_number(events->items[gradient->at], "value");
    bool everywhere = true;
    char *evidence = NULL;
    for (int s = 0; s < gradient->servers; s++) {
        int count = to_server(events, "ps_push", s, gradient->at, gradient->after);
        least = count < least ? count : least;
        most = count > most ? count : most;
        everywhere = everywhere && to_server(events, "ps_push", s, 0, events->count) > 0;
        sum += event_number(last_to_server(events, "ps_push", s, gradient->after), "value");
        text_add(&evidence, "%spushed to server %d before the next one: %d times", s ? "\n" : "", s,
                 count);
    }
    if (event_count(events, "ps_push") == 0)
        return (Fault){&d_push_missing, evidence};
    if (!everywhere)
        return (Fault){&d_push_to_some_servers, evidence};
    if (least == 0)
        return (Fault){&d_gradient_not_pushed, evidence};
    if (most > 1)
        return (Fault){&d_pushed_twice, evidence};
    if (same_gradients(sum, value, fabs(value))) {
        free(evidence);
        return NO_FAULT;
    }
    text_add(&evidence, "\nas fingerprints: computed %.9g, pushed %.9g", value, sum);
    return (Fault){&d_other_gradients_pushed, evidence};
}

// ---- Steps.

// How many gradients that worker's shard of the images makes: the last batch of it may be short.
static int gradients_of_share(const Run *run, int worker)
{
    int images = (int)run_flag(run, "--images "), batch = (int)run_flag(run, "--batch-size "),
        workers = run->plan.ranks, share = (images - worker + workers - 1) / workers;
    return (share + batch - 1) / batch * (int)run_flag(run, "--epochs ");
}

// In every run each worker computes as many gradients of a batch as there are servers, and
// somewhere there are several.
static bool computes_once_a_server(const Runs *runs)
{
    bool several = false;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        several = several || run->plan.servers > 1;
        for (int r = 0; r < run->plan.ranks; r++)
            if (event_count(&run->traces.of[r], "gradient") !=
                gradients_of_share(run, r) * run->plan.servers)
                return false;
    }
    return several;
}

// Reports such a run.
static bool report_once_a_server(const Runs *runs, Report *report)
{
    for (int i = 0; i < runs->count && computes_once_a_server(runs); i++) {
        const Run *run = &runs->items[i];
        if (run->plan.servers < 2)
            continue;
        report_failure_in(report, runs, run, STEPS, &d_batch_computed_again,
                          "worker 0 computed %d gradients of %d batches",
                          event_count(&run->traces.of[0], "gradient"), gradients_of_share(run, 0));
        return true;
    }
    return false;
}

static Fault steps_fault(const Run *run)
{
    for (int r = 0; r < run->plan.ranks; r++) {
        int count = event_count(&run->traces.of[r], "gradient"),
            needed = gradients_of_share(run, r);
        if (count < needed)
            return fault_with(count ? &d_steps_missing : &d_nothing_trained,
                              "worker %d computed %d gradients of %d", r, count, needed);
    }
    return NO_FAULT;
}

static const ItemProperty of_gradients[] = {
    {NEWEST, weights_fault, NULL}, {PUSHED, pushed_fault, NULL}, {0}};

static void judge(const Runs *runs, Report *report)
{
    if (report_once_a_server(runs, report))
        return;
    judge_property(runs, STEPS, steps_fault, report);
    judge_items(runs, each_gradient, of_gradients, report);
}

JUDGE("worker", judge)
OWN_ENDS("worker", EXPLAINED({"ps_push: nothing was pulled from server", &d_push_without_pull},
                             {"ps_pull: there is no server", &d_no_such_server},
                             {"ps_push: there is no server", &d_no_such_server}))
