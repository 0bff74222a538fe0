// Whether the sums of an all-reduce are right. sweep_allreduce has tried it on arrays of many
// lengths and leaves in the trace how many sums were wrong, and some of them. What these are made
// of (sum_parts.c), and where they are wrong, names the mistake.

#include "sum_parts.h"
#include "diagnoses/wrong_sums.h"

#include <stdlib.h>
#include <string.h>

#include "lessons/sweep.h"
#include "base/format.h"

#define RIGHT   "the sums are right on every rank, for every number of values"
#define INSIDE  "nothing is read or written outside of the array"
#define AWAITED "the program waits for sends and receives in the background"
#define BITS    "all ranks get the same sums, to the last bit"

// ---- Where sums are wrong.

static RankSet wrong_ranks(const SumCall *call)
{
    RankSet ranks = 0;
    for (int r = 0; r < call->run->ranks; r++)
        ranks |= call->wrong[r] > 0 ? 1u << r : 0;
    return ranks;
}

// The first call with wrong sums, if there is one, of arrays with a value for each rank at least:
// they show more. NULL: there is none.
static const SumCall *first_wrong(const SumCalls *calls)
{
    const SumCall *first = NULL;
    EACH_CALL (call, calls) {
        if (wrong_ranks(call) && call->count >= call->run->ranks)
            return call;
        if (wrong_ranks(call) && !first)
            first = call;
    }
    return first;
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
    EACH_CALL (call, calls) {
        if (call->trial == 0 || call->count == 0 || !holds(call))
            continue;
        any = true;
        if (wrong_ranks(call))
            return false;
    }
    return any;
}

// One of them is of a run in which the sums of an array that is no longer are wrong: else what the
// runs differ in, or the length, may be why.
static bool right_beside_wrong(const SumCalls *calls, bool (*holds)(const SumCall *call))
{
    EACH_CALL (right, calls)
        EACH_CALL (wrong, calls)
            if (right->trial != 0 && right->count > 0 && holds(right) && wrong->run == right->run &&
                wrong->count <= right->count && wrong_ranks(wrong))
                return true;
    return false;
}

bool right_on(const SumCalls *calls, RankSet (*ranks)(const Run *run))
{
    EACH_CALL (call, calls)
        if (wrong_ranks(call) & (*ranks)(call->run))
            return false;
    return true;
}

static RankSet the_root(const Run *run)
{
    (void)run;
    return 1;
}

static RankSet the_last(const Run *run)
{
    return 1u << (run->ranks - 1);
}

static RankSet all_but_the_root(const Run *run)
{
    return all_ranks(run->ranks) & ~1u;
}

// Each rank has its part of the sums (where there are values for all), and these parts are
// different ones: as many right values on all ranks together as there are values.
static bool right_in_parts(const SumCalls *calls)
{
    EACH_CALL (call, calls) {
        long right = 0;
        bool all = true;
        for (int r = 0; r < call->run->ranks; r++) {
            right += call->count - call->wrong[r];
            all = all && call->wrong[r] < call->count;
        }
        if (call->trial != 0 && call->count >= call->run->ranks && !all)
            return false;
        if (call->trial != 0 && call->run->ranks > 1 && right != call->count)
            return false;
    }
    return true;
}

// Each rank sent to those at the distances 1, 2, 4 ... alone: by addition, or by exclusive or.
static bool doubles_distances(const SumCall *call)
{
    int ranks = call->run->ranks;
    bool added = true, by_bits = true;
    for (int r = 0; r < ranks; r++) {
        RankSet sums = 0, bits = 0;
        for (int distance = 1; distance < ranks; distance *= 2) {
            sums |= 1u << (r + distance) % ranks;
            bits |= (r ^ distance) < ranks ? 1u << (r ^ distance) : 0;
        }
        added = added && receivers_from(call, r) == sums;
        by_bits = by_bits && receivers_from(call, r) == bits;
    }
    return added || by_bits;
}

// The sums of two ranks are right, and those of five or more that were doubled are not. (Three
// ranks have no more distances than there are others.)
static bool right_for_powers_of_two(const SumCalls *calls)
{
    bool two = false, more = false;
    EACH_CALL (call, calls) {
        bool wrong = wrong_ranks(call) != 0;
        if (call->run->ranks == 2 && wrong)
            return false;
        two = two || (call->run->ranks == 2 && call->trial != 0);
        more = more || (call->run->ranks >= 5 && wrong && doubles_distances(call));
    }
    return two && more;
}

static bool any_message(const SumCalls *calls)
{
    EACH_CALL (call, calls)
        for (int r = 0; r < call->run->ranks; r++)
            if (call->messages[r] > 0)
                return true;
    return false;
}

// ---- Diagnoses.

static const Diagnosis *wrong_sums(const SumCalls *calls, KnownSums known)
{
    if (right_where(calls, has_company))
        return &d_wrong_on_one_rank;
    if (right_where(calls, is_long))
        return &d_small_counts_wrong;
    if (right_where(calls, divides) && right_beside_wrong(calls, divides))
        return &d_remainder_lost;
    if (wrong_sums_are(calls, "/ranks", NULL))
        return &d_averaged;
    const Diagnosis *theory = known ? known(calls) : NULL;
    if (theory)
        return theory;
    if (right_for_powers_of_two(calls))
        return &d_powers_of_two_only;
    bool whole = !some_values_are_right(calls), on_root = right_on(calls, the_root);
    if (right_on(calls, all_but_the_root))
        return &d_not_on_the_root;
    if (wrong_sums_are(calls, "11 00 00", NULL))
        return on_root ? &d_only_on_the_root : whole ? &d_not_summed : &d_values_left_out;
    if (wrong_sums_are(calls, "00 11 11", NULL))
        return &d_own_part_missing;
    if (wrong_sums_are(calls, "22 11 11", NULL))
        return &d_own_part_twice;
    if (whole && on_root)
        return &d_only_on_the_root;
    if (whole && right_on(calls, the_last))
        return &d_only_on_the_last;
    if (right_in_parts(calls))
        return &d_parts_not_gathered;
    if (wrong_sums_are(calls, "?? ?? ??", NULL))
        return &d_ranks_left_out;
    if (wrong_sums_are(calls, "++ ++ ++", NULL))
        return &d_added_again;
    return any_message(calls) ? &d_sum_wrong : &d_sum_wrong_without_messages;
}

// "values[3] is 1.5, the sum of ranks 0 and 1, instead of -0.25", of the first sample.
static void add_sample(const SumCall *call, int rank, char **evidence)
{
    char *end;
    size_t place = strtoul(call->samples[rank], &end, 10);
    if (*end != ':')
        return;
    double value = strtod(end + 1, NULL), sum = 0;
    for (int r = 0; r < call->run->ranks; r++)
        sum += (double)sweep_value(call->trial, r, place);
    SumParts parts;
    bool known = find_parts(call, place, value, &parts);
    char *words = known ? parts_words(&parts, call->run->ranks) : NULL;
    text_add(evidence, ", the first: values[%zu] is %.6g%s%s%s instead of %.6g", place, value,
             known ? ", " : "", known ? words : "", known ? "," : "", sum);
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
    for (int r = 0; r < call->run->ranks; r++)
        if (call->unawaited[r] > 0)
            return &d_request_not_awaited;
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

// "rank 0 calls MPI_Sendrecv with data that begin 1 value before the array"; NULL: no rank does.
static char *before_array(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        EACH (at, events, "message_begin") {
            double values = event_number(events->items[at], "before") / sizeof(float);
            if (values > 0)
                return format_text("rank %d calls %s with data that begin %.0f value%s before "
                                   "the array",
                                   r, event_text(events->items[at], "function"), values,
                                   values > 1 ? "s" : "");
        }
    }
    return NULL;
}

static bool judge_inside(const Runs *runs, const SumCalls *calls, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        char *evidence = before_array(run);
        if (evidence)
            return report_failure(report, INSIDE, &d_index_out_of_bounds,
                                  evidence_in(runs, run, evidence));
    }
    EACH_CALL (call, calls)
        for (int r = 0; r < call->run->ranks; r++) {
            if (call->behind[r] == 0)
                continue;
            char *evidence = call_words(call);
            text_add(&evidence, ": rank %d changed %d of the values beyond them", r,
                     call->behind[r]);
            return report_failure(report, INSIDE, &d_memory_overrun,
                                  evidence_in(runs, call->run, evidence));
        }
    return report_ok(report, INSIDE);
}

static bool judge_bits(const Runs *runs, const SumCalls *calls, Report *report)
{
    EACH_CALL (call, calls) {
        RankSet others = 0;
        for (int r = 1; call->trial != 0 && r < call->run->ranks; r++)
            others |= strcmp(call->bits[r], call->bits[0]) != 0 ? 1u << r : 0;
        if (!others)
            continue;
        char *evidence = call_words(call);
        text_add(&evidence, ": %s %s other bits than rank 0", rank_names(others).text,
                 *verb_s(others) ? "has" : "have");
        return report_failure(report, BITS, &d_bits_differ, evidence_in(runs, call->run, evidence));
    }
    return report_ok(report, BITS);
}

bool judge_sums(const Runs *runs, const SumCalls *calls, KnownSums known, Report *report)
{
    bool tried = false;
    EACH_CALL (call, calls)
        tried = tried || call->trial != 0;
    if (!tried) {
        report_failure(report, RIGHT, &d_nothing_tried, format_text("no rank tried a sum"));
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
    return judge_bits(runs, calls, report); // else the weights differ, too
}

// With how many values the ranks were when the run ended.
static void note_open_call(const Run *run, Report *report)
{
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        const cJSON *begin = event_last(events, "sweep_begin");
        if (begin && event_count(events, "sweep_begin") > event_count(events, "sweep_end")) {
            report_note(report, "rank %d was adding up %.0f value%s when the run ended", r,
                        event_number(begin, "count"), event_number(begin, "count") == 1 ? "" : "s");
            return;
        }
    }
}

void judge_crashed_sums(const Run *run, Report *report)
{
    Run copy = *run;
    const Runs runs = {.items = &copy, .count = 1};
    char *before = before_array(run);
    if (before) {
        report_failure(report, INSIDE, &d_index_out_of_bounds, evidence_of_run(run, before));
        return;
    }
    SumCalls calls = sum_calls(&runs);
    const SumCall *call = first_wrong(&calls);
    for (int i = 0; i < report->count; i++)
        if (strcmp(report->properties[i].name, RIGHT) == 0)
            call = NULL; // said already of the runs before
    if (call)
        report_failure(report, RIGHT, wrong_sums(&calls, NULL),
                       evidence_of_run(run, wrong_evidence(call)));
    else
        note_open_call(run, report);
    sum_calls_free(&calls);
}
