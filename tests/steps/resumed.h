// What a training that goes on begins with: the checkpoint that is there, and the one that each
// rank restores.

#ifndef HVDLAB_STEPS_RESUMED_H
#define HVDLAB_STEPS_RESUMED_H

#include "judge.h"

#define FOUND "all ranks restore the latest checkpoint, the same one; where there is none, nothing"

// Reports a property that holds in the runs that came to their end, but not where another one did
// not: it may be just what that one ended by.
void report_held(const Runs *runs, Report *report, const char *property);

// How far a training was: epochs that are done, and steps of the next.
typedef struct {
    int epoch, step;
} Reached;

// "ckpt-1-6", "ckpt-2"; the caller frees it.
char *name_of_place(Reached place);

// What the run finds where it begins; false: nothing.
bool finds_checkpoint(const Runs *runs, const Run *run, Reached *place);

// Before fit: the ranks that restored something, what a rank restored last, or "nothing", and
// whether that is the same on all of them.
RankSet ranks_that_restored(const Run *run);
const char *name_restored(const Run *run, int rank);
bool all_restored_the_same(const Run *run);

// True where a rank restored something when fit had begun, or was over.
bool restored_late(const Run *run);

// Reports whether all restore what is there.
extern const Diagnosis d_not_restored, d_restored_by_some, d_different_checkpoints;
bool judge_restored(const Runs *runs, Report *report);

// Reports whether the rate falls as in an uninterrupted training, and whether every step equals
// that of such a training (resumed_steps.c).
void judge_resumed_rates(const Runs *runs, Report *report);
void judge_resumed_steps(const Runs *runs, Report *report);

#endif
