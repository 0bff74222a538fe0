// Requests and updates of parameter servers, in the order in which each server's trace has them.

#include "pushes.h"

#include <math.h>
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

// An update by just these gradients, from place `from` up to `end`; -1: there is none.
static int update_by(const Events *events, double value, int from, int end)
{
    for (int at = from; at < end; at++)
        if (event_is(events->items[at], "ps_applied") &&
            same_gradients(value_of(events->items[at]), value, 0))
            return at;
    return -1;
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

// What is wrong with the push at that place, after which a server made so many updates before the next
// request; NULL: nothing.
static const Diagnosis *wrong_push(const Events *events, int push, int end, int count)
{
    double value = value_of(events->items[push]);
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

static Fault server_pushes_fault(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int number = 0;
    EACH (at, events, "ps_request") {
        if (!is_push(events->items[at]))
            continue;
        int end = event_find(events, "ps_request", at + 1), count = 0;
        end = end < 0 ? events->count : end;
        for (int next = at; (next = event_find(events, "ps_applied", next + 1)) >= 0;)
            count += next < end;
        const Diagnosis *diagnosis = wrong_push(events, at, end, count);
        number++;
        if (diagnosis)
            return fault_with(diagnosis,
                              "%s takes push number %d, of worker %.0f, and makes %d update%s "
                              "before it asks for the next request\nin the whole run it takes %d "
                              "pushes and makes %d updates",
                              process_words(&run->traces, rank), number,
                              event_number(events->items[at], "worker"), count,
                              count == 1 ? "" : "s", requests_taken(&run->traces, rank, "push", -1),
                              event_count(events, "ps_applied"));
    }
    return NO_FAULT;
}

Fault each_server(const Run *run, Fault (*fault)(const Run *run, int rank))
{
    Fault found = NO_FAULT;
    for (int r = run->plan.ranks; r < run->ranks && !found.diagnosis; r++)
        found = fault(run, r);
    return found;
}

Fault pushes_fault(const Run *run)
{
    return each_server(run, server_pushes_fault);
}

// ---- Ends.

static Fault server_return_fault(const Run *run, int rank)
{
    return event_count(&run->traces.of[rank], "ps_stop") > 0
               ? NO_FAULT
               : fault_with(&d_ends_in_the_loop, "%s ends without ps_server_stop",
                            process_words(&run->traces, rank));
}

Fault return_fault(const Run *run)
{
    return each_server(run, server_return_fault);
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
        int lost = requests_taken(&run->traces, r, "lost", -1);
        int left = lost + requests_taken(&run->traces, r, "done", -1);
        bool ended = ended_itself(&run->traces.of[r]);
        if ((event_count(&run->traces.of[r], "ps_stop") == 0 && !ended) || left >= run->plan.ranks)
            continue;
        char *evidence =
            format_text("%s has %s when %d of %d workers had left%s",
                        process_words(&run->traces, r), ended ? "ended its program" : "left", left,
                        run->plan.ranks, lost > 0 ? ", one of them without a word" : "");
        report_failure(report, "servers serve until all workers have left", &d_left_too_early,
                       evidence_of_run(run, evidence));
        return true;
    }
    return false;
}
