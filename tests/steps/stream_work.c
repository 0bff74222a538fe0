// What the stages cost: what is read from the disk again, what is held in memory, and what is left
// for the trainer's own thread.

#include "streams.h"
#include "diagnoses/stream_work.h"

#include <math.h>
#include "base/format.h"

enum { IMAGE_BYTES = 28 * 28, MAX_BATCHES_AHEAD = 4 };

// ---- Reading.

static const Diagnosis *why_too_many(const Stream *stream)
{
    if (!has_stage(stream, "cache"))
        return &d_not_cached;
    return comes_before(stream, "repeat", "cache") ? &d_cached_after_repeat : &d_not_sharded;
}

static Fault read_once(const Worker *worker, const Stream *stream)
{
    double read = most_of(stream, "read");
    if (read <= worker->shard)
        return NO_FAULT;
    return found_wrong(why_too_many(stream),
                       format_text("%.0f images were read of a shard of %d", read, worker->shard),
                       stream);
}

Fault train_read_once(const void *item)
{
    const Worker *worker = item;
    return read_once(worker, &worker->train);
}

Fault test_read_once(const void *item)
{
    const Worker *worker = item;
    return read_once(worker, &worker->test);
}

// ---- What is held.

Fault buffer_size(const void *item)
{
    const Worker *worker = item;
    const Stream *stream = &worker->train;
    double asked = run_flag(worker->run, "--shuffle-buffer "), held = most_of(stream, "buffered");
    if (held == fmin(asked, worker->shard))
        return NO_FAULT;
    return found_wrong(
        held > asked ? &d_buffer_too_large : &d_buffer_too_small,
        format_text("the buffer has room for %.0f images, and --shuffle-buffer asks for %.0f", held,
                    asked),
        stream);
}

Fault cache_size(const void *item)
{
    const Worker *worker = item;
    const Stream *stream = &worker->train;
    double images = most_of(stream, "cached") + most_of(stream, "filed"),
           bytes = most_of(stream, "cached_bytes") + most_of(stream, "filed_bytes");
    // In batches the last one has room for as many as the others.
    if (images >= worker->shard + worker->batch_size)
        return found_wrong(
            &d_cached_twice,
            format_text("%.0f images are kept of a shard of %d", images, worker->shard), stream);
    if (images > 0 && bytes / images > 1.5 * IMAGE_BYTES)
        return found_wrong(
            &d_cached_as_floats,
            format_text("an image takes %.0f bytes in the cache, and %d as it was read",
                        bytes / images, IMAGE_BYTES),
            stream);
    return NO_FAULT;
}

// ---- Who works.

static const Diagnosis *why_own_work(const Stream *stream)
{
    return has_stage(stream, "prefetch") ? &d_prefetched_too_early : &d_not_prefetched;
}

static Fault work_left(const Stream *stream)
{
    double own = 0, waited = 0;
    for (int i = 0; i < stream->count; i++) {
        own += event_number(stream->items[i].taken, "own");
        waited += event_number(stream->items[i].taken, "waited");
    }
    if (own == 0)
        return NO_FAULT;
    return found_wrong(
        why_own_work(stream),
        format_text("the trainer's own thread took images through a stage, %.0f times in all, and "
                    "waited %.3f s for its batches",
                    own, waited),
        stream);
}

Fault train_ahead(const void *item)
{
    const Worker *worker = item;
    Fault work = work_left(&worker->train);
    double ahead = most_of(&worker->train, "ahead");
    if (work.diagnosis || ahead <= MAX_BATCHES_AHEAD * worker->batch_size)
        return work;
    return found_wrong(&d_prefetch_too_large,
                       format_text("there is room for %.0f images, %.1f batches", ahead,
                                   ahead / worker->batch_size),
                       &worker->train);
}

Fault test_ahead(const void *item)
{
    const Worker *worker = item;
    return work_left(&worker->test);
}

Fault trains_on(const void *item)
{
    const Worker *worker = item;
    const Stream *stream = &worker->train;
    if (!stream->goes_on)
        return found_wrong(&d_not_repeated, format_text("every epoch begins again"), stream);
    if (comes_before(stream, "repeat", "prefetch") || !has_stage(stream, "prefetch"))
        return NO_FAULT;
    return found_wrong(&d_repeated_after_prefetch,
                       format_text("no prefetch goes over the end of a pass"), stream);
}
