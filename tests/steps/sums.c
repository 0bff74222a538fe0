// Judges the sums of an all-reduce. sweep_allreduce has tried it on arrays of many lengths and
// leaves in the trace how many sums were wrong, and some of them; what each rank brought is known
// (sweep_value), so a wrong sum can often be told in words: that of ranks 0 and 1, say.

#include "sums.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "hvd/sweep.h"
#include "waiting.h"

#define RIGHT   "the sums are right on every rank, for every number of values"
#define INSIDE  "nothing is written behind the values"
#define AWAITED "what is sent and received in the background is waited for"
#define BITS    "all ranks get the same sums, to the last bit"
#define IN_USE  "the optimizer adds the gradients up by it, and all ranks keep the same weights"
#define TRAINER "hvd_use_allreduce" // the collective call in which a trace has it

// ---- Reading the calls.

static bool begins_call(const cJSON *event)
{
    return event_is(event, "sweep_begin") || (event_is(event, "collective_begin") &&
                                              strcmp(event_text(event, "function"), TRAINER) == 0);
}

static bool ends_call(const cJSON *event)
{
    return event_is(event, "sweep_end") || (event_is(event, "collective_end") &&
                                            strcmp(event_text(event, "function"), TRAINER) == 0);
}

static void read_message(SumCall *call, int rank, const cJSON *event)
{
    double to = event_number(event, "to");
    if (!(to >= 0 && to < call->run->ranks))
        return;
    call->sent[rank][(int)to] += event_number(event, "bytes");
    call->messages[rank]++;
    call->on_world = call->on_world || strcmp(event_text(event, "name"), "MPI_COMM_WORLD") == 0;
}

static void read_collective(SumCall *call, const cJSON *event)
{
    RankSet among = event_ranks(event, "ranks");
    int first = 0;
    while (among && !has_rank(among, first))
        first++;
    for (int r = first + 1; r < call->run->ranks; r++)
        if (has_rank(among, r) && run_node(call->run, r) != run_node(call->run, first)) {
            call->across_hosts += event_number(event, "bytes");
            call->across = call->across ? call->across : event;
            return;
        }
}

// What goes on in the background, and what was waited for: "3,4".
static void read_request(SumCall *call, int rank, const cJSON *event)
{
    int begun = event_is(event, "message_end") ? (int)event_number(event, "request") : 0;
    if (begun > 0 && call->first_request[rank] == 0)
        call->first_request[rank] = begun;
    call->unawaited[rank] += begun > 0;
    if (!event_is(event, "wait_end"))
        return;
    char *end;
    for (const char *at = event_text(event, "requests"); *at; at = end + (*end == ',')) {
        long done = strtol(at, &end, 10);
        if (end == at)
            return;
        call->unawaited[rank] -= call->first_request[rank] > 0 && done >= call->first_request[rank];
    }
}

static void read_end(SumCall *call, int rank, const cJSON *event)
{
    if (call->trial == 0)
        return;
    call->behind[rank] = (int)event_number(event, "behind");
    call->wrong[rank] = (int)event_number(event, "wrong") - call->behind[rank];
    call->samples[rank] = event_text(event, "samples");
    call->bits[rank] = event_text(event, "bits");
}

static void read_begin(SumCall *call, const Run *run, const cJSON *event, int *trials)
{
    bool tried = event_is(event, "sweep_begin");
    call->run = run;
    call->trial = tried ? ++*trials : 0;
    call->count = (int)(tried ? event_number(event, "count")
                              : event_number(event, "bytes") / (double)sizeof(float));
}

// The calls of one rank, into those of its run.
static void read_rank(SumCall *calls, int count, const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    SumCall *call = NULL;
    int next = 0, trials = 0;
    for (int i = 0; i < events->count; i++) {
        const cJSON *event = events->items[i];
        if (begins_call(event) && next < count) {
            call = &calls[next++];
            read_begin(call, run, event, &trials);
        } else if (call && event_is(event, "message_begin")) {
            read_message(call, rank, event);
        } else if (call && ends_call(event)) {
            read_end(call, rank, event);
            call = NULL;
        } else if (call && event_is(event, "collective_begin")) {
            read_collective(call, event);
        } else if (call) {
            read_request(call, rank, event);
        }
    }
}

// That every rank made.
static int count_calls(const Run *run)
{
    int least = -1;
    for (int r = 0; r < run->ranks; r++) {
        int count = 0;
        for (int i = 0; i < run->traces.of[r].count; i++)
            count += begins_call(run->traces.of[r].items[i]);
        least = least < 0 || count < least ? count : least;
    }
    return least;
}

SumCalls sum_calls(const Runs *runs)
{
    SumCalls calls = {0};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        int count = count_calls(run), before = calls.count;
        calls.count += count;
        calls.items = enlarge(calls.items, (size_t)calls.count, sizeof *calls.items);
        memset(&calls.items[before], 0, (size_t)count * sizeof *calls.items);
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
    for (int i = 0; i < calls->count; i++) {
        const SumCall *call = &calls->items[i];
        const Diagnosis *diagnosis = rule->broken(call);
        if (!diagnosis)
            continue;
        report_failure(report, rule->property, diagnosis,
                       evidence_in(runs, call->run, rule->evidence(call)));
        return false;
    }
    report_ok(report, rule->property);
    return true;
}

// ---- What a wrong sum is.

enum { MOST_TIMES = 3 }; // that a rank's values are looked for in a sum

// The next combination of `times`; false after the last.
static bool next_parts(SumParts *parts, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        if (parts->times[r]++ < MOST_TIMES)
            return true;
        parts->times[r] = 0;
    }
    return false;
}

static bool explains(const SumCall *call, const SumParts *parts, size_t place, double value)
{
    double sum = 0, magnitudes = 0;
    for (int r = 0; r < call->run->ranks; r++) {
        double part = parts->times[r] * (double)sweep_value(call->trial, r, place);
        sum += part;
        magnitudes += fabs(part);
    }
    if (parts->averaged)
        value *= call->run->ranks;
    return fabs(value - sum) <= call->run->ranks * (double)FLT_EPSILON * magnitudes;
}

// The parts of which a sample is made; false where nothing explains it.
static bool find_parts(const SumCall *call, size_t place, double value, SumParts *parts)
{
    *parts = (SumParts){.averaged = true};
    for (int r = 0; r < call->run->ranks; r++)
        parts->times[r] = 1;
    if (explains(call, parts, place, value))
        return true;
    *parts = (SumParts){0};
    do
        if (explains(call, parts, place, value))
            return true;
    while (next_parts(parts, call->run->ranks));
    return false;
}

// "the average", "the sum of ranks 0-2", "the sum of ranks 0-2, with rank 1 2 times".
static char *parts_words(const SumParts *parts, int ranks)
{
    RankSet present = 0;
    for (int r = 0; r < ranks; r++)
        present |= parts->times[r] ? 1u << r : 0;
    if (parts->averaged)
        return format_text("the average");
    if (!present)
        return format_text("nobody's");
    char *words =
        format_text("%s %s", rank_count(present) == 1 ? "what is brought by" : "the sum of",
                    rank_names(present).text);
    for (int r = 0; r < ranks; r++)
        if (parts->times[r] > 1)
            text_add(&words, ", with rank %d %s", r,
                     parts->times[r] == 2 ? "twice" : "three times");
    return words;
}

static bool is_average(const SumCall *call, const SumParts *parts, int rank)
{
    (void)call, (void)rank;
    return parts->averaged;
}

static bool has_times(const SumCall *call, const SumParts *parts, int rank, int own, int others)
{
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] != (r == rank ? own : others))
            return false;
    return !parts->averaged;
}

static bool is_its_own(const SumCall *call, const SumParts *parts, int rank)
{
    return has_times(call, parts, rank, 1, 0);
}

static bool lacks_its_own(const SumCall *call, const SumParts *parts, int rank)
{
    return has_times(call, parts, rank, 0, 1);
}

static bool doubles_its_own(const SumCall *call, const SumParts *parts, int rank)
{
    return has_times(call, parts, rank, 2, 1);
}

// Some ranks' values once each, those of the others not at all.
static bool lacks_some(const SumCall *call, const SumParts *parts, int rank)
{
    (void)rank;
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] > 1)
            return false;
    return !parts->averaged;
}

// All samples of a rank's call are of that kind.
static bool samples_are(const SumCall *call, int rank, SumKind kind)
{
    for (const char *at = call->samples[rank]; *at;) {
        char *end;
        size_t place = strtoul(at, &end, 10);
        double value = strtod(end + (*end == ':'), &end);
        SumParts parts;
        if (end == at || !find_parts(call, place, value, &parts) || !kind(call, &parts, rank))
            return false;
        at = end + (*end == ' ');
    }
    return true;
}

// ---- Where sums are wrong.

static int wrong_in(const SumCall *call)
{
    int most = 0;
    for (int r = 0; r < call->run->ranks; r++)
        most = call->wrong[r] > most ? call->wrong[r] : most;
    return most;
}

// The first call with wrong sums, if there is one, of arrays with a value for each rank at least:
// they show more. NULL: there is none.
static const SumCall *first_wrong(const SumCalls *calls)
{
    const SumCall *first = NULL;
    for (int i = 0; i < calls->count; i++) {
        const SumCall *call = &calls->items[i];
        if (wrong_in(call) > 0 && call->count >= call->run->ranks)
            return call;
        if (wrong_in(call) > 0 && !first)
            first = call;
    }
    return first;
}

bool wrong_sums_are(const SumCalls *calls, SumKind kind)
{
    for (int i = 0; i < calls->count; i++)
        for (int r = 0; r < calls->items[i].run->ranks; r++)
            if (calls->items[i].wrong[r] > 0 && !samples_are(&calls->items[i], r, kind))
                return false;
    return true;
}

bool some_values_are_right(const SumCalls *calls)
{
    for (int i = 0; i < calls->count; i++)
        for (int r = 0; r < calls->items[i].run->ranks; r++)
            if (calls->items[i].wrong[r] > 0 && calls->items[i].wrong[r] < calls->items[i].count)
                return true;
    return false;
}

static bool has_company(const SumCall *call)
{
    return call->run->ranks > 1;
}

static bool divides(const SumCall *call)
{
    return call->run->ranks > 1 && call->count % call->run->ranks == 0;
}

static bool is_long(const SumCall *call)
{
    return call->run->ranks > 1 && call->count >= call->run->ranks;
}

// No trial of that kind has a wrong sum, and there are such trials.
static bool right_where(const SumCalls *calls, bool (*holds)(const SumCall *call))
{
    bool any = false;
    for (int i = 0; i < calls->count; i++) {
        const SumCall *call = &calls->items[i];
        if (call->trial == 0 || call->count == 0 || !holds(call))
            continue;
        any = true;
        if (wrong_in(call) > 0)
            return false;
    }
    return any;
}

// Wrong sums are on other ranks only.
static bool right_on(const SumCalls *calls, int rank)
{
    for (int i = 0; i < calls->count; i++)
        if (calls->items[i].wrong[rank] > 0)
            return false;
    return true;
}

static bool right_but_on_root(const SumCalls *calls)
{
    for (int i = 0; i < calls->count; i++)
        for (int r = 1; r < calls->items[i].run->ranks; r++)
            if (calls->items[i].wrong[r] > 0)
                return false;
    return true;
}

// Each rank has its part of the sums, and these parts are different ones: as many right values on
// all ranks together as there are values.
static bool right_in_parts(const SumCalls *calls)
{
    for (int i = 0; i < calls->count; i++) {
        const SumCall *call = &calls->items[i];
        long right = 0;
        for (int r = 0; r < call->run->ranks; r++)
            right += call->count - call->wrong[r];
        if (call->trial != 0 && call->run->ranks > 1 && right != call->count)
            return false;
    }
    return true;
}

// ---- Diagnoses.

static const Diagnosis nothing_tried = {
    "nothing-tried", "sweep_allreduce() was not called: it is what tries the function.", NULL};
static const Diagnosis overrun = {
    "memory-overrun",
    "values behind the array's end have been changed: the last message, or the last loop, is "
    "longer than what is left.",
    NULL};
static const Diagnosis wrong_alone = {
    "wrong-on-one-rank",
    "the sums are right on several ranks and wrong on one: alone a rank has nothing to add to its "
    "values, and nobody to wait for.",
    NULL};
static const Diagnosis small_counts = {"small-counts-wrong",
                                       "the sums are wrong only where there are fewer values than "
                                       "ranks. A part of the array may have no values at "
                                       "all.",
                                       NULL};
static const Diagnosis remainder_lost = {
    "remainder-lost",
    "the sums are wrong only where the number of ranks does not divide that of the values. What is "
    "left over "
    "has to be in some part, too, and all ranks must agree in which.",
    NULL};
static const Diagnosis averaged = {
    "averaged", "it is the average: a sum is not divided. (The optimizer divides it itself.)",
    NULL};
static const Diagnosis not_summed = {
    "not-summed", "every rank still has the values that it brought itself: nothing is added.",
    NULL};
static const Diagnosis values_left = {"values-left-out",
                                      "where the sums are wrong every rank still has the values "
                                      "that it brought itself: a part of the "
                                      "array is left out.",
                                      NULL};
static const Diagnosis on_the_root = {
    "only-on-the-root",
    "rank 0 has the sums, and not all others do: they have to be sent back to all of them, and not "
    "before all values are added.",
    NULL};
static const Diagnosis not_on_the_root = {
    "not-on-the-root",
    "all ranks have the sums but rank 0: what it sends to the others has to be in its own values, "
    "too.",
    NULL};
static const Diagnosis own_missing = {
    "own-part-missing",
    "where the sums are wrong they lack the values that the rank brought itself.", NULL};
static const Diagnosis own_twice = {
    "own-part-twice",
    "where the sums are wrong they hold the values that the rank brought itself twice.", NULL};
static const Diagnosis in_parts = {
    "parts-not-gathered",
    "every rank has the sums for a part of the array only, and no two ranks for the same: the "
    "parts have to come to all ranks, and there to take the place of what was there: they are sums "
    "already.",
    NULL};
static const Diagnosis left_out = {
    "ranks-left-out",
    "what is there holds the values of some ranks only, each once. Often they are not added, or "
    "another part is sent on than the one that was added up.",
    NULL};
static const Diagnosis wrong = {
    "sum-wrong",
    "these are not the sums. Often a rank adds, or sends on, another part of the array than the "
    "one that its neighbour means, or a message arrives where an earlier one was still needed.",
    NULL};

static const Diagnosis *wrong_sums(const SumCalls *calls, KnownSums known)
{
    if (right_where(calls, has_company))
        return &wrong_alone;
    if (right_where(calls, is_long))
        return &small_counts;
    if (right_where(calls, divides))
        return &remainder_lost;
    if (wrong_sums_are(calls, is_average))
        return &averaged;
    const Diagnosis *theory = known ? known(calls) : NULL;
    if (theory)
        return theory;
    if (right_but_on_root(calls))
        return &not_on_the_root;
    if (wrong_sums_are(calls, is_its_own))
        return right_on(calls, 0)             ? &on_the_root
               : some_values_are_right(calls) ? &values_left
                                              : &not_summed;
    if (wrong_sums_are(calls, lacks_its_own))
        return &own_missing;
    if (wrong_sums_are(calls, doubles_its_own))
        return &own_twice;
    if (right_on(calls, 0))
        return &on_the_root;
    if (right_in_parts(calls))
        return &in_parts;
    return wrong_sums_are(calls, lacks_some) ? &left_out : &wrong;
}

// "values[3] is 1.5 instead of -0.25: the sum of ranks 0 and 1", of the first sample.
static void add_sample(const SumCall *call, int rank, char **evidence)
{
    char *end;
    size_t place = strtoul(call->samples[rank], &end, 10);
    if (*end != ':')
        return;
    double value = strtod(end + 1, NULL), sum = 0;
    for (int r = 0; r < call->run->ranks; r++)
        sum += (double)sweep_value(call->trial, r, place);
    text_add(evidence, ", the first: values[%zu] is %.6g instead of %.6g", place, value, sum);
    SumParts parts;
    if (!find_parts(call, place, value, &parts))
        return;
    char *words = parts_words(&parts, call->run->ranks);
    text_add(evidence, ", %s", words);
    free(words);
}

static char *wrong_evidence(const SumCall *call)
{
    char *evidence = call_words(call);
    for (int r = 0; r < call->run->ranks; r++) {
        text_add(&evidence, "\nrank %d: %d of %d wrong", r, call->wrong[r], call->count);
        if (call->wrong[r] > 0)
            add_sample(call, r, &evidence);
    }
    return evidence;
}

static const Diagnosis *unawaited(const SumCall *call)
{
    static const Diagnosis diagnosis = {
        "request-not-awaited",
        "MPI_Isend or MPI_Irecv only begins something. Before MPI_Wait, or one of its kind, has "
        "said "
        "that it is done, what is to be sent must not change, and what arrives is not there yet.",
        NULL};
    for (int r = 0; r < call->run->ranks; r++)
        if (call->unawaited[r] > 0)
            return &diagnosis;
    return NULL;
}

static char *requests_of_call(const SumCall *call)
{
    char *evidence = call_words(call);
    for (int r = 0; r < call->run->ranks; r++)
        if (call->unawaited[r] > 0)
            text_add(&evidence, "\nrank %d returned and had not waited for %d of its messages", r,
                     call->unawaited[r]);
    return evidence;
}

static bool judge_inside(const Runs *runs, const SumCalls *calls, Report *report)
{
    for (int i = 0; i < calls->count; i++)
        for (int r = 0; r < calls->items[i].run->ranks; r++) {
            const SumCall *call = &calls->items[i];
            if (call->behind[r] == 0)
                continue;
            char *words = call_words(call);
            char *evidence = format_text("%s: rank %d changed %d of the values behind them", words,
                                         r, call->behind[r]);
            free(words);
            report_failure(report, INSIDE, &overrun, evidence_in(runs, call->run, evidence));
            return false;
        }
    report_ok(report, INSIDE);
    return true;
}

static void judge_bits(const Runs *runs, const SumCalls *calls, Report *report)
{
    static const Diagnosis differ = {
        "bits-differ",
        "the sums are right on all ranks, but not the same: often each rank adds in an order of "
        "its own, and floats that are added in another order are rounded otherwise. Each sum is "
        "to be computed once, and copied.",
        NULL};
    for (int i = 0; i < calls->count; i++) {
        const SumCall *call = &calls->items[i];
        RankSet others = 0;
        for (int r = 1; call->trial != 0 && r < call->run->ranks; r++)
            others |= strcmp(call->bits[r], call->bits[0]) != 0 ? 1u << r : 0;
        if (!others)
            continue;
        char *words = call_words(call);
        char *evidence = format_text("%s: %s %s other bits than rank 0", words,
                                     rank_names(others).text, *verb_s(others) ? "has" : "have");
        free(words);
        report_failure(report, BITS, &differ, evidence_in(runs, call->run, evidence));
        return;
    }
    report_ok(report, BITS);
}

void note_world(const SumCalls *calls, Report *report)
{
    for (int i = 0; i < calls->count; i++)
        if (calls->items[i].on_world) {
            report_note(report, "messages go on MPI_COMM_WORLD and not on comm: that is the same "
                                "here, and wrong where comm has only some of the ranks");
            return;
        }
}

bool judge_sums(const Runs *runs, const SumCalls *calls, KnownSums known, Report *report)
{
    bool tried = false;
    for (int i = 0; i < calls->count; i++)
        tried = tried || calls->items[i].trial != 0;
    if (!tried) {
        report_failure(report, RIGHT, &nothing_tried, format_text("no rank tried a sum"));
        return false;
    }
    const CallRule awaited = {AWAITED, unawaited, requests_of_call};
    bool inside = judge_calls(runs, calls, &awaited, report);
    inside = judge_inside(runs, calls, report) && inside;
    const SumCall *call = first_wrong(calls);
    report_property(report, RIGHT, call ? wrong_sums(calls, known) : NULL,
                    call ? evidence_in(runs, call->run, wrong_evidence(call)) : NULL);
    if (!inside || call)
        return false;
    judge_bits(runs, calls, report);
    return true;
}

// ---- Training.

// The first step after which the ranks' weights differ, or NULL.
static const cJSON *first_difference(const Run *run)
{
    for (int n = 0;; n++) {
        const cJSON *step = event_nth(&run->traces.of[0], "step", n);
        if (!step)
            return NULL;
        for (int r = 1; r < run->ranks; r++) {
            const cJSON *other = event_nth(&run->traces.of[r], "step", n);
            if (!other || event_number(other, "weights") != event_number(step, "weights"))
                return step;
        }
    }
}

static bool is_used(const SumCalls *calls, const Run *run)
{
    for (int i = 0; i < calls->count; i++)
        if (calls->items[i].run == run && calls->items[i].trial == 0)
            return true;
    return false;
}

bool judge_use(const Runs *runs, const SumCalls *calls, Report *report)
{
    static const Diagnosis not_used = {
        "not-used-in-training",
        "hvd_use_allreduce() was not called with it before training, or training does without the "
        "distributed optimizer.",
        NULL};
    static const Diagnosis differ = {
        "weights-differ",
        "the sums of the sweep are right, and yet the ranks' weights drift apart in training: is "
        "there something that the function keeps from one call to the next, or a gradient that is "
        "longer than it expects?",
        NULL};
    if (nothing_trained(runs, IN_USE, report))
        return false;
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        const cJSON *step = first_difference(run);
        bool used = run->ranks == 1 || is_used(calls, run);
        if (used && !step)
            continue;
        char *evidence =
            used ? format_text("weights differ after step %.0f of epoch %.0f",
                               event_number(step, "step") + 1, event_number(step, "epoch") + 1)
                 : format_text("no gradient was added up by it");
        report_failure(report, IN_USE, used ? &differ : &not_used,
                       evidence_in(runs, run, evidence));
        return false;
    }
    report_ok(report, IN_USE);
    return true;
}

// ---- Where a run ends early.

// Wrong sums are mostly why a training that follows them fails.
static void judge_crashed(const Run *run, Report *report)
{
    Run copy = *run;
    const Runs runs = {.items = &copy, .count = 1};
    SumCalls calls = sum_calls(&runs);
    const SumCall *call = first_wrong(&calls);
    for (int i = 0; i < report->count; i++)
        if (strcmp(report->properties[i].name, RIGHT) == 0)
            call = NULL; // said already of the runs before
    if (call)
        report_failure(report, RIGHT, wrong_sums(&calls, NULL),
                       evidence_of_run(run, wrong_evidence(call)));
    sum_calls_free(&calls);
}

// True where every rank of the circle waits until its message is received (or, with `field` "from",
// until one arrives), and for nothing else.
static bool circle_only(const Traces *traces, int begin, const char *field, const char *other)
{
    int at = begin;
    do {
        const cJSON *call = awaited_call(traces, at);
        if (!is_blocked(traces, at) || isnan(event_number(call, field)) ||
            !isnan(event_number(call, other)))
            return false;
        at = awaited_rank(traces, at);
    } while (at != begin);
    return true;
}

// True where a rank waits for a message to be received that another one waits for, by another tag.
static bool tags_differ(const Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++) {
        const cJSON *send = awaited_call(traces, r);
        int to = awaited_rank(traces, r);
        const cJSON *receive = to < 0 ? NULL : awaited_call(traces, to);
        if (receive && is_blocked(traces, r) && is_blocked(traces, to) &&
            event_number(send, "to") == to && awaited_rank(traces, to) == r &&
            event_number(receive, "from") == r &&
            event_number(send, "to_tag") != event_number(receive, "from_tag"))
            return true;
    }
    return false;
}

static Diagnosis mistake(const Traces *traces)
{
    int begin = waiting_circle(traces);
    if (begin >= 0 && awaited_rank(traces, begin) == begin)
        return (Diagnosis){"hung",
                           "a rank sends to itself, or waits for a message of its own: it can't do "
                           "both at once. Often a loop over the other ranks begins with this one.",
                           NULL};
    if (tags_differ(traces))
        return (Diagnosis){
            "hung", "a message is sent with one tag and awaited with another: they don't meet.",
            NULL};
    if (begin >= 0 && circle_only(traces, begin, "to", "from"))
        return (Diagnosis){
            "blocking-send-deadlock",
            "every rank of the circle waits until what it sends is received, and "
            "none of them comes to "
            "receive: often all send first, or one of them has forgotten to receive. A "
            "send may wait so; in this check it does at every size, elsewhere with "
            "large messages only. Where all send first, let a rank send and receive at "
            "the same time, or some ranks receive first.",
            NULL};
    if (begin >= 0 && circle_only(traces, begin, "from", "to"))
        return (Diagnosis){
            "hung",
            "every rank of the circle waits for a message, and none of them comes to send: "
            "often all receive first.",
            NULL};
    return (Diagnosis){0};
}

// What glibc says when it finds its heap damaged.
#define DAMAGED                                                                                    \
    {                                                                                              \
        "memory-overrun",                                                                          \
            "memory behind the end of an array from malloc() was overwritten, or it was freed "    \
            "twice. Often the array has room for the shorter parts, and a longer one arrives.",    \
            NULL                                                                                   \
    }
// What Open MPI 4 and 5 say of it.
#define SAME_ARRAY                                                                                 \
    {                                                                                              \
        "crashed",                                                                                 \
            "MPI refuses an argument. Often it is an array that a collective call both sends and " \
            "receives into: MPI_IN_PLACE then stands for the first of the two (with MPI_Reduce "   \
            "on its root alone, rank 0 of that communicator).",                                    \
            NULL                                                                                   \
    }
static const Explanation explanations[] = {
    {"MPI_ERR_TRUNCATE",
     {"crashed",
      "a message was longer than what the receiving call had room for: sender and receiver mean "
      "different parts of the array, or different messages.",
      NULL}},
    {"MPI_ERR_COMM",
     {"crashed",
      "a call is made with a communicator in which this rank is not, or which is not there: a "
      "group "
      "is MPI_COMM_NULL on those that are not in it, and they make none of its calls.",
      NULL}},
    {"MPI_ERR_ROOT",
     {"crashed",
      "the root of a collective call is a rank of its communicator: a group of one has none but 0.",
      NULL}},
    {"MPI_ERR_ARG", SAME_ARRAY},
    {"MPI_ERR_BUFFER", SAME_ARRAY},
    {"MPI_ERR_RANK",
     {"crashed",
      "a message goes to, or is awaited from, a rank that is not in the job: ranks go from 0 to "
      "N - 1. Often the number of a neighbour is not taken modulo N, or a loop over the ranks goes "
      "one too far.",
      NULL}},
    {"MPI_ERR_",
     {"crashed", "MPI refuses a call, and says which of its arguments can't be right.", NULL}},
    {"free(): invalid", DAMAGED},
    {"double free or corruption", DAMAGED},
    {"malloc(): ", DAMAGED},
    {"corrupted size vs. prev_size", DAMAGED},
    {"realloc(): invalid", DAMAGED},
    {"munmap_chunk(): invalid", DAMAGED},
    {"malloc_consolidate(): ", DAMAGED},
    {0},
};

const Ends ends_of_sums = {
    .explanations = explanations, .mistake = mistake, .crashed = judge_crashed};
