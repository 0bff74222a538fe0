// Requests and updates of parameter servers, in the order in which each server's trace has them.

#include "pushes.h"

#include <math.h>
#include <stdlib.h>
#include "servers.h"
#include "diagnoses/pushes.h"
#include "base/format.h"

bool same_gradients(double a, double b, double scale)
{
    return fabs(a - b) <= 1e-5 * (fabs(b) + scale);
}

static bool is_push(const cJSON *event)
{
    return event_is(event, "ps_request") && event_has(event, "kind", "push");
}

static double value_of(const cJSON *event)
{
    return event_number(event, "value");
}

// ---- What is wrong with a push.

// Where the next request stands, or the end.
static int next_request(const Events *events, int at)
{
    int next = event_find(events, "ps_request", at + 1);
    return next < 0 ? events->count : next;
}

// An update by just these gradients, from place `from` up to `end`; -1: there is none.
static int update_by(const Events *events, double value, int from, int end)
{
    for (int at = from; at < end; at++)
        if (event_is(events->items[at], "ps_applied") &&
            same_gradients(value_of(events->items[at]), value, 0))
            return at;
    return -1;
}

static int updates_between(const Events *events, int from, int end)
{
    int count = 0;
    for (int at = from; at < end; at++)
        count += event_is(events->items[at], "ps_applied");
    return count;
}

// Is the update the sum, or the mean, of some pushes in a row, the last of which stands before it?
static bool is_of_several(const Events *events, int update)
{
    double sum = 0, scale = 0, value = value_of(events->items[update]);
    int count = 0;
    for (int at = update - 1; at >= 0; at--) {
        if (!is_push(events->items[at]))
            continue;
        sum += value_of(events->items[at]);
        scale = fmax(scale, fabs(value_of(events->items[at])));
        if (++count > 1 &&
            (same_gradients(value, sum, scale) || same_gradients(value, sum / count, scale)))
            return true;
    }
    return false;
}

static bool any_update_of_several(const Events *events)
{
    EACH (at, events, "ps_applied")
        if (is_of_several(events, at))
            return true;
    return false;
}

static const Diagnosis *wrong_push(const Events *events, int push)
{
    double value = value_of(events->items[push]);
    int end = next_request(events, push), count = updates_between(events, push, end);
    int first = update_by(events, value, push, end);
    if (count == 1 && first >= 0)
        return NULL;
    if (first >= 0 && update_by(events, value, first + 1, end) >= 0)
        return &d_push_applied_twice;
    if (any_update_of_several(events))
        return &d_pushes_applied_together;
    if (count > 0)
        return &d_other_gradients_applied;
    return update_by(events, value, end, events->count) >= 0 ? &d_push_applied_late
                                                             : &d_push_not_applied;
}

static Fault push_fault(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int number = 0;
    for (int at = 0; at < events->count; at++) {
        if (!is_push(events->items[at]))
            continue;
        number++;
        const Diagnosis *diagnosis = wrong_push(events, at);
        if (!diagnosis)
            continue;
        int end = next_request(events, at), count = updates_between(events, at, end);
        return fault_with(diagnosis,
                          "%s takes push number %d, of worker %.0f, and makes %d update%s before "
                          "it asks for the next request\nin the whole run it takes %d pushes and "
                          "makes %d updates",
                          process_words(&run->traces, rank), number,
                          event_number(events->items[at], "worker"), count, count == 1 ? "" : "s",
                          requests_taken(&run->traces, rank, "push", -1),
                          event_count(events, "ps_applied"));
    }
    return NO_FAULT;
}

Fault pushes_fault(const Run *run)
{
    Fault fault = NO_FAULT;
    for (int r = run->plan.ranks; r < run->ranks && !fault.diagnosis; r++)
        fault = push_fault(run, r);
    return fault;
}

// ---- Ends.

Fault return_fault(const Run *run)
{
    for (int r = run->plan.ranks; r < run->ranks; r++)
        if (event_count(&run->traces.of[r], "ps_stop") == 0)
            return fault_with(&d_ends_in_the_loop, "%s ends without ps_server_stop",
                              process_words(&run->traces, r));
    return NO_FAULT;
}

int unanswered_worker(const Traces *traces, int server_rank)
{
    const Events *events = &traces->of[server_rank];
    for (int w = 0; w < traces->workers; w++) {
        int sent = 0;
        EACH (at, events, "ps_sent")
            sent += event_number(events->items[at], "worker") == w;
        if (requests_taken(traces, server_rank, "pull", w) > sent && !worker_has_left(traces, w))
            return w;
    }
    return -1;
}

// By exit() or the end of main, before the server was stopped; what the library ends has status 2.
static bool ended_itself(const Events *events)
{
    double status = event_number(event_last(events, "end"), "status");
    return event_count(events, "ps_stop") == 0 && (status == 0 || status == 1 || status > 2);
}

bool report_left_early(const Run *run, Report *report)
{
    for (int r = run->plan.ranks; r < run->ranks; r++) {
        int left = requests_taken(&run->traces, r, "done", -1) +
                   requests_taken(&run->traces, r, "lost", -1);
        bool ended = ended_itself(&run->traces.of[r]);
        if ((event_count(&run->traces.of[r], "ps_stop") == 0 && !ended) || left >= run->plan.ranks)
            continue;
        report_failure(
            report, "servers serve until all workers have left", &d_left_too_early,
            evidence_of_run(run,
                            format_text("%s has %s when %d of %d workers had left%s",
                                        process_words(&run->traces, r),
                                        ended ? "ended its program" : "left", left, run->plan.ranks,
                                        requests_taken(&run->traces, r, "lost", -1) > 0
                                            ? ", one of them without a word"
                                            : "")));
        return true;
    }
    return false;
}
