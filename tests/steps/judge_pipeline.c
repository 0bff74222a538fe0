// Pipeline: what the trainer got, batch by batch, on each rank, and what the stages did for it.
// Batches are read by streams.c; which images are in them is judged in stream_images.c, and what
// they cost in stream_work.c.

#include "end.h"
#include "streams.h"
#include "diagnoses/judge_pipeline.h"

#include <stdlib.h>
#include "base/format.h"

#define READ      "training images are read from the disk once"
#define PASSES    "a pass has each image at most once, in whole batches"
#define ORDER     "each pass has an order and batches of its own"
#define AUGMENTED "images are shifted and flipped in another way in each pass"
#define BUFFER    "the shuffle buffer has the size that was asked for"
#define MEMORY    "the cache keeps each image once, as bytes"
#define AHEAD     "threads have training batches ready, at most 4 ahead"
#define GOES_ON   "they go on between epochs"
#define EACH_ONCE "validation has each image once, unchanged"
#define TEST_READ "validation images are read from the disk once"
#define TEST_OWN  "threads have validation batches ready"

static const ItemProperty properties[] = {
    {READ, train_read_once, NULL},      {PASSES, whole_passes, NULL},
    {AUGMENTED, augmented_again, NULL}, {ORDER, other_orders, NULL},
    {MEMORY, cache_size, READ},         {BUFFER, buffer_size, NULL},
    {AHEAD, train_ahead, NULL},         {GOES_ON, trains_on, NULL},
    {EACH_ONCE, validated_once, NULL},  {TEST_READ, test_read_once, NULL},
    {TEST_OWN, test_ahead, NULL},       {0},
};

static Fault each_worker(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    Fault found = NO_FAULT;
    for (int rank = 0; rank < run->ranks && !found.diagnosis; rank++) {
        Worker worker = worker_of(run, rank);
        found = fault_at((*fault)(&worker), "rank %d: ", rank);
        worker_free(&worker);
    }
    return found;
}

// The first rank of a run that took no training image, -1 where all have.
static int idle_rank(const Run *run)
{
    for (int rank = 0; rank < run->ranks; rank++) {
        Worker worker = worker_of(run, rank);
        int passes = pass_count(&worker);
        worker_free(&worker);
        if (passes < 2)
            return rank;
    }
    return -1;
}

static bool untrained(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        int rank = idle_rank(run);
        if (rank < 0)
            continue;
        report_failure_in(report, runs, run, PASSES, &d_nothing_trained, "rank %d trains on fewer",
                          rank);
        return true;
    }
    return false;
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, PASSES, report) || untrained(runs, report))
        return;
    judge_items(runs, each_worker, properties, report);
}

JUDGE("pipeline", judge)
OWN_ENDS("pipeline",
         EXPLAINED({"another stage takes these images already", &d_stage_lost},
                   {"a stage takes these batches already", &d_stage_lost_before_batches},
                   {"gives single images", &d_not_batched},
                   {"these are batches already", &d_batched_twice},
                   {"the pipeline's pass is over", &d_pass_over}))
