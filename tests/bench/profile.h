// What a training step consists of: the time of each kind of work, beside what it demands.

#ifndef BENCH_PROFILE_H
#define BENCH_PROFILE_H

#include <cjson/cJSON.h>
#include "contestants.h"
#include "demand.h"
#include "rates.h"

// What the subject's training step demands.
void subject_demand(const Subject *subject, Demand demand[WORK_KINDS]);

// Seconds that the demand takes at least: its arithmetic or its bytes, whichever takes longer.
double floor_seconds(Demand demand, Rates rates);

// Has a contestant that has been raced say what each kind of work takes, over that many steps;
// prints a table, with floors where the rates are known, and adds its rows to the results.
void profile_step(cJSON *results, const Subject *subject, Contestant *hvdlab, int steps,
                  const Demand demand[WORK_KINDS], Rates rates);

#endif
