// The loop of a parameter server: every pull answered at once, every push applied at once, until
// all workers have left, whichever way.

#include "end.h"
#include "pushes.h"
#include "servers.h"
#include "waiting.h"

#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define ANSWERED "every pull is answered at once"

// The worker that this server leaves waiting while it takes another request; -1: there is none.
static int kept_waiting(const Events *events)
{
    int waiting = -1;
    for (int i = 0; i < events->count; i++) {
        const cJSON *event = events->items[i];
        if (event_is(event, "ps_sent") && event_number(event, "worker") == waiting)
            waiting = -1;
        if (!event_is(event, "ps_request"))
            continue;
        if (waiting >= 0)
            return waiting;
        if (strcmp(event_text(event, "kind"), "pull") == 0)
            waiting = event_int(event, "worker");
    }
    return -1;
}

static bool judge_answers(const Runs *runs, Report *report)
{
    static const Diagnosis late = {
        "pull-answered-late",
        "a worker is left waiting while the server does something for others. A server has its "
        "weights at hand, and answers at once.",
        NULL};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        for (int r = run->plan.ranks; r < run->ranks; r++) {
            int worker = kept_waiting(&run->traces.of[r]);
            if (worker < 0)
                continue;
            return report_failure_in(report, runs, run, ANSWERED, &late,
                                     "%s takes worker %d's pull, and another request before it "
                                     "has sent the weights",
                                     process_words(&run->traces, r), worker);
        }
    }
    return report_ok(report, ANSWERED);
}

static void judge(const Runs *runs, Report *report)
{
    judge_answers(runs, report);
    judge_pushes(runs, NULL, report);
    judge_return(runs, report);
}

// ---- Ends.

static Diagnosis mistake(const Traces *traces)
{
    for (int r = traces->workers; r < traces->ranks; r++)
        if (unanswered_worker(traces, r) >= 0)
            return (Diagnosis){"pull-not-answered",
                               "a worker has pulled, and waits for weights that the server "
                               "never sends.",
                               NULL};
    return (Diagnosis){0};
}

static void crashed(const Run *run, Report *report)
{
    static const Diagnosis lost = {
        "lost-worker-awaited",
        "the server waits for a worker that is gone: it was told so by PS_LOST. A worker leaves "
        "once, by PS_DONE or by PS_LOST.",
        NULL};
    static const Diagnosis done = {
        "waits-for-nobody",
        "the server asks for another request when every worker has left already.", NULL};
    if (!output_says(&run->output, "all workers have left"))
        return;
    bool any_lost = false;
    for (int r = run->plan.ranks; r < run->ranks; r++)
        any_lost = any_lost || requests_taken(&run->traces, r, "lost", -1) > 0;
    report_failure(report, "servers end when all workers have left", any_lost ? &lost : &done,
                   evidence_of_run(run, format_text("a server called ps_next after that")));
}

static const Explanation explanations[] = {
    {"has not asked for weights since",
     {"sent-unasked",
      "weights are sent to a worker that has not pulled: request.worker is the worker that has.",
      NULL}},
    {"a request that is no PS_PUSH has none",
     {"applied-without-push", "only a request of the kind PS_PUSH has gradients.", NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations, .mistake = mistake, .crashed = crashed};

JUDGE("server", judge)
ENDS("server", &ends)
