// Runs of the finished step 6, each with one of its six steps broken, or with none (lab 2, exercise
// diagnose). Which one follows from a seed. The program says which step it is, by what is measured.

#ifndef HVDLAB_BROKEN_H
#define HVDLAB_BROKEN_H

#include <stdint.h>

#pragma GCC visibility push(default) // a step may call what follows

enum {
    RUNS = 5,
    NOT_ANSWERED = -1,
    NO_STEP = 0, // no step is broken
};

// What the sheet says of a run. `shown`: a column of --show-ranks or of the page, a span of the
// timeline, or the first word of a line that is printed; with NO_STEP it does not matter.
typedef struct {
    int step;          // that is broken, from 1 to 6, or NO_STEP
    const char *shown; // the name by which it is seen
} Symptom;

// Trains one of the five runs on exactly four workers: the first word of the command line is its
// number, from 1, and the flags follow. Does all that the program of step 6 does, from hvd_init() on,
// with a smaller network. Without a number the root prints the sheet, and with the seed 0 it only
// says that there is no seed yet. A number of workers other than four, and a word that is no run's
// number, make the program exit with an error message.
void train_broken(uint64_t seed, const Symptom symptoms[RUNS], int argc, char **argv);

#pragma GCC visibility pop

enum { STEPS_OF_TRAINER = 6 };

// Inside the library, for the check: the step that is broken in each run, or NO_STEP.
void broken_steps(uint64_t seed, int steps[RUNS]);

#endif
