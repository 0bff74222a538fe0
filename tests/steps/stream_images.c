// Which images the trainer got: each once in a pass, in an order and in batches of the pass's own,
// shifted again; and each test image as it is.

#include "streams.h"
#include "diagnoses/stream_images.h"

#include <string.h>
#include "base/format.h"

// ---- Passes.

static Fault other_batch_size(const Worker *worker)
{
    const Stream *stream = &worker->train;
    int largest = 0;
    for (int i = 0; i < stream->count; i++)
        if (stream->items[i].size > largest)
            largest = stream->items[i].size;
    for (int i = 0; i < stream->count; i++)
        if (stream->items[i].size != worker->batch_size)
            return found_wrong(largest == worker->batch_size ? &d_remainder_kept
                                                             : &d_batch_size_wrong_training,
                               format_text("batch %d has %d images, and %d were asked for", i + 1,
                                           stream->items[i].size, worker->batch_size),
                               stream);
    return NO_FAULT;
}

static const Diagnosis *why_twice(const Stream *stream)
{
    if (comes_before(stream, "repeat", "shuffle"))
        return &d_shuffled_after_repeat;
    return comes_before(stream, "repeat", "batch") ? &d_batched_after_repeat : &d_images_twice;
}

// The first image that comes a second time in these batches; -1: none.
static int twice_in(const Taken *batches, int count)
{
    for (int i = 0; i < count; i++)
        for (int at = 0; at < batches[i].size; at++)
            for (int j = 0; j <= i; j++)
                for (int other = 0; other < (j == i ? at : batches[j].size); other++)
                    if (batches[j].image[other] == batches[i].image[at])
                        return batches[i].image[at];
    return -1;
}

// In all runs the shards of all ranks make the same number of whole batches.
static Fault other_length(const Worker *worker)
{
    int whole = worker->shard / worker->batch_size;
    if (worker->steps == whole)
        return NO_FAULT;
    return found_wrong(
        &d_epoch_changed,
        format_text("an epoch has %d steps, and a pass %d whole batches", worker->steps, whole),
        &worker->train);
}

Fault whole_passes(const void *item)
{
    const Worker *worker = item;
    Fault fault = other_length(worker);
    if (!fault.diagnosis)
        fault = other_batch_size(worker);
    if (fault.diagnosis)
        return fault;
    for (int pass = 0; pass < pass_count(worker); pass++) {
        int image = twice_in(pass_of(worker, pass), worker->steps);
        if (image >= 0)
            return found_wrong(why_twice(&worker->train),
                               format_text("image %d comes twice among the %d batches of epoch %d",
                                           image, worker->steps, pass + 1),
                               &worker->train);
    }
    return NO_FAULT;
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

static const Diagnosis *why_same_batches(const Stream *stream)
{
    return comes_before(stream, "batch", "shuffle") ? &d_shuffled_batches : &d_batches_fixed;
}

static Fault compare_passes(const Worker *worker, int earlier, int later)
{
    const Taken *a = pass_of(worker, earlier), *b = pass_of(worker, later);
    if (same_order(a, b, worker->steps))
        return found_wrong(
            why_same_order(&worker->train),
            format_text("epochs %d and %d have the same images in the same order: %d, %d, %d, ...",
                        earlier + 1, later + 1, a->image[0], a->image[1], a->image[2]),
            &worker->train);
    if (same_batches(a, b, worker->steps))
        return found_wrong(why_same_batches(&worker->train),
                           format_text("each batch of epoch %d has the images of one of epoch %d",
                                       later + 1, earlier + 1),
                           &worker->train);
    return NO_FAULT;
}

Fault other_orders(const void *item)
{
    const Worker *worker = item;
    for (int later = 1; later < pass_count(worker); later++)
        for (int earlier = 0; earlier < later; earlier++) {
            Fault fault = compare_passes(worker, earlier, later);
            if (fault.diagnosis)
                return fault;
        }
    return NO_FAULT;
}

// ---- Augmentation.

static const Diagnosis *why_same_pixels(const Stream *stream)
{
    return comes_before(stream, "augment", "cache") ? &d_cached_after_augment : &d_augmented_once;
}

// The first time that an image comes as it has come before.
static Fault same_pixels(const Stream *stream)
{
    for (int i = 1; i < stream->count; i++)
        for (int at = 0; at < stream->items[i].size; at++)
            for (int j = 0; j < i; j++)
                for (int other = 0; other < stream->items[j].size; other++) {
                    const Taken *a = &stream->items[j], *b = &stream->items[i];
                    if (a->image[other] == b->image[at] && strcmp(a->hash[other], b->hash[at]) == 0)
                        return found_wrong(
                            why_same_pixels(stream),
                            format_text("image %d has the same pixels in batches %d and %d",
                                        b->image[at], j + 1, i + 1),
                            stream);
                }
    return NO_FAULT;
}

Fault augmented_again(const void *item)
{
    const Worker *worker = item;
    int images, changed = changed_images(&worker->train, &images);
    if (images > 0 && changed < images)
        return found_wrong(&d_not_augmented,
                           format_text("%d of %d images are neither shifted nor flipped",
                                       images - changed, images),
                           &worker->train);
    if (stage_place(worker->train.stages, "augment", false) !=
        stage_place(worker->train.stages, "augment", true))
        return found_wrong(&d_augmented_twice,
                           format_text("pipeline_augment is called more than once"),
                           &worker->train);
    return same_pixels(&worker->train);
}

// ---- Validation.

// How often one image is among these batches.
static int times_in(const Taken *batches, int count, int image)
{
    int times = 0;
    for (int i = 0; i < count; i++)
        for (int at = 0; at < batches[i].size; at++)
            times += batches[i].image[at] == image;
    return times;
}

static Fault one_validation(const Worker *worker, const Taken *batches, int count)
{
    int images = 0, different = 0;
    for (int i = 0; i < count; i++)
        for (int at = 0; at < batches[i].size; at++) {
            images++;
            int earlier = times_in(batches, i, batches[i].image[at]);
            for (int other = 0; other < at; other++)
                earlier += batches[i].image[other] == batches[i].image[at];
            different += earlier == 0;
        }
    if (different == worker->shard && images == different)
        return NO_FAULT;
    return found_wrong(
        different < images ? &d_validation_twice : &d_validation_incomplete,
        format_text("%d images come in %d batches, %d different ones of a shard of %d", images,
                    count, different, worker->shard),
        &worker->test);
}

Fault validated_once(const void *item)
{
    const Worker *worker = item;
    const Stream *stream = &worker->test;
    int images, changed = changed_images(stream, &images);
    if (images == 0)
        return found_wrong(&d_validation_missing, format_text("no test images were taken"), stream);
    int size = (int)run_flag(worker->run, "--val-batch-size ");
    if (stream->items[0].size != size)
        return found_wrong(&d_batch_size_wrong_validation,
                           format_text("the first batch has %d images, and %d were asked for",
                                       stream->items[0].size, size),
                           stream);
    if (changed > 0)
        return found_wrong(
            &d_validation_augmented,
            format_text("%d of %d test images are not as they were read", changed, images), stream);
    for (int from = 0, to; from < stream->count; from = to) {
        for (to = from; to < stream->count && stream->items[to].begun == stream->items[from].begun;)
            to++;
        Fault fault = one_validation(worker, stream->items + from, to - from);
        if (fault.diagnosis)
            return fault;
    }
    return NO_FAULT;
}
