// Recompute: few blocks have activations at a time, each is computed twice at most, and every batch
// ends in an update. That the gradients are right follows from the calls: the library refuses those
// whose data are missing.

#include "end.h"
#include "judge.h"
#include "diagnoses/judge_recompute.h"

#include <stdlib.h>
#include "base/memory.h"

#define FEW     "at most half of the blocks, and two more, have activations at a time"
#define ONCE    "a block is computed again once, not more"
#define UPDATED "every batch ends in an update of all blocks"

// One batch.
typedef struct {
    int number, blocks;
    int max_held;
    int at;       // the block that was computed when they were the most
    bool dropped; // some block's had been dropped before
    int done;     // of them, those whose gradients are computed
    int *forward; // how often each block was computed, ...
    int computed; // ... and all of them
    bool updated;
} ChainBatch;

// The next batch after event `*at`, which moves to its end; false: there is none.
static bool next_batch(const Events *events, int *at, ChainBatch *batch)
{
    int begin = event_find(events, "chain_begin", *at);
    if (begin < 0)
        return false;
    free(batch->forward);
    *batch = (ChainBatch){.number = batch->number + 1,
                          .blocks = event_int(events->items[begin], "blocks")};
    batch->forward = allocate((size_t)batch->blocks, sizeof *batch->forward);
    bool dropped = false;
    int next = batch->blocks - 1, done = 0; // next: in the backward pass
    for (*at = begin + 1; *at < events->count; (*at)++) {
        const cJSON *event = events->items[*at];
        int block = event_int(event, "block"), held = event_int(event, "held");
        if (event_is(event, "chain_begin"))
            break;
        if (event_is(event, "block_forward") && block >= 0 && block < batch->blocks) {
            batch->forward[block]++;
            batch->computed++;
        }
        if (event_is(event, "block_forward_end") && held > batch->max_held) {
            batch->max_held = held;
            batch->at = block;
            batch->dropped = dropped;
            batch->done = done;
        }
        dropped = dropped || event_is(event, "block_drop");
        done += event_is(event, "block_backward") - (event_is(event, "block_drop") && block > next);
        next -= event_is(event, "block_backward");
        batch->updated = batch->updated || event_is(event, "chain_update");
    }
    return true;
}

static Fault each_batch(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    Fault found = NO_FAULT;
    ChainBatch batch = {0};
    for (int at = 0; !found.diagnosis && next_batch(&run->traces.of[0], &at, &batch);)
        found = (*fault)(&batch);
    free(batch.forward);
    return found;
}

static Fault held_fault(const void *item)
{
    const ChainBatch *batch = item;
    int most = batch->blocks / 2 + 2;
    if (batch->max_held <= most)
        return NO_FAULT;
    Fault fault = fault_with(!batch->dropped                         ? &d_nothing_dropped
                             : batch->max_held - batch->done <= most ? &d_too_much_kept_done
                                                                     : &d_too_much_kept,
                             "in batch %d, %d of %d blocks have activations when block %d has been "
                             "computed; %d may",
                             batch->number, batch->max_held, batch->blocks, batch->at, most);
    if (batch->done > 0)
        text_add(&fault.evidence, "\nthe backward pass of %d of them is done", batch->done);
    return fault;
}

static Fault forward_fault(const void *item)
{
    const ChainBatch *batch = item;
    for (int b = 0; b < batch->blocks; b++)
        if (batch->forward[b] > 2)
            return fault_with(&d_recomputed_too_often,
                              "in batch %d, block %d of %d is computed %d times", batch->number, b,
                              batch->blocks, batch->forward[b]);
    return NO_FAULT;
}

static Fault update_fault(const void *item)
{
    const ChainBatch *batch = item;
    return batch->updated ? NO_FAULT : fault_with(&d_not_applied, "in batch %d", batch->number);
}

static const ItemProperty properties[] = {
    {FEW, held_fault, NULL}, {ONCE, forward_fault, NULL}, {UPDATED, update_fault, NULL}, {0}};

static bool in_blocks(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (event_count(&run->traces.of[0], "chain_begin") == 0)
            return report_failure_in(report, runs, run, UPDATED, &d_no_batch, "no chain_begin()");
    return true;
}

// What the longest chain costs, for whoever wants to do with less.
static void note_cost(const Runs *runs, Report *report)
{
    ChainBatch longest = {0};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        ChainBatch batch = {0};
        int at = 0;
        if (next_batch(&run->traces.of[0], &at, &batch) && batch.blocks > longest.blocks)
            longest = batch;
        free(batch.forward);
    }
    report_note(report,
                "of %d blocks at most %d have activations at a time, and %d blocks are "
                "computed again",
                longest.blocks, longest.max_held, longest.computed - longest.blocks);
}

static void judge(const Runs *runs, Report *report)
{
    if (!in_blocks(runs, report))
        return;
    judge_items(runs, each_batch, properties, report);
    if (report_passed(report) && !report->held)
        note_cost(runs, report);
}

// The chain that was computed when the run ended.
static void note_chain(const Run *run, Report *report)
{
    const cJSON *begin = event_last(&run->traces.of[0], "chain_begin");
    if (begin)
        report_note(report, "the chain had %.0f block%s when the run ended",
                    event_number(begin, "blocks"), event_number(begin, "blocks") == 1 ? "" : "s");
}

// The block whose turn it was in the backward pass had no activations, where another one was asked for.
static Fault left_out_fault(const Run *run)
{
    const Events *events = &run->traces.of[0];
    int next = event_int(event_last(events, "chain_begin"), "blocks") - 1, begin = 0;
    const cJSON *last = NULL;
    EACH (at, events, "chain_begin")
        begin = at;
    for (int at = begin; at < events->count; at++)
        next -= event_is(events->items[at], "block_backward");
    for (int at = begin; at < events->count; at++)
        if (event_int(events->items[at], "block") == next)
            last = events->items[at];
    if (next < 0 || event_is(last, "block_forward_end") ||
        !output_says(&run->output, "needs the gradient of block"))
        return NO_FAULT;
    return fault_with(&d_block_left_out_without_activations,
                      last ? "block %d was computed, and its activations were dropped"
                           : "block %d was not computed in this batch",
                      next);
}

JUDGE("recompute", judge)
OWN_ENDS("recompute", .crashed = note_chain, .ended = left_out_fault,
         EXPLAINED({"reads the activations of block", &d_dropped_too_early},
                   {"are not there", &d_not_recomputed},
                   {"needs the gradient of block", &d_backward_order_wrong},
                   {"has no activations", &d_dropped_twice},
                   {"has its gradients for this batch already", &d_computed_after_backward},
                   {"there is no batch", &d_no_batch}, {"there is no block", &d_no_such_block},
                   {"has no gradients yet", &d_block_left_out}))
