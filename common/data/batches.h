// Batches: what turns a data set into a stream of standardised, possibly augmented float images,
// prepared by background threads ahead of the trainer. These are the usual ones; pipeline.h builds
// others.

#ifndef HVDLAB_BATCHES_H
#define HVDLAB_BATCHES_H

#include <stdint.h>
#include "data/dataset.h"
#include "data/pipeline.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Batches Batches;

typedef struct {
    const float *images; // count x height x width x channels
    const int *labels;   // count class numbers
    int count;           // the batch size, or less in the last batch of a permutation
} Batch;

// Batches with augmentation (augment.h, unless --no-augment), and without. Both walk a random
// permutation of the data set (its own order with --no-shuffle). The data set must outlive the
// batches; free them with batches_free. No two batches that one thread makes draw the same numbers; two threads draw,
// with one seed, what two processes draw.
Batches *augmented_batches(const Dataset *dataset, Statistics statistics, int batch_size);
Batches *plain_batches(const Dataset *dataset, Statistics statistics, int batch_size);
void batches_free(Batches *batches);

// Number of batches in one permutation: the data set's size / batch size, rounded up.
int batches_len(const Batches *batches);

// The number of images in a batch: as requested, or all images if there are fewer.
int batches_batch_size(const Batches *batches);
int batches_requested_size(const Batches *batches); // as requested, however few images there are

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

// Batches for fit, evaluate or a loop of one's own, from a pipeline that gives batches. They own
// the pipeline. Work that can't be done ahead is done in batches_next, by the caller.
//
// batches_len is the number of batches in a pass over the data set. batches_begin starts a fresh
// pass, and when that is over there are no more batches: batches_next then makes the program exit
// with an error message. With pipeline_repeat among the stages the stream continues over all calls
// of batches_begin, and prepared batches are kept.
Batches *batches_from(Pipeline *p);

#pragma GCC visibility pop

// Inside the library: the program exits with an error message where there are no batches.
void batches_need_one(const Batches *batches, const char *caller);

// Inside the library: the position of batches, as a text that a checkpoint keeps; the caller frees
// it. A pipeline's output is a function of its seeds and of how much it has given, so a position is
// restored from the seeds by going forward, without preparing images.
char *batches_position(const Batches *batches);

// Inside the library: whether it is one of these stages and this data set.
bool batches_have_position(const Batches *batches, const char *position);

// Inside the library: moves to that position; batches_next then gives the batch that would come
// there. The batches must be new if a cache keeps random draws. Returns false, and changes nothing,
// if they have no such position.
bool batches_go_to(Batches *batches, const char *position);

// Inside the library: keeps only the number of calls of batches_begin, so that random draws do not
// repeat.
void batches_begin_after(Batches *batches, const char *position);

#endif
