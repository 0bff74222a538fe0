// The loop of a parameter server: every pull answered at once, every push applied at once, until
// all workers have left, whichever way.

#include "end.h"
#include "pushes.h"
#include "servers.h"
#include "diagnoses/judge_server.h"

#include "base/format.h"

#define ANSWERED "every pull is answered at once"

// The worker that this server leaves waiting while it takes another request; -1: there is none.
static int kept_waiting(const Events *events)
{
    int waiting = -1;
    EACH_EVENT (event, events) {
        if (event_is(event, "ps_sent") && event_number(event, "worker") == waiting)
            waiting = -1;
        if (!event_is(event, "ps_request"))
            continue;
        if (waiting >= 0)
            return waiting;
        if (event_has(event, "kind", "pull"))
            waiting = event_int(event, "worker");
    }
    return -1;
}

static Fault server_answers_fault(const Run *run, int rank)
{
    int worker = kept_waiting(&run->traces.of[rank]);
    return worker < 0 ? NO_FAULT
                      : fault_with(&d_pull_answered_late,
                                   "%s takes worker %d's pull, and another request before it has "
                                   "sent the weights",
                                   process_words(&run->traces, rank), worker);
}

static Fault answers_fault(const Run *run)
{
    return each_server(run, server_answers_fault);
}

// ---- Ends.

static const Diagnosis *mistake(const Traces *traces)
{
    for (int r = traces->workers; r < traces->ranks; r++)
        if (unanswered_worker(traces, r) >= 0)
            return &d_pull_not_answered;
    return NULL;
}

static void crashed(const Run *run, Report *report)
{
    if (!output_says(&run->output, "all workers have left"))
        return;
    bool any_lost = false;
    for (int r = run->plan.ranks; r < run->ranks; r++)
        any_lost = any_lost || requests_taken(&run->traces, r, "lost", -1) > 0;
    report_failure(report, "servers end when all workers have left",
                   any_lost ? &d_lost_worker_awaited : &d_waits_for_nobody,
                   evidence_of_run(run, format_text("a server called ps_next after that")));
}

PROPERTIES("server", {ANSWERED, answers_fault}, {EACH_APPLIED, pushes_fault},
           {RETURNS, return_fault})
OWN_ENDS("server", .mistake = mistake, .crashed = crashed,
         EXPLAINED({"has not asked for weights since", &d_sent_unasked},
                   {"a request that is no PS_PUSH has none", &d_applied_without_push}))
