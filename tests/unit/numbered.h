// For tests of pipelines: images that can be told apart, and what came of them.

#ifndef HVDLAB_TESTS_NUMBERED_H
#define HVDLAB_TESTS_NUMBERED_H

#include <check.h>
#include <math.h>
#include "base/memory.h"
#include "hvdlab.h"

// With these a byte's standardised value is the byte itself, but for rounding.
static const Statistics unchanged = {.std = {1, 1, 1, 1}};

enum { COUNT = 103 };

// Images of one row of two pixels: the image's position in the data set, and 0.
static inline Dataset numbered_images(void)
{
    Dataset dataset = {.count = COUNT, .height = 1, .width = 2, .channels = 1, .classes = 10};
    dataset.images = allocate(COUNT, 2);
    dataset.labels = allocate(COUNT, 1);
    for (int i = 0; i < COUNT; i++) {
        dataset.images[2 * i] = (uint8_t)i;
        dataset.labels[i] = (uint8_t)(i % 10);
    }
    return dataset;
}

static Dataset dataset; // of the test that runs

static inline void set_up(void)
{
    dataset = numbered_images();
}

static inline void tear_down(void)
{
    dataset_free(&dataset);
}

static inline Pipeline *source(void)
{
    return pipeline_from_dataset(&dataset, unchanged);
}

// The images' numbers and the batches' sizes, as they come.
typedef struct {
    int image[10 * COUNT], images;
    int size[10 * COUNT], batches;
} Seen;

static inline void take(Batches *batches, int steps, Seen *seen)
{
    for (int step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        seen->size[seen->batches++] = batch.count;
        for (int i = 0; i < batch.count; i++) {
            int number = (int)lroundf(batch.images[2 * i]);
            ck_assert_int_eq(batch.labels[i], number % 10);
            seen->image[seen->images++] = number;
        }
    }
}

static inline Seen begin_and_take(Batches *batches, int steps)
{
    Seen seen = {.images = 0};
    batches_begin(batches, steps);
    take(batches, steps, &seen);
    return seen;
}

static inline void assert_each_once(const int *numbers)
{
    bool seen[COUNT] = {false};
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_lt(numbers[i], COUNT);
        ck_assert_msg(!seen[numbers[i]], "image %d comes twice", numbers[i]);
        seen[numbers[i]] = true;
    }
}

static inline bool in_order(const Seen *seen)
{
    for (int i = 0; i < seen->images; i++)
        if (seen->image[i] != i % COUNT)
            return false;
    return true;
}

// Others, large enough to be augmented, whose labels are their numbers.
enum { SIDE = 28, PIXELS = SIDE * SIDE, PROBES = 37, PROBE_BATCH = 8, PROBE_STEPS = 5 };

static inline Dataset probes(void)
{
    Dataset images = synthetic_data(TEST, 1, PROBES);
    for (int i = 0; i < PROBES; i++)
        images.labels[i] = (uint8_t)i;
    return images;
}

#endif
