// A bound on staleness: a worker that is too far ahead waits, and no other; with a bound of 0 each
// round's pushes are held, and their mean is applied once. Every server's trace is gone through
// event by event, with the count of each worker's updates.

#include "end.h"
#include "pushes.h"
#include "servers.h"
#include "diagnoses/judge_bounded.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define BOUND  "no worker gets weights while it is more than the bound ahead"
#define LONGER "no worker waits longer than that"
#define ROUNDS "with a bound of 0 each round is one update, by the mean of its pushes"

// What a server knows of its workers, after the events up to some place.
typedef struct {
    int workers, bound;
    int updates[MAX_RANKS];
    bool waiting[MAX_RANKS], left[MAX_RANKS];
} Standing;

static Standing standing_of(const Run *run)
{
    return (Standing){.workers = run->plan.ranks, .bound = (int)run_flag(run, "--staleness ")};
}

static void take(Standing *standing, const cJSON *event)
{
    int worker = event_int(event, "worker");
    if (worker < 0) // it is about none
        return;
    if (event_is(event, "ps_sent"))
        standing->waiting[worker] = false;
    if (!event_is(event, "ps_request"))
        return;
    standing->waiting[worker] |= event_has(event, "kind", "pull");
    standing->updates[worker] += event_has(event, "kind", "push");
    standing->left[worker] |= event_has(event, "kind", "done") || event_has(event, "kind", "lost");
}

static int slowest(const Standing *standing, bool of_all)
{
    int fewest = INT_MAX;
    for (int w = 0; w < standing->workers; w++)
        if ((of_all || !standing->left[w]) && standing->updates[w] < fewest)
            fewest = standing->updates[w];
    return fewest;
}

static int lead_of(const Standing *standing, int worker)
{
    return standing->updates[worker] - slowest(standing, false);
}

// "updates brought by then: worker 0: 3, worker 1: 1, worker 2: 2 (has left)"
static void add_updates(char **text, const Standing *standing)
{
    text_add(text, "\nupdates brought by then:");
    for (int w = 0; w < standing->workers; w++)
        text_add(text, "%s worker %d: %d%s", w ? "," : "", w, standing->updates[w],
                 standing->left[w] ? " (has left)" : "");
}

// A worker that should have been answered by now, or -1.
static int kept_waiting(const Standing *standing)
{
    for (int w = 0; w < standing->workers; w++)
        if (standing->waiting[w] && !standing->left[w] && lead_of(standing, w) <= standing->bound)
            return w;
    return -1;
}

// ---- The bound.

static char *standing_evidence(const Run *run, int rank, const Standing *standing, int worker,
                               const char *what)
{
    char *evidence =
        format_text("%s %s worker %d, which is %d ahead", process_words(&run->traces, rank), what,
                    worker, lead_of(standing, worker));
    add_updates(&evidence, standing);
    return evidence;
}

// What all servers that break a rule have in common.
typedef struct {
    bool nobody_waits; // no pull waited while another request came
    // A worker that is too far ahead is so by one; or one that waits too long is exactly the bound
    // ahead, and no worker that is (but by 0) gets weights.
    bool by_one;
    bool beside_others; // another one was answered after the last request
} Common;

// What the server with that rank does against the bound; NULL: nothing.
static char *beyond_bound(const Run *run, int rank, Common *common)
{
    const Events *events = &run->traces.of[rank];
    Standing standing = standing_of(run);
    char *evidence = NULL;
    EACH_EVENT (event, events) {
        if (event_is(event, "ps_request"))
            for (int w = 0; w < standing.workers; w++)
                common->nobody_waits = common->nobody_waits && !standing.waiting[w];
        take(&standing, event);
        if (!event_is(event, "ps_sent"))
            continue;
        int worker = event_int(event, "worker"), lead = lead_of(&standing, worker);
        if (lead <= standing.bound || standing.left[worker])
            continue;
        common->by_one = common->by_one && lead == standing.bound + 1;
        if (!evidence)
            evidence = standing_evidence(run, rank, &standing, worker, "sends weights to");
    }
    return evidence;
}

static const Diagnosis *too_far(const Common *common)
{
    return common->nobody_waits ? &d_nobody_waits
           : common->by_one     ? &d_bound_off_by_one_too_far_ahead
                                : &d_bound_exceeded;
}

// A pull that is left unanswered while the next request is taken, although its worker is not too
// far ahead; NULL: there is none.
static char *waits_longer(const Run *run, int rank, Common *common)
{
    const Events *events = &run->traces.of[rank];
    Standing standing = standing_of(run);
    char *evidence = NULL;
    bool answered = false;
    EACH_EVENT (event, events) {
        int before = kept_waiting(&standing);
        if (event_is(event, "ps_request") && before >= 0) {
            common->beside_others = common->beside_others && answered;
            common->by_one = common->by_one && lead_of(&standing, before) == standing.bound;
            if (!evidence)
                evidence = standing_evidence(run, rank, &standing, before,
                                             "takes another request and does not answer");
        }
        answered = event_is(event, "ps_sent") || (answered && !event_is(event, "ps_request"));
        if (event_is(event, "ps_sent") && standing.bound > 0)
            common->by_one =
                common->by_one && lead_of(&standing, event_int(event, "worker")) < standing.bound;
        take(&standing, event);
    }
    return evidence;
}

static const Diagnosis *too_long(const Common *common)
{
    return common->beside_others ? &d_waits_too_long_one_of_several
           : common->by_one      ? &d_bound_off_by_one_waits_already
                                 : &d_waits_too_long;
}

// Looks at all servers, and shows the first one that breaks the rule.
static void judge_servers(const Runs *runs, const char *property,
                          char *(*broken)(const Run *run, int rank, Common *common),
                          const Diagnosis *(*diagnose)(const Common *common), Report *report)
{
    char *first = NULL;
    Common common = {true, true, true};
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = run->plan.ranks; r < run->ranks; r++) {
            char *evidence = broken(run, r, &common);
            if (evidence && !first)
                first = evidence_of_run(run, evidence);
            else
                free(evidence);
        }
    report_property(report, property, diagnose(&common), first);
}

// ---- Rounds.

// The pushes since the last update.
typedef struct {
    int count;
    double sum, scale, last;
    double earlier; // the sums of all rounds before
    double applied; // the update before
} Round;

static const Diagnosis *wrong_round(const Round *round, double value, int workers)
{
    if (round->count == 0)
        return &d_round_applied_twice;
    double scale = round->scale;
    if (same_gradients(value, round->sum / round->count, scale))
        return NULL;
    if (same_gradients(value, round->sum, scale))
        return &d_sum_instead_of_mean;
    if (same_gradients(value, round->sum / workers, scale))
        return &d_mean_of_all_workers;
    if (same_gradients(value, round->last, scale))
        return &d_round_not_held_applied_alone;
    if (same_gradients(value, (round->earlier + round->sum) / round->count, scale) ||
        same_gradients(value, (round->applied + round->sum) / round->count, scale))
        return &d_sum_not_cleared;
    return &d_other_gradients_applied;
}

// Is the round over: has every worker that has not left brought as many updates as rounds?
static bool is_complete(const Standing *standing, int rounds)
{
    return slowest(standing, false) > rounds;
}

static Fault update_fault(const Diagnosis *diagnosis, const Run *run, int rank, const Round *round,
                          int number, const Standing *standing)
{
    Fault fault = fault_with(
        diagnosis, "%s, update number %d, after %d push%s since the one before it",
        process_words(&run->traces, rank), number, round->count, round->count == 1 ? "" : "es");
    add_updates(&fault.evidence, standing);
    return fault;
}

// Of the weights that were sent at that place when a round was complete.
static Fault answered_fault(const Run *run, int rank, int at, int pushes, const Standing *standing)
{
    const Events *events = &run->traces.of[rank];
    int update = event_find(events, "ps_applied", at),
        request = event_find(events, "ps_request", at);
    bool follows = update >= 0 && (request < 0 || update < request);
    Fault fault =
        fault_with(follows ? &d_answered_before_update : &d_answered_before_update_none_follows,
                   "%s has %d push%s not applied, and sends weights to worker %d",
                   process_words(&run->traces, rank), pushes, pushes == 1 ? "" : "es",
                   event_int(events->items[at], "worker"));
    add_updates(&fault.evidence, standing);
    return fault;
}

static Fault round_fault(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    Standing standing = standing_of(run);
    Round round = {0};
    int updates = 0;
    for (int at = 0; at < events->count; at++) {
        const cJSON *event = events->items[at];
        take(&standing, event);
        double value = event_number(event, "value");
        if (event_is(event, "ps_request") && event_has(event, "kind", "push"))
            round = (Round){round.count + 1, round.sum + value, fmax(round.scale, fabs(value)),
                            value,           round.earlier,     round.applied};
        bool complete = is_complete(&standing, updates);
        if (event_is(event, "ps_sent") && round.count > 0 && complete)
            return answered_fault(run, rank, at, round.count, &standing);
        if (!event_is(event, "ps_applied"))
            continue;
        const Diagnosis *wrong = wrong_round(&round, value, standing.workers);
        bool by_itself = wrong && strcmp(wrong->name, d_round_not_held_applied_early.name) == 0;
        if (round.count > 0 && !complete && !by_itself)
            wrong = &d_round_not_held_applied_early;
        if (wrong)
            return update_fault(wrong, run, rank, &round, updates + 1, &standing);
        updates++;
        round = (Round){.earlier = round.earlier + round.sum, .applied = value};
    }
    if (round.count == 0)
        return NO_FAULT;
    bool some_left_before = slowest(&standing, true) <= updates;
    return fault_with(some_left_before ? &d_waits_for_who_has_left_in_a_round
                                       : &d_round_not_applied,
                      "%s ends with %d push%s not applied", process_words(&run->traces, rank),
                      round.count, round.count == 1 ? "" : "es");
}

static bool in_rounds(const Run *run)
{
    return standing_of(run).bound == 0;
}

static Fault rounds_fault(const Run *run)
{
    return in_rounds(run) ? each_server(run, round_fault) : NO_FAULT;
}

// Whether a server of the run has made an update without a worker that had left and brought nothing.
static bool updates_without_leavers(const Run *run)
{
    for (int r = run->plan.ranks; r < run->ranks && in_rounds(run); r++) {
        Standing standing = standing_of(run);
        int updates = 0;
        EACH_EVENT (event, &run->traces.of[r]) {
            take(&standing, event);
            if (!event_is(event, "ps_applied"))
                continue;
            if (is_complete(&standing, updates) && slowest(&standing, true) <= updates)
                return true;
            updates++;
        }
    }
    return false;
}

static void judge_rounds(const Runs *runs, Report *report)
{
    bool without_leavers = false;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        without_leavers = without_leavers || updates_without_leavers(run);
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Fault fault = rounds_fault(run);
        if (fault.diagnosis == &d_waits_for_who_has_left_in_a_round && without_leavers)
            fault.diagnosis = &d_round_not_applied;
        if (!report_fault(report, runs, run, ROUNDS, fault))
            return;
    }
    report_ok(report, ROUNDS);
}

static Fault one_by_one_fault(const Run *run)
{
    return in_rounds(run) ? NO_FAULT : pushes_fault(run);
}

static void judge(const Runs *runs, Report *report)
{
    judge_servers(runs, BOUND, beyond_bound, too_far, report);
    judge_servers(runs, LONGER, waits_longer, too_long, report);
    judge_rounds(runs, report);
    judge_property(runs, EACH_APPLIED, one_by_one_fault, report);
    judge_property(runs, RETURNS, return_fault, report);
}

// ---- Ends.

// For all pushes to a server: which worker waits, and for which.
static const Diagnosis *mistake(const Traces *traces)
{
    for (int r = traces->workers; r < traces->ranks; r++) {
        int waiting = unanswered_worker(traces, r);
        if (waiting < 0)
            continue;
        Standing standing = {.workers = traces->workers};
        EACH_EVENT (event, &traces->of[r])
            take(&standing, event);
        if (standing.updates[waiting] != slowest(&standing, false))
            return &d_pull_not_answered_never_sent;
        bool some_left = slowest(&standing, true) < slowest(&standing, false);
        return some_left ? &d_waits_for_who_has_left_behind_leavers : &d_pull_not_answered_slowest;
    }
    return NULL;
}

JUDGE("bounded", judge)
OWN_ENDS("bounded", .mistake = mistake,
         EXPLAINED({"has not asked for weights since", &d_sent_unasked},
                   {"all workers have left", &d_waits_for_nobody}))
