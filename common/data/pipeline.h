// Pipelines: batches put together from stages, as with tf.data. Each stage takes elements from the
// stage before it when the next stage asks: images, one after another in the files' order, then
// batches of them.
//
//     Pipeline *p = pipeline_from_dataset(&images, statistics);
//     p = pipeline_shuffle(p, 1000);
//     p = pipeline_batch(p, 32, true);
//     p = pipeline_prefetch(p, 2);
//     Batches *batches = batches_from(p);
//
// The program chooses the order of the stages. Any order makes a stream; the library does not check
// that it is the intended one. Each stage keeps the order of images or of batches, unless its
// comment says otherwise. A pass is one run through the pipeline, from its first image to its last.
//
// With a seed the stream is a function of the seed, the rank and the number of earlier calls of
// batches_begin, whatever the number of threads.
//
// A stage that gets NULL, or one that another stage has taken already (the line should have begun
// with p = ), makes the program exit with an error message.
//
// After M. Abadi and others, "tf.data: A Machine Learning Data Processing Framework" (VLDB 2021),
// and https://www.tensorflow.org/guide/data.

#ifndef HVDLAB_PIPELINE_H
#define HVDLAB_PIPELINE_H

#include <stdbool.h>
#include "base/types.h"
#include "data/dataset.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Pipeline Pipeline;

// The images of the data set in their order, as bytes, read one after another when they are asked
// for. The data set stands for files on a disk: --slow-reader has each batch of images (of as many
// as pipeline_batch is asked for) take so long to read. It must outlive the pipeline. Images reach
// the trainer standardised, by `statistics`.
Pipeline *pipeline_from_dataset(const Dataset *dataset, Statistics statistics);

// Keeps all elements of the first pass in memory, and gives these in later passes: the stages
// before it do not run again. Augmented images are kept as floats, four times the bytes.
USE_RESULT Pipeline *pipeline_cache(Pipeline *p);

// The same in a file. The file is new, its name is `path` and some letters more, and it belongs to
// this pipeline alone. It is removed from the folder as soon as it is open, and ends with the
// process. A file that can't be made, written or read makes the program exit with an error message.
USE_RESULT Pipeline *pipeline_cache_in_file(Pipeline *p, const char *path);

// Starts again at the end of a pass: one pass after another, without end.
USE_RESULT Pipeline *pipeline_repeat(Pipeline *p);

// A buffer of `buffer_size` places, at least 1. It is filled first; then each time one in it, drawn
// at random, is passed on, and the next one takes its place. So an image can't come more than
// buffer_size places earlier than it would; a buffer as large as the data set gives any order. Each
// pass is shuffled again. With --no-shuffle nothing is changed.
USE_RESULT Pipeline *pipeline_shuffle(Pipeline *p, int buffer_size);

// Shifts and flips each image at random, as augmented_batches does, again each time that one comes.
// With --no-augment nothing is changed.
USE_RESULT Pipeline *pipeline_augment(Pipeline *p);

// Puts `size` images each into a batch. The last batch of a pass may be short; with
// `drop_remainder` it is left out. If no pass could have a batch, size is below 1, or the elements
// are batches already, the program exits with an error message.
USE_RESULT Pipeline *pipeline_batch(Pipeline *p, int size, bool drop_remainder);

// Has up to `ahead` images or batches prepared by threads (--loader-threads) before they are asked
// for, while the caller does something else; 1 to 100,000. Where their memory is more than there is,
// the program exits with an error message.
USE_RESULT Pipeline *pipeline_prefetch(Pipeline *p, int ahead);

#pragma GCC visibility pop

#endif
