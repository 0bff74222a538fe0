// The updates of a training that makes each from several batches, as the trace has them: the
// fingerprints of the gradient of each batch and of what became of the weights, and the bytes that
// a rank sends meanwhile. Which calls add and move is no matter.

#ifndef HVDLAB_STEPS_ACCUMULATED_H
#define HVDLAB_STEPS_ACCUMULATED_H

#include "hypotheses.h"

// What a rank may send beside gradients: numbers that ranks compare.
#define OTHER_BYTES 4096

// One update of one rank: from its first gradient to what lies before the next one's.
typedef struct {
    double *gradients; // of each batch
    int count;
    int taken;            // batches from the trainer, computed or not
    bool applied;         // the optimizer was called
    double raw;           // the gradient that it got; of several calls the sum
    double by_rate;       // the same, times its learning rate, over that of the command line
    double weights;       // before it
    double early, late;   // bytes sent before the last gradient, and after it
    const char *function; // the last call, after it, of all gradients' size or more
    int whole;            // and how often it was made, one behind the other
    double effective;     // what the weights have changed by, as a gradient at that rate
    double allowed;       // by how much it may be off
} Update;

typedef struct {
    const Run *run;
    Update *of[MAX_RANKS];
    int made[MAX_RANKS], count; // by each rank; by all of them
    int passes, steps, epochs;  // as the page has them
    double rate, bytes;         // of the command line; of all gradients
    bool by_weights;            // these have changed otherwise than by the optimizer
} Updates;

// Of a run; the caller frees them by accumulated_updates_free.
Updates accumulated_updates(const Run *run);
void accumulated_updates_free(Updates *updates);

// Adds a row for each update, up to where, after the first, numbers are not finite: what became of the
// weights on each rank, and the sum of its own gradients. Row.of is `updates` (accumulated_mean.c).
void accumulated_add(Rows *rows, const Updates *updates);

const Update *accumulated_update(Cell cell); // of such a row

// Reports whether every rank applies the mean of all batches' gradients.
bool judge_accumulated_mean(const Runs *runs, const Rows *rows, Report *report);

#endif
