// Judges weights in shards; sharded_weights.h says what is promised.

#include "sharded_weights.h"
#include "diagnoses/sharded_weights.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"

#define WEIGHTS "in each pass of a layer all workers have the weights of all parts"
#define FEW     "at most two layers have all their weights at a time"
#define ONCE    "the weights of a layer travel once for each pass (two layers may keep theirs)"
#define FREED   "the memory of the process does not grow from update to update"

enum { MAX_WHOLE = 2 };

// A pass of a layer, on all ranks, also in a test.
typedef struct {
    const Run *run;
    int number, piece, pieces;
    const char *direction;
    double weights[MAX_RANKS]; // that it reads: all of the piece
    double part[MAX_RANKS];    // of the rank's own part, as the last update left it,
    double old[MAX_RANKS];     // and before that
    int whole[MAX_RANKS];      // pieces that have all weights
    int allocated[MAX_RANKS];  // ... and had in the update just before; 0: it allocated none
} LayerPass;

// Where the reading of a rank is.
typedef struct {
    int at;
    bool updating;
    int allocated;
    double part[MAX_PIECES], old[MAX_PIECES];
} Reader;

static double *of_piece(double numbers[MAX_PIECES], const cJSON *event)
{
    static double none;
    int piece = event_int(event, "piece");
    return piece < MAX_PIECES ? &numbers[piece] : &none;
}

// Reads the next pass of a rank; false: there is none.
static bool read_pass(const Events *events, Reader *reader, LayerPass *pass, int rank)
{
    for (; reader->at < events->count; reader->at++) {
        const cJSON *event = events->items[reader->at];
        if (event_is(event, "weights_kept") || event_is(event, "shard_updated")) {
            *of_piece(reader->old, event) = *of_piece(reader->part, event);
            *of_piece(reader->part, event) = event_number(event, "weights");
        } else if (event_is(event, "gradient") || event_is(event, "step")) {
            reader->updating = event_is(event, "gradient");
        } else if (event_is(event, "weights_allocated") && reader->updating) {
            reader->allocated = event_int(event, "whole");
        } else if (event_is(event, "pass_begin")) {
            pass->direction = event_text(event, "pass");
        } else if (event_is(event, "pass_weights")) {
            pass->piece = event_int(event, "piece");
            pass->weights[rank] = event_number(event, "weights");
            pass->whole[rank] = event_int(event, "whole");
            pass->allocated[rank] = reader->allocated;
            reader->allocated = 0;
            pass->part[rank] = *of_piece(reader->part, event);
            pass->old[rank] = *of_piece(reader->old, event);
            reader->at++;
            return true;
        }
    }
    return false;
}

static Fault each_pass(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    Fault found = NO_FAULT;
    Reader *readers = allocate(MAX_RANKS, sizeof *readers);
    LayerPass pass = {.run = run, .pieces = pieces_of(run)};
    for (bool there = true; there && !found.diagnosis;) {
        pass.number++;
        for (int r = 0; r < run->ranks; r++)
            there = read_pass(&run->traces.of[r], &readers[r], &pass, r) && there;
        if (there)
            found = (*fault)(&pass);
    }
    free(readers);
    return found;
}

// "pass 12, the backward pass of piece 3 of 9"
static char *name_of(const LayerPass *pass)
{
    return format_text("pass %d, the %s pass of piece %d of %d", pass->number, pass->direction,
                       pass->piece, pass->pieces);
}

// ---- The weights of a pass.

// What the weights are with which all workers compute.
typedef struct {
    bool right, old, zeros, own_part, equal; // old: from before the last update
} Computed;

static bool are_near(double value, double other, double largest)
{
    return fabs(value - other) <= ROUNDING * (1 + largest);
}

static Computed computed_with(const LayerPass *pass)
{
    double sum = 0, largest = 0, old_sum = 0, old_largest = 0;
    for (int r = 0; r < pass->run->ranks; r++) {
        sum += pass->part[r];
        largest = fmax(largest, fabs(pass->part[r]));
        old_sum += pass->old[r];
        old_largest = fmax(old_largest, fabs(pass->old[r]));
    }
    Computed all = {true, true, true, true, true};
    for (int r = 0; r < pass->run->ranks; r++) {
        double weights = pass->weights[r], part = pass->part[r];
        all.right = all.right && are_near(weights, sum, largest);
        all.old = all.old && are_near(weights, old_sum, old_largest);
        all.zeros = all.zeros && weights == 0;
        all.own_part = all.own_part && are_near(weights, part, fabs(part));
        all.equal = all.equal && weights == pass->weights[0];
    }
    return all;
}

static Fault weights_fault(const void *item)
{
    const LayerPass *pass = item;
    Computed all = computed_with(pass);
    if (all.right)
        return NO_FAULT;
    double sum = 0;
    char *text = name_of(pass);
    text_add(&text, ", as fingerprints:");
    for (int r = 0; r < pass->run->ranks; r++) {
        text_add(&text, "\nrank %d: keeps %.9g, computes with %.9g", r, pass->part[r],
                 pass->weights[r]);
        sum += pass->part[r];
    }
    text_add(&text, "\nsum of what is kept: %.9g", sum);
    return (Fault){all.zeros                              ? &d_gathered_nothing
                   : pass->run->ranks > 1 && all.own_part ? &d_own_part_only
                   : all.old                              ? &d_old_weights
                   : all.equal                            ? &d_gathered_wrong
                                                          : &d_weights_differ,
                   text};
}

// ---- Memory.

// In the first forward pass the rank frees nothing.
static bool keeps_all_forward(const Events *events)
{
    int at = event_find(events, "pass_begin", 0);
    for (; at >= 0 && at < events->count; at++) {
        const cJSON *event = events->items[at];
        if (event_is(event, "weights_freed"))
            return false;
        if (event_is(event, "pass_begin") && event_has(event, "pass", "backward"))
            return true;
    }
    return true;
}

static const Diagnosis *too_many(const LayerPass *pass, int rank)
{
    const Events *events = &pass->run->traces.of[rank];
    if (event_count(events, "weights_freed") == 0)
        return &d_never_freed;
    if (pass->number == 1)
        return &d_whole_at_first;
    if (pass->allocated[rank] > MAX_WHOLE)
        return &d_gathered_after_the_update_allocated;
    return keeps_all_forward(events) ? &d_kept_between_the_passes : &d_too_many_whole;
}

static Fault few_fault(const void *item)
{
    const LayerPass *pass = item;
    for (int r = 0; r < pass->run->ranks; r++) {
        if (pass->whole[r] <= MAX_WHOLE)
            continue;
        char *name = name_of(pass);
        Fault fault = fault_with(too_many(pass, r), "%s\nrank %d has all weights of %d pieces",
                                 name, r, pass->whole[r]);
        free(name);
        return fault;
    }
    return NO_FAULT;
}

// ---- The memory of the process.

enum { ENOUGH_UPDATES = 4 };

// After each update but the first the rank's process holds much of another copy of both passes'
// weights. Those of MPI's own buffers grow, too, but ever less.
static bool grows_always(const Run *run, int rank, double all)
{
    const Events *events = &run->traces.of[rank];
    for (int n = 2; n < event_count(events, "process_memory"); n++) {
        double before = event_number(event_nth(events, "process_memory", n - 1), "bytes");
        double after = event_number(event_nth(events, "process_memory", n), "bytes");
        if (!(after - before > 1.5 * all))
            return false;
    }
    return true;
}

static double bytes_of_weights(const Run *run)
{
    double all = 0;
    const int last = pieces_of(run) - 1;
    EACH (at, &run->traces.of[0], "piece_updated") {
        const cJSON *event = run->traces.of[0].items[at];
        all += event_number(event, "count") * (double)sizeof(float);
        if (event_int(event, "number") == last)
            break;
    }
    return all;
}

// The address sanitizer keeps freed memory for a while.
#ifdef __SANITIZE_ADDRESS__
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

static bool leaks(const Run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (sanitized || !grows_always(run, r, bytes_of_weights(run)))
            return false;
    return true;
}

// A run that is long enough, where the memory grows on all ranks of all such runs; else NULL.
static const Run *leaking_run(const Runs *runs)
{
    const Run *found = NULL;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (event_count(&run->traces.of[0], "process_memory") >= ENOUGH_UPDATES) {
            if (!leaks(run))
                return NULL;
            found = run;
        }
    return found;
}

static void judge_growth(const Runs *runs, Report *report)
{
    const Run *run = leaking_run(runs);
    if (!run) {
        report_ok(report, FREED);
        return;
    }
    const Events *events = &run->traces.of[0];
    double second = event_number(event_nth(events, "process_memory", 1), "bytes");
    double last = event_number(event_last(events, "process_memory"), "bytes");
    report_failure_in(report, runs, run, FREED, &d_memory_leak,
                      "rank 0: %.1f MB after update 2, %.1f MB after update %d\nall weights "
                      "together: %.1f MB",
                      second / 1e6, last / 1e6, event_count(events, "process_memory"),
                      bytes_of_weights(run) / 1e6);
}

// ---- What travels.

// The first step begins with the broadcast of all weights. Two layers may keep theirs between the
// passes. Where nothing is seen to travel the program does it in a way that is not seen.
static Fault once_fault(const void *item)
{
    const ShardUpdate *step = item;
    double others = (step->run->ranks - 1.0) * step->all; // of all ranks, for one pass
    bool late = step->in_updates > others / 2;
    bool copied = step->in_passes > 0 && step->in_passes + step->in_ready < 1.4 * others;
    double most = 2 * others * 1.6; // to one worker and from there to all takes half as much again
    if (step->run->ranks == 1 || step->number == 1 || !(late || copied || step->in_passes > most))
        return NO_FAULT;
    return fault_with(late     ? &d_gathered_after_the_update
                      : copied ? &d_kept_between_the_passes_copies
                               : &d_gathered_too_often,
                      "step %d: together the workers receive %.1f MB in passes, and %.1f MB in the "
                      "update\nthe parts of the other workers, for two passes: %.1f MB",
                      step->number, step->in_passes / 1e6, step->in_updates / 1e6,
                      2 * others / 1e6);
}

static const ItemProperty of_updates[] = {{PARTS, parts_fault, NULL},
                                          {MEAN, mean_fault, PARTS},
                                          {KEEPS, kept_fault, MEAN},
                                          {ONLY, sums_fault, NULL},
                                          {0}};
static const ItemProperty of_passes[] = {
    {WEIGHTS, weights_fault, PARTS}, {FEW, few_fault, NULL}, {0}};
static const ItemProperty of_steps[] = {{ONCE, once_fault, NULL}, {0}};

bool weights_are_sharded(const Runs *runs, Report *report)
{
    return !nothing_trained(runs, PARTS, report) && in_shards(runs, report) &&
           all_ranks_have(runs, "pass_weights", WEIGHTS, &d_weights_not_in_shards,
                          "had functions called for passes", report);
}

void judge_sharded_weights(const Runs *runs, Report *report)
{
    judge_items(runs, each_update, of_updates, report);
    judge_items(runs, each_pass, of_passes, report);
    judge_items(runs, each_update, of_steps, report);
    if (report_passed(report))
        judge_growth(runs, report);
}
