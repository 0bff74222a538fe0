// Reads the calls of an all-reduce, and judges what it is to training; sums.h says what is
// promised.

#include "sums.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "waiting.h"
#include "diagnoses/sums.h"
#include "base/memory.h"
#include "base/format.h"

#define IN_USE "the optimizer adds the gradients up by it, and all ranks keep the same weights"

// ---- Reading the calls.

static void read_message(SumCall *call, int rank, const cJSON *event)
{
    double to = event_number(event, "to"), from = event_number(event, "from");
    call->from_any |= from < 0 ? 1u << rank : 0;
    call->from_named |= from >= 0 ? 1u << rank : 0;
    if (!(to >= 0 && to < call->run->ranks))
        return;
    call->sent[rank][(int)to] += event_number(event, "bytes");
    call->messages[rank]++;
    call->on_world = call->on_world || event_has(event, "name", "MPI_COMM_WORLD");
}

static void read_collective(SumCall *call, int rank, const cJSON *event)
{
    RankSet among = event_ranks(event, "ranks"), first = first_on_hosts(call->run, among);
    int hosts = rank_count(first);
    double bytes = event_number(event, "bytes");
    const char *function = event_text(event, "function");
    if (strncmp(function, "hvd_", 4) == 0) // how ranks agree on a call of the library's
        return;
    bool sums = strcmp(function, "MPI_Allreduce") == 0 || strcmp(function, "MPI_Iallreduce") == 0;
    if (hosts > 1 && first == among && sums) {
        call->as_ring[rank] += 2 * (hosts - 1) * bytes / hosts;
    } else if (hosts > 1) {
        call->across_hosts += bytes;
        call->across = call->across ? call->across : event;
    }
}

// What goes on in the background, and what was waited for: "3,4".
static void read_request(SumCall *call, int rank, const cJSON *event)
{
    int begun = event_is(event, "message_end") ? event_int(event, "request") : 0;
    if (begun > 0 && call->first_request[rank] == 0)
        call->first_request[rank] = begun;
    call->unawaited[rank] += begun > 0;
    if (!event_is(event, "wait_end"))
        return;
    const char *at = event_text(event, "requests");
    for (int done; (done = next_listed(&at)) >= 0;)
        call->unawaited[rank] -= call->first_request[rank] > 0 && done >= call->first_request[rank];
}

static void read_end(SumCall *call, int rank, const cJSON *event)
{
    if (call->trial == 0)
        return;
    call->behind[rank] = event_int(event, "behind");
    call->wrong[rank] = event_int(event, "wrong") - call->behind[rank];
    call->samples[rank] = event_text(event, "samples");
    call->bits[rank] = event_text(event, "bits");
}

static void read_begin(SumCall *call, const Run *run, const cJSON *event, int *trials)
{
    bool tried = event_is(event, "sweep_begin");
    call->run = run;
    call->trial = tried ? ++*trials : 0;
    call->count =
        tried ? event_int(event, "count")
              : (int)fmin(fmax(event_number(event, "bytes") / (double)sizeof(float), 0), INT_MAX);
}

// The calls of one rank, into those of its run.
static void read_rank(SumCall *calls, int count, const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    SumCall *call = NULL;
    int next = 0, trials = 0;
    EACH_EVENT (event, events) {
        if (begins_own_sum(event) && next < count) {
            call = &calls[next++];
            read_begin(call, run, event, &trials);
        } else if (call && event_is(event, "message_begin")) {
            read_message(call, rank, event);
        } else if (call && ends_own_sum(event)) {
            read_end(call, rank, event);
            call = NULL;
        } else if (call && event_is(event, "collective_begin")) {
            read_collective(call, rank, event);
        } else if (call) {
            read_request(call, rank, event);
        }
    }
}

// That every rank made.
static int count_calls(const Run *run)
{
    int least = INT_MAX;
    for (int r = 0; r < run->ranks; r++) {
        int count = 0;
        EACH_EVENT (event, &run->traces.of[r])
            count += begins_own_sum(event);
        least = count < least ? count : least;
    }
    return least;
}

SumCalls sum_calls(const Runs *runs)
{
    SumCalls calls = {0};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        int count = count_calls(run), before = calls.count;
        calls.count += count;
        calls.items = enlarge(calls.items, (size_t)calls.count, sizeof *calls.items);
        for (SumCall *call = calls.items + before; call < calls.items + calls.count; call++) {
            *call = (SumCall){.run = run};
            for (int r = 0; r < run->ranks; r++)
                call->samples[r] = call->bits[r] = "";
        }
        for (int r = 0; r < run->ranks; r++)
            read_rank(&calls.items[before], count, run, r);
    }
    return calls;
}

void sum_calls_free(SumCalls *calls)
{
    free(calls->items);
    *calls = (SumCalls){0};
}

double bytes_sent_by(const SumCall *call, int rank)
{
    double bytes = 0;
    for (int to = 0; to < call->run->ranks; to++)
        bytes += call->sent[rank][to];
    return bytes;
}

double bytes_sent_to(const SumCall *call, int rank)
{
    double bytes = 0;
    for (int from = 0; from < call->run->ranks; from++)
        bytes += call->sent[from][rank];
    return bytes;
}

double bytes_of_values(const SumCall *call)
{
    return (double)call->count * (double)sizeof(float);
}

char *call_words(const SumCall *call)
{
    return format_text("with %d value%s (%.0f bytes)%s", call->count, call->count == 1 ? "" : "s",
                       bytes_of_values(call), call->trial == 0 ? ", gradients in training" : "");
}

// ---- The ways of the values.

bool passes_by(const SumCall *call, int rank)
{
    for (int from = 0; from < call->run->ranks; from++)
        for (int to = 0; to < call->run->ranks; to++)
            if (from != rank && to != rank && call->sent[from][to] > SLACK)
                return true;
    return false;
}

RankSet receivers_from(const SumCall *call, int rank)
{
    RankSet receivers = 0;
    for (int to = 0; to < call->run->ranks; to++)
        receivers |= call->sent[rank][to] > 0 ? 1u << to : 0;
    return receivers;
}

const Diagnosis *wrong_bytes_sent(const SumCall *call,
                                  double (*most)(const SumCall *call, int rank),
                                  const Diagnosis *too_much)
{
    double all = 0;
    bool over = false;
    for (int r = 0; r < call->run->ranks; r++) {
        over = over || bytes_sent_by(call, r) > (*most)(call, r);
        all += bytes_sent_by(call, r);
    }
    if (all < 2 * (call->run->ranks - 1) * bytes_of_values(call))
        return &d_not_by_messages;
    return over ? too_much : NULL;
}

char *ways_of_call(const SumCall *call)
{
    char *evidence = call_words(call);
    for (int r = 0; r < call->run->ranks; r++)
        text_add(&evidence, "\nrank %d sent to %s", r, rank_names(receivers_from(call, r)).text);
    return evidence;
}

char *amounts_of_call(const SumCall *call)
{
    char *evidence = call_words(call);
    for (int r = 0; r < call->run->ranks; r++)
        text_add(&evidence, "\nrank %d: sent %.0f bytes in %d message%s, was sent %.0f", r,
                 bytes_sent_by(call, r), call->messages[r], call->messages[r] == 1 ? "" : "s",
                 bytes_sent_to(call, r));
    return evidence;
}

bool judge_calls(const Runs *runs, const SumCalls *calls, const CallRule *rule, Report *report)
{
    EACH_CALL (call, calls) {
        const Diagnosis *diagnosis = rule->broken(call);
        if (!diagnosis)
            continue;
        return report_failure(report, rule->property, diagnosis,
                              evidence_in(runs, call->run, rule->evidence(call)));
    }
    return report_ok(report, rule->property);
}

// ---- Training.

// The first step after which the ranks' weights differ, or NULL.
static const cJSON *first_difference(const Run *run)
{
    const cJSON *step;
    for (int n = 0; (step = event_nth(&run->traces.of[0], "step", n)); n++)
        for (int r = 1; r < run->ranks; r++) {
            const cJSON *other = event_nth(&run->traces.of[r], "step", n);
            if (event_number(other, "weights") != event_number(step, "weights"))
                return step;
        }
    return NULL;
}

static bool is_used(const SumCalls *calls, const Run *run)
{
    EACH_CALL (call, calls)
        if (call->run == run && call->trial == 0)
            return true;
    return false;
}

bool judge_use(const Runs *runs, const SumCalls *calls, Report *report)
{
    if (nothing_trained(runs, IN_USE, report))
        return false;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        const cJSON *step = first_difference(run);
        bool used = run->ranks == 1 || is_used(calls, run);
        if (used && !step)
            continue;
        char *evidence =
            used ? format_text("weights differ after step %.0f of epoch %.0f",
                               event_number(step, "step") + 1, event_number(step, "epoch") + 1)
                 : format_text("no gradient was added up by it");
        return report_failure(report, IN_USE, used ? &d_weights_differ : &d_not_used_in_training,
                              evidence_in(runs, run, evidence));
    }
    return report_ok(report, IN_USE);
}

// ---- An all-reduce that is made of messages.

// Of no way can anything be said where no rank sends anything, and of no amount where something has
// failed before: a call of the library may have moved values.
void judge_messages(const Runs *runs, const CallRule *way, const CallRule *amount, Report *report)
{
    SumCalls calls = sum_calls(runs);
    bool on_world = false, any_sent = false, replaced = !report_passed(report);
    EACH_CALL (call, &calls) {
        on_world = on_world || call->on_world;
        for (int r = 0; r < call->run->ranks; r++)
            any_sent = any_sent || call->messages[r] > 0;
    }
    if (on_world)
        report_note(report, "messages go on MPI_COMM_WORLD and not on comm: that is the same here, "
                            "and wrong where comm has only some of the ranks");
    if (judge_sums(runs, &calls, NULL, report) && judge_use(runs, &calls, report) &&
        (!any_sent || judge_calls(runs, &calls, way, report)) && !replaced)
        judge_calls(runs, &calls, amount, report);
    sum_calls_free(&calls);
}
