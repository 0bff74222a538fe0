// Which images the trainer got: each once in a pass, in an order and in batches of the pass's own,
// shifted again; and each test image as it is.

#include "streams.h"

#include <string.h>
#include "base/format.h"

// ---- Passes.

static Finding other_batch_size(const Worker *worker)
{
    static const Diagnosis kept = {"remainder-kept",
                                   "a batch is shorter than was asked for: the last one of a pass, "
                                   "which is to be left out.",
                                   NULL};
    static const Diagnosis wrong = {"batch-size-wrong",
                                    "training batches have args->batch_size images.", NULL};
    const Stream *stream = &worker->train;
    int largest = 0;
    for (int i = 0; i < stream->count; i++)
        if (stream->items[i].size > largest)
            largest = stream->items[i].size;
    for (int i = 0; i < stream->count; i++)
        if (stream->items[i].size != worker->batch_size)
            return found_wrong(largest == worker->batch_size ? &kept : &wrong,
                               format_text("batch %d has %d images, and %d were asked for", i + 1,
                                           stream->items[i].size, worker->batch_size),
                               stream);
    return NOTHING;
}

static const Diagnosis *why_twice(const Stream *stream)
{
    static const Diagnosis shuffled = {
        "shuffled-after-repeat",
        "the buffer is filled from pipeline_repeat, so that images of the next pass are in it "
        "before this one has ended: some come twice, before others have come once.",
        NULL};
    static const Diagnosis batched = {
        "batched-after-repeat",
        "batches are made of what pipeline_repeat gives, which has no ends of passes any more: a "
        "batch goes on with images of the next pass, and nothing is left out.",
        NULL};
    static const Diagnosis twice = {"images-twice", "an image comes again before the pass is over.",
                                    NULL};
    if (comes_before(stream, "repeat", "shuffle"))
        return &shuffled;
    return comes_before(stream, "repeat", "batch") ? &batched : &twice;
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
static Finding other_length(const Worker *worker)
{
    static const Diagnosis changed = {"epoch-changed",
                                      "an epoch is one pass, as many whole batches as the smallest "
                                      "shard has: steps_per_epoch was "
                                      "right as it was.",
                                      NULL};
    int whole = worker->shard / worker->batch_size;
    if (worker->steps == whole)
        return NOTHING;
    return found_wrong(
        &changed,
        format_text("an epoch has %d steps, and a pass %d whole batches", worker->steps, whole),
        &worker->train);
}

Finding whole_passes(const Worker *worker)
{
    Finding finding = other_length(worker);
    if (!finding.diagnosis)
        finding = other_batch_size(worker);
    if (finding.diagnosis)
        return finding;
    for (int pass = 0; pass < pass_count(worker); pass++) {
        int image = twice_in(pass_of(worker, pass), worker->steps);
        if (image >= 0)
            return found_wrong(why_twice(&worker->train),
                               format_text("image %d comes twice among the %d batches of epoch %d",
                                           image, worker->steps, pass + 1),
                               &worker->train);
    }
    return NOTHING;
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
    static const Diagnosis unshuffled = {
        "not-shuffled", "images come in the files' order, one class after another, in every pass.",
        NULL};
    static const Diagnosis cached = {
        "cached-after-shuffle",
        "the order was drawn before the cache, which keeps it: each later pass repeats the first.",
        NULL};
    static const Diagnosis repeats = {"order-repeats", "a pass has the order of an earlier one.",
                                      NULL};
    if (!has_stage(stream, "shuffle"))
        return &unshuffled;
    return comes_before(stream, "shuffle", "cache") ? &cached : &repeats;
}

static const Diagnosis *why_same_batches(const Stream *stream)
{
    static const Diagnosis shuffled = {
        "shuffled-batches",
        "the shuffle comes after pipeline_batch, so that whole batches change places. Which images "
        "are together in one is always the same, here those of one class.",
        NULL};
    static const Diagnosis fixed = {
        "batches-fixed", "the same images are together in a batch in more than one pass.", NULL};
    return comes_before(stream, "batch", "shuffle") ? &shuffled : &fixed;
}

static Finding compare_passes(const Worker *worker, int earlier, int later)
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
    return NOTHING;
}

Finding other_orders(const Worker *worker)
{
    for (int later = 1; later < pass_count(worker); later++)
        for (int earlier = 0; earlier < later; earlier++) {
            Finding finding = compare_passes(worker, earlier, later);
            if (finding.diagnosis)
                return finding;
        }
    return NOTHING;
}

// ---- Augmentation.

static const Diagnosis *why_same_pixels(const Stream *stream)
{
    static const Diagnosis cached = {
        "cached-after-augment",
        "images are shifted and flipped before the cache, which keeps them so: each later pass has "
        "the pictures of the first.",
        NULL};
    static const Diagnosis once = {
        "augmented-once", "an image comes with the same shift in more than one pass.", NULL};
    return comes_before(stream, "augment", "cache") ? &cached : &once;
}

// The first time that an image comes as it has come before.
static Finding same_pixels(const Stream *stream)
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
    return NOTHING;
}

Finding augmented_again(const Worker *worker)
{
    static const Diagnosis not_augmented = {
        "not-augmented", "training images reach the trainer as they were read.", NULL};
    static const Diagnosis twice = {"augmented-twice",
                                    "images are shifted twice, further than they should be.", NULL};
    int images, changed = changed_images(&worker->train, &images);
    if (images > 0 && changed < images)
        return found_wrong(&not_augmented,
                           format_text("%d of %d images are neither shifted nor flipped",
                                       images - changed, images),
                           &worker->train);
    if (stage_place(worker->train.stages, "augment", false) !=
        stage_place(worker->train.stages, "augment", true))
        return found_wrong(&twice, format_text("pipeline_augment is called more than once"),
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

static Finding one_validation(const Worker *worker, const Taken *batches, int count)
{
    static const Diagnosis dropped = {"validation-incomplete",
                                      "test images are left out. Often it is the short batch at "
                                      "the end: in validation it belongs "
                                      "to it.",
                                      NULL};
    static const Diagnosis twice = {"validation-twice",
                                    "a test image comes twice in one validation. Often batches "
                                    "are made of what pipeline_repeat gives.",
                                    NULL};
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
        return NOTHING;
    return found_wrong(
        different < images ? &twice : &dropped,
        format_text("%d images come in %d batches, %d different ones of a shard of %d", images,
                    count, different, worker->shard),
        &worker->test);
}

Finding validated_once(const Worker *worker)
{
    static const Diagnosis changed_ones = {"validation-augmented",
                                           "test images are shifted and flipped. The measurement "
                                           "must use the same images in each epoch.",
                                           NULL};
    static const Diagnosis size_wrong = {
        "batch-size-wrong", "validation batches have args->val_batch_size images.", NULL};
    static const Diagnosis none = {"validation-missing", "no test image reaches the trainer.",
                                   NULL};
    const Stream *stream = &worker->test;
    int images, changed = changed_images(stream, &images);
    if (images == 0)
        return found_wrong(&none, format_text("no test images were taken"), stream);
    int size = (int)run_flag(worker->run, "--val-batch-size ");
    if (stream->items[0].size != size)
        return found_wrong(&size_wrong,
                           format_text("the first batch has %d images, and %d were asked for",
                                       stream->items[0].size, size),
                           stream);
    if (changed > 0)
        return found_wrong(
            &changed_ones,
            format_text("%d of %d test images are not as they were read", changed, images), stream);
    for (int from = 0, to; from < stream->count; from = to) {
        for (to = from; to < stream->count && stream->items[to].begun == stream->items[from].begun;)
            to++;
        Finding finding = one_validation(worker, stream->items + from, to - from);
        if (finding.diagnosis)
            return finding;
    }
    return NOTHING;
}
