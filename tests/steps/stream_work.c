// What the stages cost: what is read from the disk again, what is held in memory, and what is left
// for the trainer's own thread.

#include "streams.h"

#include <math.h>
#include "base/format.h"

enum { IMAGE_BYTES = 28 * 28, MAX_BATCHES_AHEAD = 4 };

// ---- Reading.

static const Diagnosis *why_read_again(const Stream *stream)
{
    static const Diagnosis no_cache = {"not-cached",
                                       "images are read from the disk again in each pass. A cache "
                                       "keeps what came in the first one.",
                                       NULL};
    static const Diagnosis after_repeat = {
        "cached-after-repeat",
        "the cache comes after pipeline_repeat: the pass that it keeps never ends, so it asks for "
        "more and more, and grows with every pass.",
        NULL};
    static const Diagnosis again = {"read-again",
                                    "images that have been read come from the disk again.", NULL};
    if (!has_stage(stream, "cache"))
        return &no_cache;
    return comes_before(stream, "repeat", "cache") ? &after_repeat : &again;
}

static Finding read_once(const Worker *worker, const Stream *stream)
{
    double read = most_of(stream, "read");
    if (read <= worker->shard)
        return NOTHING;
    return found_wrong(why_read_again(stream),
                       format_text("%.0f images were read of a shard of %d", read, worker->shard),
                       stream);
}

Finding train_read_once(const Worker *worker)
{
    return read_once(worker, &worker->train);
}

Finding test_read_once(const Worker *worker)
{
    return read_once(worker, &worker->test);
}

// ---- What is held.

Finding buffer_size(const Worker *worker)
{
    static const Diagnosis large = {"buffer-too-large",
                                    "more images wait in shuffle buffers than "
                                    "args->shuffle_buffer. After pipeline_batch a place "
                                    "holds a whole batch.",
                                    NULL};
    static const Diagnosis small = {
        "buffer-too-small",
        "the next image is drawn among fewer than args->shuffle_buffer: "
        "the smaller the buffer, the nearer to the files' order.",
        NULL};
    const Stream *stream = &worker->train;
    double asked = run_flag(worker->run, "--shuffle-buffer "), held = most_of(stream, "buffered");
    if (held == fmin(asked, worker->shard))
        return NOTHING;
    return found_wrong(
        held > asked ? &large : &small,
        format_text("%.0f images have a place in the buffer, and --shuffle-buffer asks for %.0f",
                    held, asked),
        stream);
}

Finding cache_size(const Worker *worker)
{
    static const Diagnosis twice = {"cached-twice",
                                    "caches keep more images than there are: one is enough.", NULL};
    static const Diagnosis floats = {
        "cached-as-floats",
        "the cache keeps floats, four times the bytes. Images become floats when they are "
        "augmented, or prepared by pipeline_prefetch; before that they are bytes.",
        NULL};
    const Stream *stream = &worker->train;
    double images = most_of(stream, "cached") + most_of(stream, "filed"),
           bytes = most_of(stream, "cached_bytes") + most_of(stream, "filed_bytes");
    // In batches the last one has room for as many as the others.
    if (images >= worker->shard + worker->batch_size)
        return found_wrong(
            &twice, format_text("%.0f images are kept of a shard of %d", images, worker->shard),
            stream);
    if (images > 0 && bytes / images > 1.5 * IMAGE_BYTES)
        return found_wrong(
            &floats,
            format_text("an image takes %.0f bytes in the cache, and %d as it was read",
                        bytes / images, IMAGE_BYTES),
            stream);
    return NOTHING;
}

// ---- Who works.

static const Diagnosis *why_own_work(const Stream *stream)
{
    static const Diagnosis no_prefetch = {
        "not-prefetched",
        "nothing is ready when the trainer asks: it reads and prepares each batch itself, and "
        "computes nothing meanwhile.",
        NULL};
    static const Diagnosis early = {"prefetched-too-early",
                                    "threads do the work of the stages before pipeline_prefetch. "
                                    "The trainer does that of the stages after it.",
                                    NULL};
    return has_stage(stream, "prefetch") ? &early : &no_prefetch;
}

static Finding work_left(const Stream *stream)
{
    double own = 0, waited = 0;
    for (int i = 0; i < stream->count; i++) {
        own += event_number(stream->items[i].taken, "own");
        waited += event_number(stream->items[i].taken, "waited");
    }
    if (own == 0)
        return NOTHING;
    return found_wrong(
        why_own_work(stream),
        format_text("the trainer's own thread took images through a stage, %.0f times in all, and "
                    "waited %.3f s for its batches",
                    own, waited),
        stream);
}

Finding train_ahead(const Worker *worker)
{
    static const Diagnosis large = {
        "prefetch-too-large", "at most 4 batches are to be ready ahead of the trainer.", NULL};
    Finding work = work_left(&worker->train);
    double ahead = most_of(&worker->train, "ahead");
    if (work.diagnosis || ahead <= MAX_BATCHES_AHEAD * worker->batch_size)
        return work;
    return found_wrong(&large,
                       format_text("there is room for %.0f images, %.1f batches", ahead,
                                   ahead / worker->batch_size),
                       &worker->train);
}

Finding test_ahead(const Worker *worker)
{
    return work_left(&worker->test);
}

Finding trains_on(const Worker *worker)
{
    static const Diagnosis not_repeated = {
        "not-repeated",
        "the pipeline ends with a pass. Each epoch begins a new one: prepared batches are dropped, "
        "and the buffer is filled again while the trainer waits.",
        NULL};
    static const Diagnosis before = {
        "repeated-after-prefetch",
        "pipeline_repeat comes after the last pipeline_prefetch: threads stop at the end of each "
        "pass, until the trainer asks for the next one.",
        NULL};
    const Stream *stream = &worker->train;
    if (!stream->goes_on)
        return found_wrong(&not_repeated, format_text("every epoch begins again"), stream);
    if (comes_before(stream, "repeat", "prefetch") || !has_stage(stream, "prefetch"))
        return NOTHING;
    return found_wrong(&before, format_text("no prefetch goes over the end of a pass"), stream);
}
