// Pipeline: what the trainer got, batch by batch, on each rank, and what the stages did for it.
// Batches are read by streams.c.

#include "end.h"
#include "streams.h"
#include "diagnoses/judge_pipeline.h"

#include <math.h>
#include <string.h>

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

enum { IMAGE_BYTES = 28 * 28, MAX_BATCHES_AHEAD = 4 };

// ---- Passes.

static Fault other_batch_size(const Worker *worker)
{
    const Stream *stream = &worker->train;
    int largest = 0;
    for (int i = 0; i < stream->count; i++)
        if (stream->items[i].size > largest)
            largest = stream->items[i].size;
    bool is_last = largest == worker->batch_size;
    for (int i = 0; i < stream->count; i++)
        if (stream->items[i].size != worker->batch_size)
            return found_wrong(stream, is_last ? &d_remainder_kept : &d_batch_size_wrong_training,
                               "batch %d has %d images, and %d were asked for", i + 1,
                               stream->items[i].size, worker->batch_size);
    return NO_FAULT;
}

static const Diagnosis *why_twice(const Stream *stream)
{
    if (comes_before(stream, "repeat", "shuffle"))
        return &d_shuffled_after_repeat;
    return comes_before(stream, "repeat", "batch") ? &d_batched_after_repeat : &d_images_twice;
}

// True where the image at that place of a batch came before, in this one or an earlier one of these.
static bool came_before(const Taken *batches, int batch, int at)
{
    for (int i = 0; i <= batch; i++)
        for (int other = 0; other < (i == batch ? at : batches[i].size); other++)
            if (batches[i].image[other] == batches[batch].image[at])
                return true;
    return false;
}

static Fault whole_passes(const void *item)
{
    const Worker *worker = item;
    // In all runs the shards of all ranks make the same number of whole batches.
    int whole = worker->shard / worker->batch_size;
    if (worker->steps != whole)
        return found_wrong(&worker->train, &d_epoch_changed,
                           "an epoch has %d steps, and a pass %d whole batches", worker->steps,
                           whole);
    Fault fault = other_batch_size(worker);
    for (int p = 0; p < pass_count(worker) && !fault.diagnosis; p++) {
        const Taken *pass = pass_of(worker, p);
        for (int i = 0; i < worker->steps; i++)
            for (int at = 0; at < pass[i].size && !fault.diagnosis; at++)
                if (came_before(pass, i, at))
                    fault = found_wrong(&worker->train, why_twice(&worker->train),
                                        "image %d comes twice among the %d batches of epoch %d",
                                        pass[i].image[at], worker->steps, p + 1);
    }
    return fault;
}

// ---- Order.

static bool same_order(const Taken *a, const Taken *b, int batches)
{
    for (int i = 0; i < batches; i++)
        if (a[i].size != b[i].size || memcmp(a[i].image, b[i].image, sizeof a[i].image) != 0)
            return false;
    return true;
}

static bool same_images(const Taken *a, const Taken *b)
{
    int shared = 0;
    for (int i = 0; i < a->size; i++)
        for (int j = 0; j < b->size; j++)
            shared += a->image[i] == b->image[j];
    return a->size == b->size && shared == a->size;
}

// True where each batch of one pass is one of the other pass, too.
static bool same_batches(const Taken *a, const Taken *b, int batches)
{
    int found_again = 0;
    for (int i = 0; i < batches; i++)
        for (int j = 0; j < batches; j++)
            found_again += same_images(&a[i], &b[j]);
    return batches > 1 && found_again >= batches;
}

static const Diagnosis *why_same_order(const Stream *stream)
{
    if (!has_stage(stream, "shuffle"))
        return &d_not_shuffled;
    return comes_before(stream, "shuffle", "cache") ? &d_cached_after_shuffle : &d_order_repeats;
}

static Fault compare_passes(const Worker *worker, int earlier, int later)
{
    const Stream *stream = &worker->train;
    const Taken *a = pass_of(worker, earlier), *b = pass_of(worker, later);
    if (same_order(a, b, worker->steps))
        return found_wrong(
            stream, why_same_order(stream),
            "epochs %d and %d have the same images in the same order: %d, %d, %d, ...", earlier + 1,
            later + 1, a->image[0], a->image[1], a->image[2]);
    bool of_batches = comes_before(stream, "batch", "shuffle");
    if (same_batches(a, b, worker->steps))
        return found_wrong(stream, of_batches ? &d_shuffled_batches : &d_batches_fixed,
                           "each batch of epoch %d has the images of one of epoch %d", later + 1,
                           earlier + 1);
    return NO_FAULT;
}

static Fault other_orders(const void *item)
{
    const Worker *worker = item;
    Fault fault = NO_FAULT;
    for (int later = 1; later < pass_count(worker); later++)
        for (int earlier = 0; earlier < later && !fault.diagnosis; earlier++)
            fault = compare_passes(worker, earlier, later);
    return fault;
}

// ---- Augmentation.

// The batch before this one in which the image at a place of it has just these pixels; -1: there is none.
static int batch_with_pixels(const Taken *batches, int batch, int at)
{
    for (int i = 0; i < batch; i++)
        for (int other = 0; other < batches[i].size; other++)
            if (batches[i].image[other] == batches[batch].image[at] &&
                strcmp(batches[i].hash[other], batches[batch].hash[at]) == 0)
                return i;
    return -1;
}

static Fault augmented_again(const void *item)
{
    const Stream *stream = &((const Worker *)item)->train;
    int images = images_of(stream), changed = (int)sum_of(stream, "changed");
    if (changed < images)
        return found_wrong(stream, &d_not_augmented,
                           "%d of %d images are neither shifted nor flipped", images - changed,
                           images);
    if (comes_before(stream, "augment", "augment"))
        return found_wrong(stream, &d_augmented_twice, "pipeline_augment is called more than once");
    bool kept = comes_before(stream, "augment", "cache");
    for (int i = 1; i < stream->count; i++)
        for (int at = 0; at < stream->items[i].size; at++) {
            int before = batch_with_pixels(stream->items, i, at);
            if (before >= 0)
                return found_wrong(stream, kept ? &d_cached_after_augment : &d_augmented_once,
                                   "image %d has the same pixels in batches %d and %d",
                                   stream->items[i].image[at], before + 1, i + 1);
        }
    return NO_FAULT;
}

// ---- Validation.

static Fault one_validation(const Worker *worker, const Taken *batches, int count)
{
    int images = 0, different = 0;
    for (int i = 0; i < count; i++)
        for (int at = 0; at < batches[i].size; at++) {
            images++;
            different += !came_before(batches, i, at);
        }
    if (different == worker->shard && images == different)
        return NO_FAULT;
    return found_wrong(&worker->test,
                       different < images ? &d_validation_twice : &d_validation_incomplete,
                       "%d images come in %d batches, %d different ones of a shard of %d", images,
                       count, different, worker->shard);
}

static Fault validated_once(const void *item)
{
    const Worker *worker = item;
    const Stream *stream = &worker->test;
    int images = images_of(stream), changed = (int)sum_of(stream, "changed");
    int size = (int)run_flag(worker->run, "--val-batch-size ");
    if (images == 0)
        return found_wrong(stream, &d_validation_missing, "no test images were taken");
    if (stream->items[0].size != size)
        return found_wrong(stream, &d_batch_size_wrong_validation,
                           "the first batch has %d images, and %d were asked for",
                           stream->items[0].size, size);
    if (changed > 0)
        return found_wrong(stream, &d_validation_augmented,
                           "%d of %d test images are not as they were read", changed, images);
    Fault fault = NO_FAULT;
    for (int from = 0, to; from < stream->count && !fault.diagnosis; from = to) {
        for (to = from; to < stream->count && stream->items[to].begun == stream->items[from].begun;)
            to++;
        fault = one_validation(worker, stream->items + from, to - from);
    }
    return fault;
}

// ---- Reading.

static Fault read_once(const Worker *worker, const Stream *stream)
{
    double read = most_of(stream, "read");
    const Diagnosis *why = !has_stage(stream, "cache")               ? &d_not_cached
                           : comes_before(stream, "repeat", "cache") ? &d_cached_after_repeat
                                                                     : &d_not_sharded;
    return read <= worker->shard
               ? NO_FAULT
               : found_wrong(stream, why, "%.0f images were read of a shard of %d", read,
                             worker->shard);
}

static Fault train_read_once(const void *item)
{
    const Worker *worker = item;
    return read_once(worker, &worker->train);
}

static Fault test_read_once(const void *item)
{
    const Worker *worker = item;
    return read_once(worker, &worker->test);
}

// ---- What is held.

static Fault buffer_size(const void *item)
{
    const Worker *worker = item;
    double asked = run_flag(worker->run, "--shuffle-buffer "),
           held = most_of(&worker->train, "buffered");
    if (held == fmin(asked, worker->shard))
        return NO_FAULT;
    return found_wrong(&worker->train, held > asked ? &d_buffer_too_large : &d_buffer_too_small,
                       "the buffer has room for %.0f images, and --shuffle-buffer asks for %.0f",
                       held, asked);
}

static Fault cache_size(const void *item)
{
    const Worker *worker = item;
    const Stream *stream = &worker->train;
    double images = most_of(stream, "cached") + most_of(stream, "filed"),
           bytes = most_of(stream, "cached_bytes") + most_of(stream, "filed_bytes");
    // In batches the last one has room for as many as the others.
    if (images >= worker->shard + worker->batch_size)
        return found_wrong(stream, &d_cached_twice, "%.0f images are kept of a shard of %d", images,
                           worker->shard);
    if (images > 0 && bytes / images > 1.5 * IMAGE_BYTES)
        return found_wrong(stream, &d_cached_as_floats,
                           "an image takes %.0f bytes in the cache, and %d as it was read",
                           bytes / images, IMAGE_BYTES);
    return NO_FAULT;
}

// ---- Who works.

static Fault work_left(const Stream *stream)
{
    double own = sum_of(stream, "own");
    bool ahead = has_stage(stream, "prefetch");
    return own == 0 ? NO_FAULT
                    : found_wrong(stream, ahead ? &d_prefetched_too_early : &d_not_prefetched,
                                  "the trainer's own thread took images through a stage, %.0f "
                                  "times in all, and waited %.3f s for its batches",
                                  own, sum_of(stream, "waited"));
}

static Fault train_ahead(const void *item)
{
    const Worker *worker = item;
    Fault work = work_left(&worker->train);
    double ahead = most_of(&worker->train, "ahead");
    if (work.diagnosis || ahead <= MAX_BATCHES_AHEAD * worker->batch_size)
        return work;
    return found_wrong(&worker->train, &d_prefetch_too_large,
                       "there is room for %.0f images, %.1f batches", ahead,
                       ahead / worker->batch_size);
}

static Fault test_ahead(const void *item)
{
    return work_left(&((const Worker *)item)->test);
}

static Fault trains_on(const void *item)
{
    const Stream *stream = &((const Worker *)item)->train;
    if (!stream->goes_on)
        return found_wrong(stream, &d_not_repeated, "every epoch begins again");
    if (comes_before(stream, "repeat", "prefetch") || !has_stage(stream, "prefetch"))
        return NO_FAULT;
    return found_wrong(stream, &d_repeated_after_prefetch,
                       "no prefetch goes over the end of a pass");
}

// ---- All of it.

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

static Fault training_fault(const void *worker)
{
    return pass_count(worker) >= 2 ? NO_FAULT
                                   : fault_with(&d_nothing_trained, "it trains on fewer");
}

static void judge(const Runs *runs, Report *report)
{
    bool trained = !nothing_trained(runs, PASSES, report);
    for (const Run *run = runs->items; trained && run < runs_end(runs); run++)
        trained = report_fault(report, runs, run, PASSES, each_worker(runs, run, training_fault));
    if (trained)
        judge_items(runs, each_worker, properties, report);
}

JUDGE("pipeline", judge)
OWN_ENDS("pipeline",
         EXPLAINED({"another stage takes these images already", &d_stage_lost},
                   {"a stage takes these batches already", &d_stage_lost_before_batches},
                   {"gives single images", &d_not_batched},
                   {"these are batches already", &d_batched_twice},
                   {"the pipeline's pass is over", &d_pass_over}))
