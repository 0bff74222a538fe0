// Batches: a ring of slots between background threads, which fill them, and the trainer, which
// empties them in order. A thread takes the next step's number and the images that belong to it
// under the lock, then prepares the batch in the step's slot without it. Which thread does it and
// when does not matter to the result: each image has a random stream of its own.

#include "data/augment.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/origin.h"
#include "sys/args.h"
#include "sys/timeline.h"
#include "sys/trace.h"
#include "base/rng.h"
#include "base/util.h"

// -- One image ------------------------------------------------------------------------------------

enum { MAX_CHANNELS = 4, BYTE_VALUES = 256 };

// What all images of a data set have in common.
typedef struct {
    int height, width, channels;
    float standardized[MAX_CHANNELS][BYTE_VALUES]; // of each byte value
} Format;

// Working memory for one image.
typedef struct {
    int *columns; // width + 1
    float *taps;  // (width + 1) x channels
    float *rows;  // height x width x channels
} Scratch;

// Where to look for output position i: between input positions i + offset and i + offset + 1.
typedef struct {
    int offset;
    float weight; // of the second of them, in [0, 1]
} Shift;

static Format make_format(int height, int width, int channels, const Statistics *statistics)
{
    CHECK(channels >= 1 && channels <= MAX_CHANNELS);
    Format format = {.height = height, .width = width, .channels = channels};
    for (int c = 0; c < channels; c++) {
        for (int value = 0; value < BYTE_VALUES; value++)
            format.standardized[c][value] =
                ((float)value - statistics->mean[c]) / (statistics->std[c] + 1e-6f);
    }
    return format;
}

static int row_length(const Format *format)
{
    return format->width * format->channels;
}

static size_t image_length(const Format *format)
{
    return (size_t)format->height * (size_t)row_length(format);
}

static Scratch allocate_scratch(const Format *format)
{
    size_t taps = (size_t)format->width + 1;
    return (Scratch){
        .columns = allocate(taps, sizeof(int)),
        .taps = allocate(taps * (size_t)format->channels, sizeof(float)),
        .rows = allocate(image_length(format), sizeof(float)),
    };
}

static void free_scratch(Scratch *scratch)
{
    free(scratch->columns);
    free(scratch->taps);
    free(scratch->rows);
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static Shift split_shift(float shift, int size)
{
    // From `size` pixels on only the repeated edge is seen; an int can hold such an offset.
    float limited = fminf(fmaxf(shift, (float)-size), (float)size), whole = floorf(limited);
    return (Shift){.offset = (int)whole, .weight = limited - whole};
}

// out = a * weight_a + b * weight_b. Weights of 1 and 0 give a itself.
static void blend(const float *restrict a, float weight_a, const float *restrict b, float weight_b,
                  float *restrict out, int length)
{
    for (int i = 0; i < length; i++)
        out[i] = a[i] * weight_a + b[i] * weight_b;
}

// Which input column each of a row's taps reads: output column j lies between taps j and j + 1. A
// flip turns their order round.
static void place_columns(const Format *format, Shift shift, bool flip, int *columns)
{
    int width = format->width;
    for (int tap = 0; tap <= width; tap++) {
        int position = (flip ? width - tap : tap) + shift.offset;
        columns[tap] = clamp(position, 0, width - 1) * format->channels;
    }
}

static void read_taps(const Format *format, const uint8_t *row, const int *columns, float *taps)
{
    int channels = format->channels;
    for (int c = 0; c < channels; c++) {
        const float *standardized = format->standardized[c];
        for (int tap = 0; tap <= format->width; tap++)
            taps[tap * channels + c] = standardized[row[columns[tap] + c]];
    }
}

// Bilinear interpolation is linear interpolation along the rows, then along the columns. The bytes
// are standardised on the way in: interpolation then gives the same as standardising at the end.
static void shift_image(const Format *format, const uint8_t *image, Shift y, Shift x, bool flip,
                        Scratch *scratch, float *out)
{
    int length = row_length(format);
    float right = flip ? 1 - x.weight : x.weight; // weight of the tap on the right
    place_columns(format, x, flip, scratch->columns);
    for (int i = 0; i < format->height; i++) {
        read_taps(format, image + (size_t)i * (size_t)length, scratch->columns, scratch->taps);
        blend(scratch->taps, 1 - right, scratch->taps + format->channels, right,
              scratch->rows + (size_t)i * (size_t)length, length);
    }
    for (int i = 0; i < format->height; i++) {
        int above = clamp(i + y.offset, 0, format->height - 1);
        int below = clamp(i + y.offset + 1, 0, format->height - 1);
        blend(scratch->rows + (size_t)above * (size_t)length, 1 - y.weight,
              scratch->rows + (size_t)below * (size_t)length, y.weight,
              out + (size_t)i * (size_t)length, length);
    }
}

static void standardize_image(const Format *format, const uint8_t *image, float *out)
{
    size_t length = image_length(format), channels = (size_t)format->channels;
    for (size_t c = 0; c < channels; c++) {
        for (size_t i = c; i < length; i += channels)
            out[i] = format->standardized[c][image[i]];
    }
}

// Shifts by up to a fifth of height and width, and flips in half of the cases.
static void augment_randomly(const Format *format, const uint8_t *image, Rng rng, Scratch *scratch,
                             float *out)
{
    const float range = 0.2f;
    float shift_y = (2 * rng_uniform(&rng) - 1) * range * (float)format->height;
    float shift_x = (2 * rng_uniform(&rng) - 1) * range * (float)format->width;
    bool flip = rng_below(&rng, 2) == 1;
    shift_image(format, image, split_shift(shift_y, format->height),
                split_shift(shift_x, format->width), flip, scratch, out);
}

void augment_image(const uint8_t *image, int height, int width, int channels, Statistics statistics,
                   float shift_y, float shift_x, bool flip, float *out)
{
    Format format = make_format(height, width, channels, &statistics);
    Scratch scratch = allocate_scratch(&format);
    shift_image(&format, image, split_shift(shift_y, height), split_shift(shift_x, width), flip,
                &scratch, out);
    free_scratch(&scratch);
}

// -- The ring -------------------------------------------------------------------------------------

// One batch, in preparation or ready.
typedef struct {
    float *images;
    int *labels;
    uint32_t *order; // the batch's images, as positions in the data set
    int count;
    bool ready;
    Scratch scratch;
} Slot;

struct Batches {
    Dataset dataset; // its images and labels belong to the caller
    Format format;
    int batch_size;
    bool augment, shuffle;
    uint64_t id;     // no two of a thread draw the same numbers
    uint64_t begins; // calls of batches_begin so far

    Slot *slots; // step s uses slot s % slot_count
    int slot_count;
    pthread_t *threads;
    int thread_count; // 0 before the first batches_begin

    pthread_mutex_t lock;
    pthread_cond_t work;  // for the threads: there may be a step to take, or it is time to end
    pthread_cond_t ready; // for the trainer: a batch is ready

    // All below is guarded by the lock.
    int64_t steps;  // asked for
    int64_t taken;  // by the threads
    int64_t handed; // to the trainer, or waited for
    int busy;       // threads that are preparing a batch
    bool quit;
    uint64_t permutation_seed, augmentation_seed; // constant while a thread is busy
    uint32_t *order;                              // the current permutation
};

static Slot *slot_of(Batches *batches, int64_t step)
{
    return &batches->slots[step % batches->slot_count];
}

// -- The threads' side ----------------------------------------------------------------------------

static void draw_order(Batches *batches, int64_t permutation)
{
    uint32_t count = (uint32_t)batches->dataset.count;
    if (batches->shuffle) {
        Rng rng = rng_stream_of(batches->permutation_seed, RNG_PERMUTATION, (uint64_t)permutation);
        rng_permutation(&rng, batches->order, count);
    } else {
        for (uint32_t i = 0; i < count; i++)
            batches->order[i] = i;
    }
}

// Takes the next step and notes its images in its slot. Steps are taken in order, so one
// permutation at a time is enough. Called with the lock held.
static int64_t take_step(Batches *batches)
{
    int64_t step = batches->taken++;
    int length = batches_len(batches), position = (int)(step % length);
    if (position == 0)
        draw_order(batches, step / length);
    Slot *slot = slot_of(batches, step);
    int first = position * batches->batch_size, left = batches->dataset.count - first;
    slot->count = left < batches->batch_size ? left : batches->batch_size;
    memcpy(slot->order, batches->order + first, (size_t)slot->count * sizeof *slot->order);
    return step;
}

static void prepare_batch(const Batches *batches, int64_t step, Slot *slot)
{
    size_t length = image_length(&batches->format);
    uint64_t first = (uint64_t)step * (uint64_t)batches->batch_size;
    for (int i = 0; i < slot->count; i++) {
        const uint8_t *image = batches->dataset.images + slot->order[i] * length;
        float *out = slot->images + (size_t)i * length;
        slot->labels[i] = batches->dataset.labels[slot->order[i]];
        if (batches->augment)
            augment_randomly(
                &batches->format, image,
                rng_stream_of(batches->augmentation_seed, RNG_AUGMENTATION, first + (uint64_t)i),
                &slot->scratch, out);
        else
            standardize_image(&batches->format, image, out);
    }
}

// True if there is a step to prepare and a free slot for it. The trainer still reads the batch that
// was handed over last, so that slot is not free.
static bool has_step_to_take(const Batches *batches)
{
    return batches->taken < batches->steps &&
           batches->taken + 1 < batches->handed + batches->slot_count;
}

// What a background thread does until batches_free.
static void *load(void *argument)
{
    Batches *batches = argument;
    timeline_name_thread("loading");
    pthread_mutex_lock(&batches->lock);
    while (!batches->quit) {
        if (!has_step_to_take(batches)) {
            pthread_cond_wait(&batches->work, &batches->lock);
            continue;
        }
        int64_t step = take_step(batches);
        Slot *slot = slot_of(batches, step);
        batches->busy++;
        pthread_mutex_unlock(&batches->lock);
        timeline_begin(SPAN_LOAD, batches->augment ? "augment a batch" : "load a batch",
                       slot->count, step);
        prepare_batch(batches, step, slot);
        timeline_end();
        pthread_mutex_lock(&batches->lock);
        batches->busy--;
        slot->ready = true;
        pthread_cond_signal(&batches->ready);
    }
    pthread_mutex_unlock(&batches->lock);
    return NULL;
}

// -- The trainer's side ---------------------------------------------------------------------------

static Batches *new_batches(const Dataset *dataset, const Statistics *statistics, int batch_size,
                            bool augment)
{
    static _Thread_local uint64_t created;
    if (batch_size < 1)
        die("a batch of %d images cannot be trained on", batch_size);
    if (!dataset || dataset->count < 1)
        die("there are no images to make batches of");
    Batches *batches = allocate(1, sizeof *batches);
    batches->dataset = *dataset;
    batches->format = make_format(dataset->height, dataset->width, dataset->channels, statistics);
    batches->batch_size = batch_size < dataset->count ? batch_size : dataset->count;
    batches->augment = augment;
    batches->shuffle = settings()->shuffle;
    batches->id = created++;
    batches->order = allocate((size_t)dataset->count, sizeof *batches->order);
    pthread_mutex_init(&batches->lock, NULL);
    pthread_cond_init(&batches->work, NULL);
    pthread_cond_init(&batches->ready, NULL);
    lives_until_exit(batches);
    return batches;
}

Batches *augmented_batches(const Dataset *dataset, Statistics statistics, int batch_size)
{
    return new_batches(dataset, &statistics, batch_size, settings()->augment);
}

Batches *plain_batches(const Dataset *dataset, Statistics statistics, int batch_size)
{
    return new_batches(dataset, &statistics, batch_size, false);
}

static void check_batches(const Batches *batches, const char *caller)
{
    if (!batches)
        die("%s: there are no batches (NULL)", caller);
}

int batches_len(const Batches *batches)
{
    check_batches(batches, __func__);
    int count = batches->dataset.count;
    return count / batches->batch_size + (count % batches->batch_size != 0);
}

int batches_batch_size(const Batches *batches)
{
    check_batches(batches, __func__);
    return batches->batch_size;
}

const Dataset *batches_dataset(const Batches *batches)
{
    check_batches(batches, __func__);
    return &batches->dataset;
}

// A slot for each thread, one for the trainer, and one more, so that no thread waits for the
// trainer to come back. Huge batches (a whole data set) get by with less.
static int choose_slot_count(const Batches *batches)
{
    const size_t limit = (size_t)1 << 28; // bytes
    size_t batch_bytes =
        (size_t)batches->batch_size * image_length(&batches->format) * sizeof(float);
    size_t fitting = limit / batch_bytes, wanted = (size_t)batches->thread_count + 2;
    return fitting < 2 ? 2 : fitting < wanted ? (int)fitting : (int)wanted;
}

static void allocate_slots(Batches *batches)
{
    size_t batch_size = (size_t)batches->batch_size;
    batches->slot_count = choose_slot_count(batches);
    batches->slots = allocate((size_t)batches->slot_count, sizeof *batches->slots);
    for (int i = 0; i < batches->slot_count; i++) {
        Slot *slot = &batches->slots[i];
        slot->images = allocate(batch_size * image_length(&batches->format), sizeof(float));
        slot->labels = allocate(batch_size, sizeof *slot->labels);
        slot->order = allocate(batch_size, sizeof *slot->order);
        slot->scratch = allocate_scratch(&batches->format);
    }
}

static void start_threads(Batches *batches)
{
    batches->thread_count = settings()->loader_threads;
    allocate_slots(batches);
    batches->threads = allocate((size_t)batches->thread_count, sizeof *batches->threads);
    for (int i = 0; i < batches->thread_count; i++) {
        int fault = pthread_create(&batches->threads[i], NULL, load, batches);
        if (fault != 0)
            die("cannot start %d loader threads: %s; fewer need less memory (--loader-threads)",
                batches->thread_count, strerror(fault));
    }
}

// Makes the threads stop after the batches that they are at. Called with the lock held.
static void drop_steps(Batches *batches)
{
    batches->steps = 0;
    while (batches->busy > 0)
        pthread_cond_wait(&batches->ready, &batches->lock);
    batches->taken = batches->handed = 0;
    for (int i = 0; i < batches->slot_count; i++)
        batches->slots[i].ready = false;
}

// The seeds of this permutation and those that follow it. They are drawn here, in the trainer's
// thread, because set_seed may be called at any time.
static void draw_seeds(Batches *batches)
{
    uint64_t stream = batches->id << 32 | batches->begins++;
    Rng permutation = rng_stream(RNG_PERMUTATION, stream);
    Rng augmentation = rng_stream(RNG_AUGMENTATION, stream);
    batches->permutation_seed = rng_next(&permutation);
    batches->augmentation_seed = rng_next(&augmentation);
}

void batches_begin(Batches *batches, int64_t steps)
{
    check_batches(batches, __func__);
    if (steps < 0)
        die("batches_begin: %lld steps", (long long)steps);
    if (batches->thread_count == 0)
        start_threads(batches);
    pthread_mutex_lock(&batches->lock);
    drop_steps(batches);
    draw_seeds(batches);
    batches->steps = steps;
    pthread_cond_broadcast(&batches->work);
    pthread_mutex_unlock(&batches->lock);
}

static void trace_images(const Batches *batches, const Slot *slot)
{
    const size_t digits = sizeof "-2147483648,", length = image_length(&batches->format);
    char *drawn = allocate((size_t)slot->count, digits), *end = drawn;
    const char *split = "";
    for (int i = 0; i < slot->count; i++) {
        Origin origin = origin_of(batches->dataset.images + slot->order[i] * length, length);
        int number = origin.number >= 0 ? origin.number : (int)slot->order[i];
        end += sprintf(end, "%s%d", i ? "," : "", number);
        split = origin.split;
    }
    trace("images", NUMBER("batches", batches->id), NUMBER("permutation", batches->begins),
          NUMBER("step", batches->handed - 1), TEXT("split", split), TEXT("drawn", drawn));
    free(drawn);
}

Batch batches_next(Batches *batches)
{
    check_batches(batches, __func__);
    timeline_begin(SPAN_WAIT, "wait for a batch", -1, -1);
    pthread_mutex_lock(&batches->lock);
    if (batches->handed >= batches->steps)
        die("batches_next: batches_begin has been asked for %lld batches, and they have been taken",
            (long long)batches->steps);
    Slot *slot = slot_of(batches, batches->handed++);
    pthread_cond_signal(&batches->work); // the slot of the batch before is free again
    while (!slot->ready)
        pthread_cond_wait(&batches->ready, &batches->lock);
    slot->ready = false;
    pthread_mutex_unlock(&batches->lock);
    timeline_end();
    if (trace_on())
        trace_images(batches, slot); // its place in the ring is the trainer's now
    return (Batch){.images = slot->images, .labels = slot->labels, .count = slot->count};
}

void batches_free(Batches *batches)
{
    if (batches == NULL)
        return;
    pthread_mutex_lock(&batches->lock);
    batches->quit = true;
    pthread_cond_broadcast(&batches->work);
    pthread_mutex_unlock(&batches->lock);
    for (int i = 0; i < batches->thread_count; i++)
        pthread_join(batches->threads[i], NULL);
    for (int i = 0; i < batches->slot_count; i++) {
        free(batches->slots[i].images);
        free(batches->slots[i].labels);
        free(batches->slots[i].order);
        free_scratch(&batches->slots[i].scratch);
    }
    free(batches->slots);
    free(batches->threads);
    free(batches->order);
    pthread_cond_destroy(&batches->ready);
    pthread_cond_destroy(&batches->work);
    pthread_mutex_destroy(&batches->lock);
    free(batches);
}
