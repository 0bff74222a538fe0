// What the trainer got from pipelines, batch by batch, on one rank, and what the stages did for it:
// from the events "images" and "taken". Which stages there are, and in which order, names a
// mistake; that there is one, the batches themselves prove.

#ifndef HVDLAB_STEPS_STREAMS_H
#define HVDLAB_STEPS_STREAMS_H

#include "judge.h"

enum { MAX_BATCH = 64 };

typedef struct {
    int size; // images
    int image[MAX_BATCH];
    char hash[MAX_BATCH][9];
    int begun;          // calls of batches_begin by then
    const cJSON *taken; // what else is known of it
} Taken;

// All batches of the training set, or of the test set.
typedef struct {
    Taken *items;
    int count;
    const char *stages; // "" where none are known
    bool goes_on;
} Stream;

typedef struct {
    const Run *run;
    int rank;
    Stream train, test;
    int shard;      // of training images; of test images it is the same
    int batch_size; // that was asked for
    int steps;      // of an epoch
} Worker;

Worker worker_of(const Run *run, int rank);
void worker_free(Worker *worker);

// The largest value of a field over all batches.
double most_of(const Stream *stream, const char *field);

// Images that were shifted or flipped, of all.
int changed_images(const Stream *stream, int *images);

// Whole passes over the training images, and the batches of one, from 0.
int pass_count(const Worker *worker);
const Taken *pass_of(const Worker *worker, int pass);

// The place of the first stage of a kind ("cache": in memory or in a file), and of the last one,
// from 0; -1: there is none.
int stage_place(const char *stages, const char *kind, bool last);
bool has_stage(const Stream *stream, const char *kind);

// True where there are both, and some stage of the first kind comes before some of the second.
bool comes_before(const Stream *stream, const char *first, const char *second);

// Takes the evidence over, and adds the stream's stages.
Fault found_wrong(const Diagnosis *diagnosis, char *evidence, const Stream *stream);

// Which images come, in which order, and how they look (stream_images.c).
Fault whole_passes(const void *worker);
Fault other_orders(const void *worker);
Fault augmented_again(const void *worker);
Fault validated_once(const void *worker);

// What they cost: the disk, memory, and the trainer's own time (stream_work.c).
Fault train_read_once(const void *worker);
Fault test_read_once(const void *worker);
Fault buffer_size(const void *worker);
Fault cache_size(const void *worker);
Fault train_ahead(const void *worker);
Fault test_ahead(const void *worker);
Fault trains_on(const void *worker);

#endif
