// What the benchmark writes down: build/bench.json and build/bench-gpu.json hold one record of the
// machine and a list of results.

#ifndef BENCH_RECORD_H
#define BENCH_RECORD_H

#include <cjson/cJSON.h>
#include "race.h"
#include "work.h"

// A file that is opened before the measuring, lest the figures be lost.
typedef struct {
    const char *path;
    FILE *file;
    cJSON *document, *results;
} Record;

// Ends the program with one line where the file cannot be written.
Record record_open(const char *path);
void record_save(Record *record);

// Adds a result of that name about a subject; the caller adds its figures.
cJSON *add_result(cJSON *results, const char *name, const char *framework, const Subject *subject);

// Adds a contestant's training step.
void add_training_step(cJSON *results, const Subject *subject, const Contestant *contestant,
                       int threads, int ranks, double images_per_second);

#endif
