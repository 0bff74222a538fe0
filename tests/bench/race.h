// A race: contestants are processes of their own that speak a line protocol on their standard input
// and output, and take turns round after round, so that none disturbs another and a change of the
// machine's speed strikes all.
//
// A contestant prints "ready" (anything else tells why it can't run), then answers "run N" with the
// seconds that N steps took and its peak resident memory in MiB. hvdlab also answers "profile N":
// a line for each kind of work (demand.h), in order, with its calls and seconds in a step; and
// "rates 1" with what its device does at most (rates.h). The end of its input ends it.

#ifndef BENCH_RACE_H
#define BENCH_RACE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include "observe.h"
#include "rates.h"

enum { MAX_ROUNDS = 9, WARM_UP_STEPS = 3 };

typedef struct {
    const char *name;
    pid_t pid;
    FILE *to, *from;
    double seconds[MAX_ROUNDS]; // per step, of each round
    double peak_rss_mib;
} Contestant;

// Starts `command` (as for execvp), with the environment variables of `environment`, pairs of name
// and value, on top; both end with NULL. False, after a line that says why, if it can't run.
bool contestant_start(Contestant *contestant, const char *name, const char *const *command,
                      const char *const *environment);
void contestant_stop(Contestant *contestant);

// Lets each contestant work for about `round_time` seconds in every round.
void race(Contestant *contestants, int count, int rounds, double round_time);

// What each kind of work takes in a step, by hvdlab, over that many steps.
void contestant_profile(Contestant *contestant, int steps, Taken taken[WORK_KINDS]);

// What hvdlab's device does at most, in hvdlab's precision.
Rates contestant_rates(Contestant *contestant);

double median(const double *values, int count);

// The median over the rounds of how many times faster `a` was than `b` in the same round.
double speed_ratio(const Contestant *a, const Contestant *b, int rounds);

#endif
