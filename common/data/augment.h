// Batches: what turns a data set into a stream of standardised, possibly augmented float images,
// prepared by background threads ahead of the trainer. These are the usual ones; pipeline.h builds
// others.
//
// Training images are shifted by up to 20 % of height and width (uniform, fractional, bilinear,
// edge pixels repeated), flipped left to right with probability 0.5, and standardised: (x - mean) /
// (std + 1e-6). This is what Keras's ImageDataGenerator does with width_shift_range and
// height_shift_range 0.2, horizontal_flip and featurewise standardisation.

#ifndef HVDLAB_AUGMENT_H
#define HVDLAB_AUGMENT_H

#include <stdint.h>
#include "data/dataset.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Batches Batches;

typedef struct {
    const float *images; // count x height x width x channels
    const int *labels;   // count class numbers
    int count;           // the batch size, or less in the last batch of a permutation
} Batch;

// Batches with augmentation (unless --no-augment), and without. Both walk a random permutation of
// the data set (its own order with --no-shuffle). The data set must outlive the batches; free them
// with batches_free. No two batches that one thread makes draw the same numbers; two threads draw,
// with one seed, what two processes draw.
Batches *augmented_batches(const Dataset *dataset, Statistics statistics, int batch_size);
Batches *plain_batches(const Dataset *dataset, Statistics statistics, int batch_size);
void batches_free(Batches *batches);

// Number of batches in one permutation: the data set's size / batch size, rounded up.
int batches_len(const Batches *batches);

// The number of images in a batch: as requested, or all images if there are fewer.
int batches_batch_size(const Batches *batches);

// The data set behind the batches.
const Dataset *batches_dataset(const Batches *batches);

// Starts a fresh permutation and has the next `steps` batches prepared in the background. When
// steps exceeds batches_len, another permutation follows. Batches that were prepared and not taken
// are dropped. With a seed the batches are a function of the seed, the rank and the number of
// earlier calls, whatever the number of threads.
void batches_begin(Batches *batches, int64_t steps);

// The next batch, valid until the next call. Call it at most `steps` times after batches_begin: one
// more call makes the program exit with an error message.
Batch batches_next(Batches *batches);

// Shifts one image (bytes, height x width x channels) by `shift_y`, `shift_x` pixels, so that
// output pixel (i, j) shows input position (i + shift_y, j + shift_x), flips it if asked,
// standardises it and writes it to `out`. Zero shifts without a flip are exactly the standardised
// image.
void augment_image(const uint8_t *image, int height, int width, int channels, Statistics statistics,
                   float shift_y, float shift_x, bool flip, float *out);

#pragma GCC visibility pop

#endif
