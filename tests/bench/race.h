// A race: contestants are processes of their own that speak a line protocol on their standard input
// and output, and take turns round after round, so that none disturbs another and a change of the
// machine's speed strikes all.
//
// A contestant prints "ready" (anything else tells why it can't run), then answers "run N" with the
// seconds that N steps took and its peak resident memory in MiB. The end of its input ends it.

#ifndef BENCH_RACE_H
#define BENCH_RACE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

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

double median(const double *values, int count);

// The median over the rounds of how many times faster `a` was than `b` in the same round.
double speed_ratio(const Contestant *a, const Contestant *b, int rounds);

#endif
