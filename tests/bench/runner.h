// Runners: processes of their own that run steps when they are told to, by a line protocol on their
// standard input and output. They take turns round after round, so that none disturbs another and a
// change of the machine's speed strikes all.
//
// A runner prints "ready" (anything else tells why it can't run), then answers "run N" with the
// seconds that N steps took and its peak resident memory in MiB. hvdlab's also answers "profile N":
// a line for each kind of work, in order, with its calls and seconds in a step; and "peak 1" with
// what its device does at most; and epochs "parts 1" with what an epoch consists of. The end of its
// input ends it. peer.py is another framework's runner.

#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include "epoch.h"
#include "profiler.h"
#include "workload.h"

enum { MAX_RUNNERS = 8, MAX_ROUNDS = 9 };

typedef struct {
    const char *name; // of the framework
    pid_t pid;
    FILE *to, *from;
    double seconds[MAX_ROUNDS]; // per step, of each round
    double peak_rss_mib;
} Runner;

// This program's file, as mpirun can start it.
const char *own_path(void);

// Starts a runner of one process: hvdlab or convolutions-only where `python` is NULL, else a
// framework of that Python. `environment`: pairs of name and value, which end with NULL, or NULL.
// False, after a line that says why, if it can't run.
bool runner_start(Runner *runner, const char *name, const char *python, const Workload *workload,
                  const char *const *environment);

// hvdlab in one process. Exits if it can't run.
void runner_start_hvdlab(Runner *runner, const Workload *workload, const char *const *environment);

// On `ranks` ranks, each on one of `devices` devices, likewise: hvdlab; the same without an
// all-reduce (apart), or with no more than a barrier after each step (in-step); or epochs, each of
// which counts as a step.
void runner_start_ranks(Runner *runner, const char *what, int ranks, int devices,
                        const Workload *workload);

// hvdlab in one process that has `devices` devices, mirrored on all of them, likewise.
void runner_start_mirrored(Runner *runner, int devices, const Workload *workload);

void runner_stop(Runner *runner);

// Lets each run for about `round_time` seconds in every round.
void time_in_turns(Runner *runners, int count, int rounds, double round_time);

// Of MAX_ROUNDS values at most.
double median(const double *values, int count);

// How much longer the slowest round was than the fastest, as a part of the median.
double spread(const double *values, int count);

// The median over the rounds of how many times faster `a` was than `b` in the same round.
double speed_ratio(const Runner *a, const Runner *b, int rounds);

// What each kind of work takes in a step, by hvdlab, over that many steps.
void runner_profile(Runner *hvdlab, int steps, Timing timings[WORK_KINDS]);

// Of the epochs since it was asked last.
void runner_parts(Runner *epochs, double parts[EPOCH_PARTS]);

// What hvdlab's device does at most, in hvdlab's precision.
Peak runner_peak(Runner *hvdlab);

// The runner's own side: main of `bench --run FRAMEWORK ...`, hvdlab (under mpirun: all its ranks
// together), apart, in-step, epochs, mirrored or convolutions-only, until the end of standard
// input.
int runner_main(const char *framework, const Workload *workload);

#endif
