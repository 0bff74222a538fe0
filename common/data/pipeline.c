// The stages without threads and without state between passes: the source, repeat, shuffle, augment
// and batch.

#include "data/pipeline_inside.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"

static void check_free(const Pipeline *upstream, const char *caller)
{
    if (!upstream)
        die("%s: there is no pipeline (NULL)", caller);
    if (upstream->taken)
        die("%s: another stage takes these images already; each line begins with p = , so that the "
            "next one goes on from there",
            caller);
}

void *new_stage(size_t size, Pipeline *upstream, const char *caller, char *name)
{
    check_free(upstream, caller);
    Pipeline *stage = allocate(1, size);
    upstream->taken = true;
    stage->upstream = upstream;
    stage->source = upstream->source;
    stage->form = upstream->form;
    stage->repeats = upstream->repeats;
    stage->name = name;
    stage->limit = INT64_MAX;
    lives_until_exit(stage);
    return stage;
}

static void rewind_upstream(Pipeline *stage)
{
    stage->passes++;
    stage->upstream->rewind(stage->upstream);
}

// ---- The source.

typedef struct {
    Pipeline stage;
    uint32_t *order; // of this pass; NULL: the files' own
    int position;
    int unpaid; // images for which nothing has been waited yet
} FirstStage;

// Simulates one disk, which all threads share: reads take turns, a batch of images at a time.
static void wait_for_disk(FirstStage *reader)
{
    double milliseconds = (double)settings()->slow_reader;
    Source *source = reader->stage.source;
    int batch_size = source->batch_size;
    if (milliseconds <= 0 || atomic_load(&source->skipping) || ++reader->unpaid < batch_size)
        return;
    reader->unpaid = 0;
    sleep_seconds(1e-3 * milliseconds);
}

static bool read_image(Pipeline *stage, Element *element)
{
    FirstStage *reader = (FirstStage *)stage;
    Source *source = stage->source;
    if (reader->position >= source->dataset.count)
        return false;
    wait_for_disk(reader);
    uint32_t number = reader->order ? reader->order[reader->position] : (uint32_t)reader->position;
    size_t length = image_length(&source->format);
    memcpy(element->bytes, source->dataset.images + number * length, length);
    element->labels[0] = source->dataset.labels[number];
    element->numbers[0] = number;
    element->count = 1;
    reader->position++;
    add_own_work(1);
    atomic_fetch_add_explicit(&source->read, 1, memory_order_relaxed);
    return true;
}

static void rewind_reader(Pipeline *stage)
{
    FirstStage *reader = (FirstStage *)stage;
    reader->position = 0;
    atomic_fetch_add_explicit(&stage->source->passes, 1, memory_order_relaxed);
    if (reader->order) {
        Rng rng = rng_stream_of(stage->seed, RNG_PERMUTATION, (uint64_t)stage->passes);
        rng_permutation(&rng, reader->order, (uint32_t)stage->source->dataset.count);
    }
    stage->passes++;
}

static void free_reader(Pipeline *stage)
{
    free(((FirstStage *)stage)->order);
    free(stage->source);
}

Pipeline *first_stage(const Dataset *dataset, Statistics statistics, bool permuted)
{
    if (!dataset || dataset->count < 1)
        die("there are no images to make batches of");
    Source *source = allocate(1, sizeof *source);
    source->dataset = *dataset;
    source->format = make_format(dataset->height, dataset->width, dataset->channels, &statistics);
    lives_until_exit(source);
    FirstStage *reader = allocate(1, sizeof *reader);
    reader->stage = (Pipeline){.next = read_image,
                               .rewind = rewind_reader,
                               .free = free_reader,
                               .source = source,
                               .form = {.size = 1},
                               .name = format_text("from_dataset")};
    if (permuted) {
        reader->stage.draws = DRAWS_ORDER;
        reader->order = allocate((size_t)dataset->count, sizeof *reader->order);
    }
    lives_until_exit(reader);
    return &reader->stage;
}

Pipeline *pipeline_from_dataset(const Dataset *dataset, Statistics statistics)
{
    return first_stage(dataset, statistics, false);
}

// ---- Repeat.

static bool next_of_any_pass(Pipeline *stage, Element *element)
{
    Pipeline *upstream = stage->upstream;
    if (upstream->next(upstream, element))
        return true;
    upstream->rewind(upstream);
    CHECK(upstream->next(upstream, element)); // no pass is empty
    return true;
}

static void free_nothing(Pipeline *stage)
{
    (void)stage;
}

Pipeline *pipeline_repeat(Pipeline *p)
{
    Pipeline *stage = new_stage(sizeof *stage, p, __func__, format_text("repeat"));
    stage->next = next_of_any_pass;
    stage->rewind = rewind_upstream;
    stage->free = free_nothing;
    stage->repeats = true;
    return stage;
}

// ---- Shuffle.

typedef struct {
    Pipeline stage;
    int places; // in the buffer
    Element *buffer;
    int allocated; // elements of it that have memory
    int filled;    // ... and are in use in this pass
    int drained;   // the first ones, which have been passed on at the pass's end
    bool ended;    // no more come
    Element arriving;
    Rng rng;
} Shuffle;

static bool pull_arriving(Shuffle *shuffle)
{
    Pipeline *upstream = shuffle->stage.upstream;
    shuffle->ended = shuffle->ended || !upstream->next(upstream, &shuffle->arriving);
    if (!shuffle->ended)
        add_own_work(shuffle->arriving.count);
    return !shuffle->ended;
}

static void add_place(Shuffle *shuffle)
{
    size_t count = (size_t)shuffle->allocated + 1;
    shuffle->buffer = enlarge(shuffle->buffer, count, sizeof *shuffle->buffer);
    Element *added = &shuffle->buffer[shuffle->allocated++];
    *added = new_element(shuffle->stage.source, shuffle->stage.form);
    add_held(&shuffle->stage.source->buffered, shuffle->stage.form, added);
}

// The Fisher-Yates shuffle, incremental: each new element swaps with one of those before it, or
// stays.
static void fill_buffer(Shuffle *shuffle)
{
    while (shuffle->filled < shuffle->places && pull_arriving(shuffle)) {
        int last = shuffle->filled++;
        if (last == shuffle->allocated)
            add_place(shuffle);
        int place = (int)rng_below(&shuffle->rng, (uint32_t)last + 1);
        swap_elements(&shuffle->buffer[last], &shuffle->arriving);
        swap_elements(&shuffle->buffer[last], &shuffle->buffer[place]);
    }
}

// At the end the buffer is passed on in its order: all orders are equally likely.
static bool next_shuffled(Pipeline *stage, Element *element)
{
    Shuffle *shuffle = (Shuffle *)stage;
    fill_buffer(shuffle);
    if (pull_arriving(shuffle)) {
        int place = (int)rng_below(&shuffle->rng, (uint32_t)shuffle->places);
        swap_elements(element, &shuffle->buffer[place]);
        swap_elements(&shuffle->buffer[place], &shuffle->arriving);
        return true;
    }
    if (shuffle->drained >= shuffle->filled)
        return false;
    swap_elements(element, &shuffle->buffer[shuffle->drained++]);
    return true;
}

static void rewind_shuffle(Pipeline *stage)
{
    Shuffle *shuffle = (Shuffle *)stage;
    shuffle->filled = shuffle->drained = 0;
    shuffle->ended = false;
    shuffle->rng = rng_stream_of(stage->seed, RNG_PERMUTATION, (uint64_t)stage->passes);
    rewind_upstream(stage);
}

static void free_shuffle(Pipeline *stage)
{
    Shuffle *shuffle = (Shuffle *)stage;
    for (int i = 0; i < shuffle->allocated; i++)
        free_element(&shuffle->buffer[i]);
    free(shuffle->buffer);
    free_element(&shuffle->arriving);
}

Pipeline *pipeline_shuffle(Pipeline *p, int buffer_size)
{
    if (buffer_size < 1)
        die("%s: a buffer of %d places can't hold anything", __func__, buffer_size);
    check_free(p, __func__);
    if (!settings()->shuffle)
        return p;
    Shuffle *shuffle =
        new_stage(sizeof *shuffle, p, __func__, format_text("shuffle %d", buffer_size));
    shuffle->stage.next = next_shuffled;
    shuffle->stage.rewind = rewind_shuffle;
    shuffle->stage.free = free_shuffle;
    shuffle->stage.draws = DRAWS_ORDER;
    shuffle->places = buffer_size;
    shuffle->arriving = new_element(p->source, p->form);
    return &shuffle->stage;
}

// ---- Augment.

typedef struct {
    Pipeline stage;
    bool again; // what comes is still to be augmented by a stage before this one
    Element arriving;
    Scratch scratch;
    uint64_t drawn; // elements since it was seeded
} Augment;

static bool next_to_augment(Pipeline *stage, Element *element)
{
    Augment *augment = (Augment *)stage;
    Pipeline *upstream = stage->upstream;
    if (!upstream->next(upstream, augment->again ? &augment->arriving : element))
        return false;
    if (augment->again)
        prepare(stage->source, upstream->form, &augment->arriving, &augment->scratch, element);
    uint64_t first = augment->drawn++ * (uint64_t)stage->form.size;
    for (int i = 0; i < element->count; i++)
        element->streams[i] = rng_stream_of(stage->seed, RNG_AUGMENTATION, first + (uint64_t)i);
    add_own_work(element->count);
    return true;
}

static void rewind_augment(Pipeline *stage)
{
    if (stage->passes == 0)
        ((Augment *)stage)->drawn = 0;
    rewind_upstream(stage);
}

static void free_augment(Pipeline *stage)
{
    Augment *augment = (Augment *)stage;
    free_element(&augment->arriving);
    free_scratch(&augment->scratch);
}

Pipeline *pipeline_augment(Pipeline *p)
{
    check_free(p, __func__);
    if (!settings()->augment)
        return p;
    Augment *augment = new_stage(sizeof *augment, p, __func__, format_text("augment"));
    augment->stage.next = next_to_augment;
    augment->stage.rewind = rewind_augment;
    augment->stage.free = free_augment;
    augment->stage.draws = DRAWS_AUGMENTATION;
    augment->again = p->form.pending;
    if (augment->again) {
        augment->stage.form.floats = true;
        augment->arriving = new_element(p->source, p->form);
        augment->scratch = allocate_scratch(&p->source->format);
    }
    augment->stage.form.pending = true;
    return &augment->stage;
}

// ---- Batch.

typedef struct {
    Pipeline stage;
    bool drop_remainder;
    Element arriving;
} Batcher;

static void append(const Element *image, size_t length, Element *batch)
{
    size_t at = (size_t)batch->count++;
    batch->labels[at] = image->labels[0];
    batch->numbers[at] = image->numbers[0];
    batch->streams[at] = image->streams[0];
    if (batch->bytes)
        memcpy(batch->bytes + at * length, image->bytes, length);
    else
        memcpy(batch->floats + at * length, image->floats, length * sizeof *batch->floats);
}

static bool next_batch(Pipeline *stage, Element *element)
{
    Batcher *batcher = (Batcher *)stage;
    size_t length = image_length(&stage->source->format);
    int size = stage->form.size;
    element->count = 0;
    while (element->count < size && stage->upstream->next(stage->upstream, &batcher->arriving))
        append(&batcher->arriving, length, element);
    add_own_work(element->count);
    return element->count == size || (element->count > 0 && !batcher->drop_remainder);
}

static void free_batcher(Pipeline *stage)
{
    free_element(&((Batcher *)stage)->arriving);
}

Pipeline *pipeline_batch(Pipeline *p, int size, bool drop_remainder)
{
    if (size < 1)
        die("a batch of %d images cannot be trained on", size);
    Batcher *batcher =
        new_stage(sizeof *batcher, p, __func__,
                  format_text("batch %d%s", size, drop_remainder ? " drop_remainder" : ""));
    Source *source = p->source;
    if (p->form.batches)
        die("%s: these are batches already", __func__);
    if (drop_remainder && !p->repeats && size > source->dataset.count)
        die("%s: %d images make no batch of %d, and what remains is to be dropped", __func__,
            source->dataset.count, size);
    source->batch_size = size;
    source->short_batch = !drop_remainder;
    batcher->stage.next = next_batch;
    batcher->stage.rewind = rewind_upstream;
    batcher->stage.free = free_batcher;
    batcher->stage.form.size =
        size < source->dataset.count || p->repeats ? size : source->dataset.count;
    batcher->stage.form.batches = true;
    batcher->drop_remainder = drop_remainder;
    batcher->arriving = new_element(source, p->form);
    return &batcher->stage;
}
