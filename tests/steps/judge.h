// The judges: each looks at a run and reports the properties that it finds, and nothing else.

#ifndef HVDLAB_STEPS_JUDGE_H
#define HVDLAB_STEPS_JUDGE_H

#include "report.h"
#include "run.h"

// Did the compiler make a program, with status 0? `messages` is what it printed.
bool judge_compiler(int status, const char *messages, Report *report);

// Did all ranks train, and come to the end of the program? If not, there is nothing more to judge.
bool judge_end(const Run *run, const char *property, Report *report);

// One for each step, of a run that came to its end.
void judge_step_1(const Run *run, Report *report); // devices
void judge_step_2(const Run *run, Report *report); // who prints
void judge_step_3(const Run *run, Report *report); // gradients
void judge_step_4(const Run *run, Report *report); // weights
void judge_step_5(const Run *run, Report *report); // numbers of steps
void judge_step_6(const Run *run, Report *report); // metrics

// The second run of step 6, in which every rank is above the target at once. Looks at its end, too.
void judge_stop(const Run *run, Report *report);

// For steps 3 and 5, a run of SOME_RANKS ranks: what holds must hold for any number of them.
enum { SOME_RANKS = 2 };
void judge_step_3_again(const Run *run, Report *report);
void judge_step_5_again(const Run *run, Report *report);

// Remarks on the learning rate where it is not the command line's, for the steps from 3 on.
void note_learning_rate(const Run *run, Report *report);

#endif
