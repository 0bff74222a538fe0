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
    Stream train, test;
    int shard;      // of training images; of test images it is the same
    int batch_size; // that was asked for
    int steps;      // of an epoch
} Worker;

Worker worker_of(const Run *run, int rank);
void worker_free(Worker *worker);

// Over all batches: the largest value of a field, and the sum; how many images they have.
double most_of(const Stream *stream, const char *field);
double sum_of(const Stream *stream, const char *field);
int images_of(const Stream *stream);

// Whole passes over the training images, and the batches of one, from 0.
int pass_count(const Worker *worker);
const Taken *pass_of(const Worker *worker, int pass);

// Has the stream a stage of a kind ("cache": in memory or in a file)?
bool has_stage(const Stream *stream, const char *kind);

// True where some stage of the first kind comes before another one of the second.
bool comes_before(const Stream *stream, const char *first, const char *second);

// A fault with that evidence, and the stream's stages.
Fault found_wrong(const Stream *stream, const Diagnosis *diagnosis, const char *format, ...)
    PRINTF_LIKE(3, 4);

#endif
