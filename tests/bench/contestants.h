// Who takes part in the race, and how each is started.

#ifndef BENCH_CONTESTANTS_H
#define BENCH_CONTESTANTS_H

#include <cjson/cJSON.h>
#include "race.h"
#include "subject.h"

enum { MAX_CONTESTANTS = 8 };

// This program's file, as mpirun can start it.
const char *own_path(void);

// Starts a contestant of one process: hvdlab or convolutions-only where `python` is NULL, else a
// framework of that Python. False, after a line that says why, if it can't run.
bool start_contestant(Contestant *contestant, const char *name, const char *python,
                      const Subject *subject, const char *const *environment);

// Starts hvdlab on `ranks` ranks, each on one of `devices` devices.
bool start_ranks(Contestant *contestant, int ranks, int devices, const Subject *subject);

// Prints a line for each contestant: images/s, milliseconds, memory, and by how much the first is
// quicker. Adds them to the results.
void report_race(cJSON *results, const Subject *subject, const Contestant *contestants, int count,
                 int rounds);

#endif
