// Reshard: each worker saves its own part of the state; whatever the number of workers, a run goes on
// with the state that the run before has saved, and makes the updates of a training without a break;
// where a shard is missing, the program says which one.

#include "end.h"
#include "judge.h"
#include "saved.h"
#include "shard_updates.h"
#include "sharded_state.h"
#include "diagnoses/judge_reshard.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAVED    "each worker saves its own part of the state, and together they save all of it"
#define RESTORED "a run begins with the state that the run before has saved, bit for bit"
#define LATER    "its updates are those of a training without a break"
#define LOST     "where a shard is missing, the program says which one, and ends"

#define HEADER    2e4 // bytes: no header of a shard has as many
#define TOLERANCE 1e-5

// ---- What is saved.

// The bytes of a rank's file; -1: there is none.
static double file_bytes(const Run *run, int rank)
{
    char *name = format_text("shard-%d" ENDING, rank);
    struct stat facts;
    int file = open_saved(run, name);
    double bytes = file >= 0 && fstat(file, &facts) == 0 ? (double)facts.st_size : -1;
    if (file >= 0)
        close(file);
    free(name);
    return bytes;
}

static char *files_evidence(const Run *run, double whole)
{
    char *text = format_text("the state has %.0f KB", whole / 1e3);
    for (int r = 0; r < run->ranks; r++) {
        double bytes = file_bytes(run, r);
        if (bytes < 0)
            text_add(&text, "\nshard-%d" ENDING ": is not there", r);
        else
            text_add(&text, "\nshard-%d" ENDING ": %.0f KB", r, bytes / 1e3);
    }
    return text;
}

// By the sizes of the files; NULL: they are right.
static const Diagnosis *wrong_sizes(const Run *run, double whole)
{
    double sum = 0, largest = 0;
    int missing = 0;
    for (int r = 0; r < run->ranks; r++) {
        double bytes = file_bytes(run, r);
        missing += bytes < 0;
        sum += fmax(bytes, 0);
        largest = fmax(largest, bytes);
    }
    if (sum < HEADER * run->ranks)
        return &d_nothing_saved;
    if (missing > 0)
        return &d_saved_by_some;
    if (run->ranks > 1 && largest > whole / run->ranks * 1.1 + HEADER)
        return &d_saved_whole;
    return sum < whole ? &d_state_left_out : NULL;
}

// What a rank has added to its shard under an array's name.
static const cJSON *added_by(const Run *run, int rank, const char *name)
{
    const Events *events = &run->traces.of[rank];
    EACH (at, events, "shard_added")
        if (event_has(events->items[at], "name", name))
            return events->items[at];
    return NULL;
}

// All ranks have added arrays under their names, each once at most, and nothing else.
static bool adds_arrays(const Run *run, const State *state)
{
    for (int r = 0; r < run->ranks; r++) {
        int known = 0;
        for (int a = 0; a < state->sum.arrays; a++)
            known += added_by(run, r, state->sum.of[a].name) != NULL;
        if (event_count(&run->traces.of[r], "shard_added") != known)
            return false;
    }
    return true;
}

// The slices of an array follow one another and make it up, with the values that it has.
static Fault array_saved_fault(const Run *run, const TracedArray *array)
{
    uint64_t bits = 0;
    int length = 0;
    bool in_order = true;
    char *text = format_text("%s in the shards:", array->name);
    for (int r = 0; r < run->ranks; r++) {
        const cJSON *added = added_by(run, r, array->name);
        if (!added)
            continue;
        int begin = event_int(added, "begin"), count = event_int(added, "count");
        bits += strtoull(event_text(added, "bits"), NULL, 16);
        in_order = in_order && (count == 0 || begin == length);
        length += count;
        text_add(&text, "\nrank %d: %d numbers from number %d on", r, count, begin);
    }
    if (bits != array_bits(array))
        return (Fault){in_order && length == array->length ? &d_saved_other_values
                                                           : &d_saved_other_slice,
                       text};
    free(text);
    return NO_FAULT;
}

// The contents are known where shard_add() got each array under its name.
static Fault saved_fault(const Run *run)
{
    State *state = run->plan.lose ? NULL : state_read(run, true);
    Fault fault = NO_FAULT;
    if (!state)
        return fault;
    double whole = state_bytes(state);
    const Diagnosis *sizes = wrong_sizes(run, whole);
    if (sizes)
        fault = (Fault){sizes, files_evidence(run, whole)};
    else if (adds_arrays(run, state))
        for (int a = 0; a < state->sum.arrays && !fault.diagnosis; a++)
            fault = array_saved_fault(run, &state->sum.of[a]);
    free(state);
    return fault;
}

// ---- What a run begins with.

typedef struct {
    const Run *run, *before;
    State *begins, *saved, *fresh; // fresh: that of a training that begins
} Restored;

static const Run *run_before(const Runs *runs, const Run *run)
{
    return run->plan.after && !run->plan.lose ? run_named(runs, run->plan.after) : NULL;
}

enum { SLOTS, VARIABLES };

// How many arrays are not as they were saved, and how many of these are as in the beginning. A
// variable is counted on each rank.
typedef struct {
    int all[2], wrong[2], fresh[2];
    bool still_fresh;       // some wrong block of the optimizer's is
    RankSet right_ranks;    // those that have all variables
    int array, rank, block; // the first wrong one; array -1: there is none
} Comparison;

static void compare_array(const Restored *it, int a, int rank, Comparison *c)
{
    const TracedArray *saved = &it->saved->sum.of[a], *found = state_array_of(it->begins, rank, a);
    int kind = is_variable(saved) ? VARIABLES : SLOTS;
    c->all[kind]++;
    if (same_blocks(found, saved))
        return;
    c->wrong[kind]++;
    const TracedArray *fresh = &it->fresh->sum.of[a];
    c->fresh[kind] += same_blocks(found, fresh);
    for (int b = 0; b < STATE_BLOCKS && kind == SLOTS; b++)
        c->still_fresh |=
            found->blocks[b] != saved->blocks[b] && found->blocks[b] == fresh->blocks[b];
    if (kind == VARIABLES)
        c->right_ranks &= ~(1u << rank);
    if (c->array >= 0)
        return;
    c->array = a;
    c->rank = rank;
    while (found->blocks[c->block] == saved->blocks[c->block])
        c->block++;
}

static Comparison compare(const Restored *it)
{
    Comparison c = {.right_ranks = all_ranks(it->run->ranks), .array = -1};
    for (int a = 0; a < it->saved->sum.arrays; a++)
        for (int r = 0; r < (is_variable(&it->saved->sum.of[a]) ? it->run->ranks : 1); r++)
            compare_array(it, a, r, &c);
    return c;
}

// The shards that a rank has read.
static RankSet shards_read(const Run *run, int rank)
{
    RankSet shards = 0;
    const Events *events = &run->traces.of[rank];
    EACH (at, events, "shard_read") {
        int number = event_int(events->items[at], "number");
        if (number >= 0 && number < MAX_RANKS && event_number(events->items[at], "found") > 0)
            shards |= 1u << number;
    }
    return shards;
}

// Some rank has read shards, but not all that were saved; or one that was not.
static const Diagnosis *wrong_reads(const Restored *it)
{
    RankSet saved = all_ranks(it->before->ranks);
    bool more = false, fewer = false;
    for (int r = 0; r < it->run->ranks; r++) {
        RankSet read = shards_read(it->run, r);
        more = more || (read & ~saved);
        fewer = fewer || (read && (read & saved) != saved);
    }
    return fewer ? &d_shards_left_out : more ? &d_old_shard : NULL;
}

static const Diagnosis *wrong_state(const Restored *it, const Comparison *c)
{
    bool all_fresh = c->fresh[SLOTS] == c->all[SLOTS] && c->fresh[VARIABLES] == c->all[VARIABLES];
    if (all_fresh)
        return &d_not_restored;
    if (c->right_ranks && c->right_ranks != all_ranks(it->run->ranks) &&
        c->wrong[VARIABLES] == c->fresh[VARIABLES])
        return &d_restored_by_some;
    if (c->wrong[SLOTS] == 0 && c->fresh[VARIABLES] == c->all[VARIABLES])
        return &d_weights_not_restored;
    if (c->wrong[VARIABLES] == 0 && c->fresh[SLOTS] > 0 && c->fresh[SLOTS] == c->wrong[SLOTS])
        return &d_moments_not_restored;
    const Diagnosis *reads = wrong_reads(it);
    if (reads)
        return reads;
    return c->wrong[SLOTS] == 0 ? &d_weights_incomplete : &d_other_places;
}

static void add_reads(const Restored *it, char **text)
{
    text_add(text, "\nsaved by %d worker%s", it->before->ranks, it->before->ranks == 1 ? "" : "s");
    for (int r = 0; r < it->run->ranks; r++)
        if (shards_read(it->run, r))
            text_add(text, "\nrank %d read %s", r, names_of("shard", shards_read(it->run, r)).text);
}

static Fault arrays_fault(const Restored *it)
{
    Comparison c = compare(it);
    if (c.array < 0)
        return NO_FAULT;
    const TracedArray *array = &it->saved->sum.of[c.array];
    int64_t length = array->length;
    char *text = format_text("%s has other numbers than were saved", array->name);
    if (is_variable(array) && it->run->ranks > 1)
        text_add(&text, " on rank %d", c.rank);
    text_add(&text, ", the first one between number %" PRId64 " and %" PRId64 " of %d",
             length * c.block / STATE_BLOCKS, length * (c.block + 1) / STATE_BLOCKS, array->length);
    bool several = it->run->ranks > 1;
    text_add(&text, "\nwrong: %d of %d variables%s, %d of %d arrays of the optimizer%s",
             c.wrong[VARIABLES], c.all[VARIABLES], several ? " (counted on each rank)" : "",
             c.wrong[SLOTS], c.all[SLOTS], several ? " (of all ranks together)" : "");
    if (c.still_fresh)
        text_add(&text,
                 "\nsome numbers of the optimizer are still those of a training that begins");
    add_reads(it, &text);
    return (Fault){wrong_state(it, &c), text};
}

static Fault updates_fault(const Restored *it)
{
    double right = it->saved->of[0].updates;
    for (int r = 0; r < it->run->ranks; r++) {
        double updates = it->begins->of[r].updates;
        if (updates != right)
            return fault_with(updates == 0 ? &d_updates_lost : &d_updates_wrong,
                              "rank %d goes on after update %.0f, and the state was saved after "
                              "update %.0f",
                              r, updates, right);
    }
    return NO_FAULT;
}

static Fault state_fault(const Runs *runs, const Run *run)
{
    Restored it = {.run = run, .before = run_before(runs, run)};
    if (!it.before)
        return NO_FAULT;
    it.begins = state_read(run, false);
    it.saved = state_read(it.before, true);
    it.fresh = state_read(&runs->items[0], false);
    Fault fault = NO_FAULT;
    if (it.begins && it.saved && it.fresh && it.begins->sum.arrays == it.saved->sum.arrays &&
        it.fresh->sum.arrays == it.saved->sum.arrays) {
        fault = arrays_fault(&it);
        fault = fault.diagnosis ? fault : updates_fault(&it);
    }
    free(it.begins);
    free(it.saved);
    free(it.fresh);
    return fault;
}

// ---- Later updates.

// Compared with the first run, which has no break.
static Fault later_fault(const Runs *runs, const Run *run)
{
    const Run *whole = &runs->items[0];
    State *begins = run_before(runs, run) ? state_read(run, false) : NULL;
    if (!begins)
        return NO_FAULT;
    int pieces = pieces_of(whole), first = (int)begins->of[0].updates;
    pieces = pieces > 0 ? pieces : 1; // of a trace that is none of ours
    int number = first * pieces;
    free(begins);
    EACH (at, &run->traces.of[0], "piece_updated") {
        const cJSON *other = event_nth(&whole->traces.of[0], "piece_updated", number++);
        double right = event_number(other, "weights"),
               weights = event_number(run->traces.of[0].items[at], "weights");
        if (fabs(weights - right) <= TOLERANCE * fmax(1, fabs(right)))
            continue;
        return fault_with(&d_goes_on_otherwise,
                          "a piece after update %d, as a fingerprint: %.9g, where %.9g is right",
                          (number - 1) / pieces + 1, weights, right);
    }
    return NO_FAULT;
}

// ---- A lost shard.

static int lost_number(const Run *run)
{
    const char *digits = strpbrk(last_part(run->plan.lose), "0123456789");
    return digits ? atoi(digits) : -1;
}

// "shard-2", "file of rank 2": one of these words, and the number a little behind it.
static bool names_number(const char *text, int number)
{
    static const char *const words[] = {"shard", "file", "part", "rank", "worker"};
    for (int w = 0; w < (int)(sizeof words / sizeof *words); w++)
        for (const char *at = text; (at = strcasestr(at, words[w])); at++) {
            const char *digits = at + strcspn(at, "0123456789");
            if (*digits && digits - at < 24 && atoi(digits) == number)
                return true;
        }
    return false;
}

static Fault lost_fault(const Runs *runs, const Run *run)
{
    (void)runs;
    if (!run->plan.lose)
        return NO_FAULT;
    int number = lost_number(run);
    if (run->status == 0 && ranks_with(&run->traces, "gradient"))
        return fault_with(&d_lost_shard_unnoticed,
                          "%s was removed, and the program trains and ends with status 0",
                          run->plan.lose);
    for (int i = 0; i < run->output.count && run->status == 2; i++)
        if (run->output.lines[i].rank != MPIRUN && names_number(run->output.lines[i].text, number))
            return NO_FAULT;
    if (run->status != 2)
        return fault_with(&d_lost_shard_other_status,
                          "%s was removed; the program ends with status %d", run->plan.lose,
                          run->status);
    bool looked = !output_says(&run->output, "there is no shard (NULL)");
    return fault_with(looked ? &d_lost_shard_not_named : &d_lost_shard_not_named_not_looked_at,
                      "%s was removed; the program ends with status %d, and no line of it names "
                      "shard %d",
                      run->plan.lose, run->status, number);
}

static void crashed(const Run *run, Report *report)
{
    if (run->plan.lose)
        report_failure(report, LOST, &d_lost_shard_crashes,
                       evidence_of_run(run, format_text("%s was removed", run->plan.lose)));
}

// ---- All of it.

static bool trains_in_shards(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        RankSet ranks = ranks_with(&run->traces, "state");
        if (!run->plan.lose && ranks != all_ranks(run->ranks))
            return report_failure_in(report, runs, run, SAVED, &d_not_in_shards,
                                     "%s of %d train by train_in_equal_shards()",
                                     rank_names(ranks).text, run->ranks);
    }
    return true;
}

static void judge(const Runs *runs, Report *report)
{
    if (!trains_in_shards(runs, report) || !judge_property(runs, SAVED, saved_fault, report) ||
        !judge_each(runs, RESTORED, state_fault, report))
        return;
    judge_each(runs, LATER, later_fault, report);
    judge_each(runs, LOST, lost_fault, report);
}

JUDGE("reshard", judge)
OWN_ENDS("reshard", .crashed = crashed, EXPLAINED({"the shard has", &d_added_twice}))
