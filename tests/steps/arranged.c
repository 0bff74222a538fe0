// A rank that was to be killed, a save that was to fail, a worker that was to be slow: where it did
// not happen, the run shows nothing of what it was made for.

#include "arranged.h"

#include <math.h>
#include "diagnoses/arranged.h"
#include "base/format.h"

#define ARRANGED "what the check arranges takes place"

// What is said where it did not; NULL: it did. The caller frees it.
static char *missing_kill(const Run *run)
{
    return run->plan.kill && !run->killed
               ? format_text("rank and event of the kill: %s; no rank ended by it", run->plan.kill)
               : NULL;
}

static int calls_of(const Events *events, const char *function)
{
    int count = 0;
    EACH (at, events, "call")
        count += event_has(events->items[at], "function", function);
    return count;
}

// A call of write_checkpoint whose file was written leaves an event "saved".
bool save_failed(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        if (calls_of(events, "write_checkpoint") > event_count(events, "saved"))
            return true;
    }
    return false;
}

static char *missing_fault(const Run *run)
{
    return run->plan.full && !save_failed(run)
               ? format_text("the disk was to be full in call %s of write_checkpoint; no "
                             "call failed",
                             run->plan.full)
               : NULL;
}

// The shortest time from a worker's batch to the push of its gradients, in milliseconds; infinite:
// there is none.
static double shortest_batch(const Events *events)
{
    double shortest = INFINITY, taken = NAN, begin = NAN;
    for (int i = 0; i < events->count; i++) {
        if (event_is(events->items[i], "images"))
            taken = event_number(events->items[i], "t");
        else if (event_is(events->items[i], "gradient"))
            begin = taken; // the next batch may be taken before the push
        else if (event_is(events->items[i], "ps_push"))
            shortest = fmin(shortest, // fmin leaves a NaN out
                            1e3 * (event_number(events->items[i], "t") - begin));
    }
    return shortest;
}

static char *missing_pace(const Run *run)
{
    const char *at = run->plan.paces;
    for (int w = 0, pace; at && w < run->plan.ranks && (pace = next_listed(&at)) >= 0; w++) {
        double shortest = shortest_batch(&run->traces.of[w]);
        if (shortest < 0.9 * pace)
            return format_text("worker %d was to take %d milliseconds for a batch, and took %.0f",
                               w, pace, shortest);
    }
    return NULL;
}

void judge_arranged(const Runs *runs, Report *report)
{
    bool any = false;
    for (const Run *run = runs->items; run < runs_end(runs) && report_passed(report); run++) {
        char *missing = missing_kill(run);
        missing = missing ? missing : missing_fault(run);
        missing = missing ? missing : missing_pace(run);
        any = any || run->plan.kill || run->plan.full || run->plan.paces;
        if (missing)
            report_failure(report, ARRANGED, &d_not_as_arranged, evidence_of_run(run, missing));
    }
    if (any && report_passed(report) && runs->all)
        report_ok(report, ARRANGED);
}
