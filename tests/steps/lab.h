// The labs' exercises, as far as it concerns their checks: the runs of a check, which earlier
// exercises must still hold, and what the library must not do for them. labs/NN-name/lab.conf says
// so (CONTRIBUTING.md), and common/scripts/labs.sh reads it.

#ifndef HVDLAB_STEPS_LAB_H
#define HVDLAB_STEPS_LAB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "word_list.h"

typedef struct {
    char *line; // of labs.sh, with all that follows; owned, as `words` is, where the texts are
    char *words;
    const char *name;
    int ranks;
    const char *layout; // NULL: none
    int devices;        // 0: as many as the machine has
    int servers;        // of parameters, beside the ranks; 0: mpirun starts the run
    const char *paces;  // of the workers, "0,80,0"; NULL: none
    const char *flags;
    const char *kill;  // RANK:EVENT:N (observe/trace.h); NULL: no rank is
    const char *full;  // which write_checkpoint fails, from 1; NULL: none
    const char *after; // an earlier run; NULL: none
    const char *lose;  // a file of the earlier run that this one lacks; NULL: none
    uint64_t seed;     // of vary_plan; 0: none
} RunPlan;

typedef struct {
    char *name; // "3" or "ring"
    char *file; // "step_03" or "ring": its files' name, without what ends it
    Words holds, replaces;
    RunPlan *runs;
    int run_count;
} Exercise;

typedef struct {
    Exercise *items;
    int count;
} Exercises;

// Of all labs, in the order of their folders' names. Exits where a line of a lab.conf makes no
// sense.
Exercises exercises_read(void);

// The same from what `labs.sh runs` printed.
Exercises exercises_from(FILE *table);
void exercises_free(Exercises *exercises);

// NULL where there is none of that name.
const Exercise *exercise_named(const Exercises *exercises, const char *name);

// True where both ask for the same run.
bool same_plan(const RunPlan *a, const RunPlan *b);

// Makes what does not matter in a run a function of the seed: random numbers (HVDLAB_SEED), the
// nodes' numbers, and the length of the longest array, but of one that is about its chunks. Nothing
// that a right program may rely on changes. Its new texts stay.
void vary_plan(RunPlan *plan, uint64_t seed);

// "step 3" or "ring"; the caller frees it.
char *exercise_title(const char *name);
bool is_step(const char *name);

#endif
