// Batches: the trainer takes them from a pipeline, step by step.

#include "data/batches.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "base/numbers.h"
#include "base/hash.h"
#include "data/hooks.h"
#include "data/pipeline_inside.h"
#include "observe/span.h"
#include "observe/trace.h"

void (*images_were_drawn)(const DrawnImages *drawn);

struct Batches {
    Pipeline *last; // stage
    bool goes_on;   // from one batches_begin to the next
    bool begun;
    uint64_t id;     // no two of a thread draw the same numbers
    uint64_t begins; // calls of batches_begin so far
    int64_t steps;   // asked for
    int64_t handed;  // to the trainer
    int64_t taken;   // since the pipeline was seeded
    Element arriving, current;
    Scratch scratch;
};

// ---- Made.

// "from_dataset,shuffle 100", up to this one; the caller frees it.
static char *stages_text(const Pipeline *stage)
{
    char *stages = stage->upstream ? stages_text(stage->upstream) : NULL;
    text_add(&stages, "%s%s", stages ? "," : "", stage->name);
    return stages;
}

static void trace_stages(const Batches *batches)
{
    if (!trace_on())
        return;
    char *stages = stages_text(batches->last);
    trace("pipeline", NUMBER("batches", batches->id), TEXT("stages", stages),
          NUMBER("goes_on", batches->goes_on));
    free(stages);
}

static Batches *new_batches(Pipeline *last, bool goes_on)
{
    static _Thread_local uint64_t created;
    Batches *batches = allocate(1, sizeof *batches);
    last->taken = true;
    batches->last = last;
    batches->goes_on = goes_on;
    batches->id = created++;
    batches->arriving = new_element(last->source, last->form);
    batches->current = new_element(last->source, prepared(last->form));
    batches->scratch = allocate_scratch(&last->source->format);
    lives_until_exit(batches);
    trace_stages(batches);
    return batches;
}

Batches *batches_from(Pipeline *p)
{
    if (!p || p->taken)
        die("%s: %s", __func__,
            p ? "a stage takes these batches already; each line begins with p = , so that the next "
                "one goes on from there"
              : "there is no pipeline (NULL)");
    if (!p->form.batches)
        die("%s: the pipeline gives single images; pipeline_batch makes batches of them", __func__);
    return new_batches(p, p->repeats);
}

// Fresh permutations; no step is prepared before it is needed.
static Batches *ready_made(const Dataset *dataset, Statistics statistics, int batch_size,
                           bool augmented)
{
    Pipeline *p = first_stage(dataset, statistics, settings()->shuffle);
    p = pipeline_batch(p, batch_size, false);
    p = pipeline_repeat(p);
    if (augmented)
        p = pipeline_augment(p);
    return new_batches(prefetch_for_threads(p), false);
}

Batches *augmented_batches(const Dataset *dataset, Statistics statistics, int batch_size)
{
    trace_call();
    return ready_made(dataset, statistics, batch_size, true);
}

Batches *plain_batches(const Dataset *dataset, Statistics statistics, int batch_size)
{
    trace_call();
    return ready_made(dataset, statistics, batch_size, false);
}

void batches_free(Batches *batches)
{
    if (batches == NULL)
        return;
    for (Pipeline *stage = batches->last, *upstream; stage; stage = upstream) {
        upstream = stage->upstream;
        stage->free(stage);
        free(stage->name);
        free(stage);
    }
    free_element(&batches->arriving);
    free_element(&batches->current);
    free_scratch(&batches->scratch);
    free(batches);
}

// ---- Asked.

static void check_batches(const Batches *batches, const char *caller)
{
    if (!batches)
        die("%s: there are no batches (NULL)", caller);
}

void batches_need_one(const Batches *batches, const char *caller)
{
    check_batches(batches, caller);
    if (batches_len(batches) < 1)
        die("%s: there are no batches: fewer images than a batch, without the last one", caller);
}

int batches_len(const Batches *batches)
{
    check_batches(batches, __func__);
    const Source *source = batches->last->source;
    int count = source->dataset.count, size = source->batch_size;
    return count / size + (source->short_batch && count % size != 0);
}

int batches_batch_size(const Batches *batches)
{
    check_batches(batches, __func__);
    return batches->last->form.size;
}

int batches_requested_size(const Batches *batches)
{
    check_batches(batches, __func__);
    return batches->last->source->batch_size;
}

const Dataset *batches_dataset(const Batches *batches)
{
    check_batches(batches, __func__);
    return &batches->last->source->dataset;
}

// ---- Begun.

// The stages from the last one back to a cache that has begun: the cache replaces the stages before
// it.
static Pipeline *before(const Pipeline *stage)
{
    return stage->settled ? NULL : stage->upstream;
}

// The seeds of this pass and those that follow it. They are drawn here, in the trainer's thread,
// because set_seed may be called at any time.
static void seed_stages(Batches *batches)
{
    uint64_t stream = batches->id << 32 | batches->begins;
    Rng order = rng_stream(RNG_PERMUTATION, stream);
    Rng augmentation = rng_stream(RNG_AUGMENTATION, stream);
    for (Pipeline *stage = batches->last; stage; stage = before(stage)) {
        stage->passes = 0;
        if (stage->draws != DRAWS_NOTHING)
            stage->seed = rng_next(stage->draws == DRAWS_ORDER ? &order : &augmentation);
    }
}

static void pause_stages(Batches *batches)
{
    for (Pipeline *stage = batches->last; stage; stage = before(stage))
        if (stage->pause)
            stage->pause(stage);
}

static void begin_pass(Batches *batches, int64_t steps)
{
    pause_stages(batches);
    seed_stages(batches);
    batches->taken = 0;
    batches->last->limit = batches->goes_on ? INT64_MAX : steps;
    batches->last->rewind(batches->last);
}

void batches_begin(Batches *batches, int64_t steps)
{
    check_batches(batches, __func__);
    if (steps < 0)
        die("batches_begin: %lld steps", (long long)steps);
    if (!batches->goes_on || !batches->begun)
        begin_pass(batches, steps);
    batches->begun = true;
    batches->begins++;
    batches->steps = steps;
    batches->handed = 0;
}

// ---- Taken.

static void announce_images(const Batches *batches)
{
    const Element *batch = &batches->current;
    const Source *source = batches->last->source;
    images_were_drawn(&(DrawnImages){.batches = batches->id,
                                     .permutation = batches->begins,
                                     .step = batches->handed - 1,
                                     .images = source->dataset.images,
                                     .bytes = image_length(&source->format),
                                     .places = batch->numbers,
                                     .labels = batch->labels,
                                     .count = batch->count});
}

// Counts images of the batch that differ from the standardised file's images.
static int count_changed(const Batches *batches)
{
    const Element *batch = &batches->current;
    const Source *source = batches->last->source;
    size_t length = image_length(&source->format);
    float *plain = allocate(length, sizeof *plain);
    int changed = 0;
    for (int i = 0; i < batch->count; i++) {
        const uint8_t *read = source->dataset.images + batch->numbers[i] * length;
        standardize_image(&source->format, (Pixels){.bytes = read}, plain);
        changed += memcmp(plain, batch->floats + (size_t)i * length, length * sizeof *plain) != 0;
    }
    free(plain);
    return changed;
}

#define HELD(name, held)                                                                           \
    NUMBER(name, atomic_load(&(held).images)), NUMBER(name "_bytes", atomic_load(&(held).bytes))

// `own` and `since`: this thread's work, and the time, before the batch was taken.
static void trace_taken(const Batches *batches, int64_t own, double since)
{
    if (!trace_on())
        return;
    double waited = seconds_now() - since;
    announce_images(batches);
    own = own_work() - own;
    const Element *batch = &batches->current;
    Source *source = batches->last->source;
    char *pixels = hashes_text(batch->floats, batch->count,
                               image_length(&source->format) * sizeof *batch->floats);
    char *labels = numbers_text(batch->labels, batch->count);
    trace("taken", NUMBER("batches", batches->id), NUMBER("step", batches->handed - 1),
          TEXT("pixels", pixels), TEXT("labels", labels), NUMBER("changed", count_changed(batches)),
          NUMBER("own", own), NUMBER("waited", waited),
          NUMBER("passes", atomic_load(&source->passes)),
          NUMBER("read", atomic_load(&source->read)), HELD("cached", source->cached),
          HELD("filed", source->filed), HELD("buffered", source->buffered),
          HELD("ahead", source->ahead));
    free(pixels);
    free(labels);
}

// Makes the next batch the current one, if there is one.
static bool take(Batches *batches)
{
    Pipeline *last = batches->last;
    bool ready = last->form.floats && !last->form.pending;
    if (ready)
        return last->next(last, &batches->current);
    if (!last->next(last, &batches->arriving))
        return false;
    prepare(last->source, last->form, &batches->arriving, &batches->scratch, &batches->current);
    return true;
}

Batch batches_next(Batches *batches)
{
    check_batches(batches, __func__);
    if (batches->handed >= batches->steps)
        die("batches_next: batches_begin has been asked for %lld batches, and they have been taken",
            (long long)batches->steps);
    int64_t own = own_work();
    double since = trace_on() ? seconds_now() : 0;
    span_begin(SPAN_WAIT, "wait for a batch", -1, -1);
    if (!take(batches))
        die("batches_next: the pipeline's pass is over after %lld of %lld batches; pipeline_repeat "
            "goes on with another",
            (long long)batches->handed, (long long)batches->steps);
    batches->handed++;
    batches->taken++;
    span_end();
    trace_taken(batches, own, since);
    const Element *batch = &batches->current;
    return (Batch){.images = batch->floats, .labels = batch->labels, .count = batch->count};
}

// ---- Left and found again.

enum { MAX_STAGES = 64 };

typedef struct {
    uint64_t begins, id;
    int64_t steps, handed, taken;
    int images; // of the data set
    uint64_t seeds[MAX_STAGES];
    const char *stages;
} Position;

// "3 0 8 5 5 96 17 0 4 from_dataset,batch 12,repeat": the seeds from the last stage to the first.
char *batches_position(const Batches *batches)
{
    char *stages = stages_text(batches->last), *text = NULL;
    text_add(&text, "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %d ",
             batches->begins, batches->id, batches->steps, batches->handed, batches->taken,
             batches_dataset(batches)->count);
    for (const Pipeline *stage = batches->last; stage; stage = stage->upstream)
        text_add(&text, "%" PRIu64 " ", stage->seed);
    text_add(&text, "%s", stages);
    free(stages);
    return text;
}

// Reads a number and the space after it.
static bool read_number(const char **text, uint64_t most, uint64_t *number)
{
    const char *end = read_digits(*text, most, number);
    *text = end && *end == ' ' ? end + 1 : "";
    return end && *end == ' ';
}

static bool read_count(const char **text, int64_t *count)
{
    uint64_t number;
    if (!read_number(text, INT64_MAX, &number))
        return false;
    *count = (int64_t)number;
    return true;
}

static bool read_position(const Batches *batches, const char *text, Position *position)
{
    int64_t images = 0;
    int count = 0;
    bool read = read_number(&text, UINT64_MAX, &position->begins) &&
                read_number(&text, UINT64_MAX, &position->id) &&
                read_count(&text, &position->steps) && read_count(&text, &position->handed) &&
                read_count(&text, &position->taken) && read_count(&text, &images);
    for (const Pipeline *stage = batches->last; stage && read; stage = stage->upstream)
        read = count < MAX_STAGES && read_number(&text, UINT64_MAX, &position->seeds[count++]);
    position->stages = text;
    return read && position->handed <= position->steps && images == batches_dataset(batches)->count;
}

static bool is_of(const Batches *batches, const char *text, Position *position)
{
    if (!read_position(batches, text, position))
        return false;
    char *stages = stages_text(batches->last);
    bool same = strcmp(stages, position->stages) == 0;
    free(stages);
    return same;
}

bool batches_have_position(const Batches *batches, const char *text)
{
    return is_of(batches, text, &(Position){0});
}

// Skips the next `count` elements. Loader threads start afterwards.
static void rewind_to(Batches *batches, int64_t count)
{
    Pipeline *last = batches->last;
    atomic_store(&last->source->skipping, true);
    if (last->pause)
        last->skip = count;
    last->rewind(last);
    for (int64_t i = 0; i < count && !last->pause; i++)
        last->next(last, &batches->arriving);
    atomic_store(&last->source->skipping, false);
}

bool batches_go_to(Batches *batches, const char *text)
{
    Position position;
    if (!is_of(batches, text, &position))
        return false;
    batches->begins = position.begins;
    batches->id = position.id;
    batches->steps = position.steps;
    batches->handed = position.handed;
    batches->taken = position.taken;
    batches->begun = position.begins > 0;
    if (!batches->begun)
        return true;
    pause_stages(batches);
    int stages = 0;
    for (Pipeline *stage = batches->last; stage; stage = stage->upstream) {
        stage->passes = 0;
        stage->seed = position.seeds[stages++];
    }
    int64_t left = position.steps - position.handed;
    batches->last->limit = batches->goes_on ? INT64_MAX : left;
    rewind_to(batches, batches->goes_on || left > 0 ? position.taken : 0);
    return true;
}

void batches_begin_after(Batches *batches, const char *text)
{
    uint64_t begins;
    if (read_number(&text, UINT64_MAX, &begins) && batches->begins < begins)
        batches->begins = begins;
}
