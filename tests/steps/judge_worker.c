// A worker: each gradient is that of weights which were pulled from every server since the last
// push, and is pushed to every server, once.

#include "end.h"
#include "pushes.h"
#include "diagnoses/judge_worker.h"

#include <math.h>
#include <stdlib.h>
#include "base/format.h"

#define NEWEST "every gradient is that of the newest weights, from every server"
#define WAITS  "a worker does not wait for others: it pulls, and computes with what it gets"
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

// The place of the last such event before place `end`; -1: there is none.
static int last_to_server(const Events *events, const char *name, int server, int end)
{
    int at = event_find_before(events, name, end);
    while (at >= 0 && event_number(events->items[at], "server") != server)
        at = event_find_before(events, name, at);
    return at;
}

// The sum of a number of the last such event of each server; not a number where one has none.
static double sum_of_last(const Events *events, const char *name, int servers, int end,
                          const char *field)
{
    double sum = 0;
    for (int s = 0; s < servers; s++) {
        int at = last_to_server(events, name, s, end);
        sum += event_number(at < 0 ? NULL : events->items[at], field);
    }
    return sum;
}

static bool has_for_each(const Events *events, const char *name, int servers)
{
    for (int s = 0; s < servers; s++)
        if (last_to_server(events, name, s, events->count) < 0)
            return false;
    return true;
}

// ---- Weights.

// Was something pulled from each server since the last push to it?
static bool all_are_new(const Events *events, int servers, int gradient)
{
    for (int s = 0; s < servers; s++)
        if (last_to_server(events, "ps_pulled", s, gradient) <=
            last_to_server(events, "ps_push", s, gradient))
            return false;
    return true;
}

static const Diagnosis *wrong_weights(const Events *events, int servers, int gradient)
{
    if (event_count(events, "ps_pulled") == 0)
        return &d_pull_missing;
    if (!has_for_each(events, "ps_pulled", servers))
        return &d_pull_from_some_servers;
    if (!all_are_new(events, servers, gradient))
        return &d_old_weights;
    double pulled = sum_of_last(events, "ps_pulled", servers, gradient, "weights"),
           used = event_number(events->items[gradient], "arena");
    return fabs(used - pulled) <= 1e-9 * (1 + fabs(pulled)) ? NULL
                                                            : &d_weights_changed; // the same bits
}

// A gradient of a worker, with the places of those before and after it.
typedef struct {
    const Events *events;
    int workers, servers, before, at, after;
} Gradient;

static Fault each_gradient(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    for (int r = 0; r < run->plan.ranks; r++) {
        const Events *events = &run->traces.of[r];
        int before = 0, number = 0;
        EACH (at, events, "gradient") {
            int after = event_find(events, "gradient", at + 1);
            Fault found = (*fault)(&(Gradient){events, run->plan.ranks, run->plan.servers, before,
                                               at, after < 0 ? events->count : after});
            number++;
            if (found.diagnosis)
                return fault_at(found, "worker %d, gradient number %d: ", r, number);
            before = at;
        }
    }
    return NO_FAULT;
}

// Since the gradient before it, the last push to that server came after the last pull from it.
static bool pulled_before_push(const Gradient *gradient, int server)
{
    int pulled = last_to_server(gradient->events, "ps_pulled", server, gradient->at),
        pushed = last_to_server(gradient->events, "ps_push", server, gradient->at);
    return pulled > gradient->before && pushed > pulled;
}

static Fault weights_fault(const void *item)
{
    const Gradient *gradient = item;
    Fault fault = {wrong_weights(gradient->events, gradient->servers, gradient->at), NULL};
    for (int s = 0; s < gradient->servers && fault.diagnosis; s++)
        text_add(&fault.evidence,
                 "%spulled from server %d since the gradient before it: %d times%s", s ? "\n" : "",
                 s, to_server(gradient->events, "ps_pulled", s, gradient->before, gradient->at),
                 pulled_before_push(gradient, s) ? ", before the last push to it" : "");
    return fault;
}

// Pulls after each push are for nothing; who pulls again and again waits for newer weights.
static Fault waits_fault(const void *item)
{
    const Gradient *gradient = item;
    const int most = gradient->servers + 2;
    for (int s = 0; s < gradient->servers; s++) {
        int pulls = to_server(gradient->events, "ps_pulled", s, gradient->before, gradient->at);
        if (pulls > most)
            return fault_with(&d_pulls_until_newer,
                              "pulled from server %d since the gradient before it: %d times", s,
                              pulls);
    }
    return NO_FAULT;
}

// ---- Gradients.

static Fault pushed_fault(const void *item)
{
    const Gradient *gradient = item;
    const Events *events = gradient->events;
    bool some_lacks = false, some_has_more = false;
    char *evidence = NULL;
    for (int s = 0; s < gradient->servers; s++) {
        int count = to_server(events, "ps_push", s, gradient->at, gradient->after);
        some_lacks = some_lacks || count == 0;
        some_has_more = some_has_more || count > 1;
        text_add(&evidence, "%spushed to server %d before the next one: %d times", s ? "\n" : "", s,
                 count);
    }
    if (event_count(events, "ps_push") == 0)
        return (Fault){&d_push_missing, evidence};
    if (!has_for_each(events, "ps_push", gradient->servers))
        return (Fault){&d_push_to_some_servers, evidence};
    if (some_lacks) {
        int answers = event_find(events, "answers", gradient->at);
        if (answers >= 0 && answers < gradient->after)
            text_add(&evidence, "\nits batch has %.0f images",
                     event_number(events->items[answers], "images"));
        return (Fault){&d_gradient_not_pushed, evidence};
    }
    if (some_has_more)
        return (Fault){&d_pushed_twice, evidence};
    double value = event_number(events->items[gradient->at], "value"),
           sum = sum_of_last(events, "ps_push", gradient->servers, gradient->after, "value");
    if (same_gradients(sum, value, fabs(value))) {
        free(evidence);
        return NO_FAULT;
    }
    text_add(&evidence, "\nas fingerprints: computed %.9g, pushed %.9g", value, sum);
    bool divided =
        gradient->workers > 1 && same_gradients(sum * gradient->workers, value, fabs(value));
    return (Fault){divided ? &d_other_gradients_pushed_divided : &d_other_gradients_pushed,
                   evidence};
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
// somewhere there are several. The first such run; NULL: it is not so.
static const Run *computed_once_a_server(const Runs *runs)
{
    const Run *first = NULL;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        for (int r = 0; r < run->plan.ranks; r++)
            if (event_count(&run->traces.of[r], "gradient") !=
                gradients_of_share(run, r) * run->plan.servers)
                return NULL;
        if (!first && run->plan.servers > 1)
            first = run;
    }
    return first;
}

static Fault steps_fault(const Run *run)
{
    for (int r = 0; r < run->plan.ranks; r++) {
        int count = event_count(&run->traces.of[r], "gradient"),
            needed = gradients_of_share(run, r);
        if (count < needed)
            return fault_with(&d_steps_missing, "worker %d computed %d gradients of %d", r, count,
                              needed);
    }
    return NO_FAULT;
}

static const ItemProperty of_gradients[] = {
    {NEWEST, weights_fault, NULL}, {WAITS, waits_fault, NEWEST}, {PUSHED, pushed_fault, NULL}, {0}};

static void judge(const Runs *runs, Report *report)
{
    const Run *again = computed_once_a_server(runs);
    if (again) {
        report_failure_in(report, runs, again, STEPS, &d_batch_computed_again,
                          "worker 0 computed %d gradients of %d batches",
                          event_count(&again->traces.of[0], "gradient"),
                          gradients_of_share(again, 0));
        return;
    }
    judge_property(runs, STEPS, steps_fault, report);
    judge_items(runs, each_gradient, of_gradients, report);
}

JUDGE("worker", judge)
OWN_ENDS("worker", EXPLAINED({"ps_push: nothing was pulled from server", &d_push_without_pull},
                             {"ps_pull: there is no server", &d_no_such_server},
                             {"ps_push: there is no server", &d_no_such_server}))
