// What all answer sheets have in common: a seed, which a student's stamp may set, and one call of the
// library's function, which the sheet is about.

#ifndef HVDLAB_STEPS_ANSWER_SHEET_H
#define HVDLAB_STEPS_ANSWER_SHEET_H

#include "judge.h"

// Judges that in each run rank 0 has `count` events of this name, which the library's function traces
// if it is called once and has a seed, and that the seed is the student's own. If all of this holds,
// judges each answer, from 1: `what` it is about.
void judge_sheet(const Runs *runs, const char *event, int count, const char *what,
                 Fault (*fault)(const Run *run, int number), Report *report);

// The seed of a sheet that is judged.
uint64_t sheet_seed(const Run *run);

bool is_one_of(const char *name, const char *const *names); // which end with NULL

#endif
