// The steps of a training with an embedding, as the trace has them: the fingerprints of each row of
// its table as a rank computed it and as the update found it, and the bytes that a rank gave to MPI
// in between; which calls moved them is no matter.

#ifndef HVDLAB_STEPS_SPARSE_STEPS_H
#define HVDLAB_STEPS_SPARSE_STEPS_H

#include "hypotheses.h"

#define ROWS "every rank applies, to each row of the table, the mean of all ranks' gradients"

// One step. The rows are those that some rank named or changed, in ascending order; of row i
// computed[r][i] is what rank r computed for it, place[r][i] where it stood among that rank's rows
// (-1: it did not name it), applied[r][i] what its update found.
typedef struct {
    int rows;
    int *number, *place[MAX_RANKS];
    double *computed[MAX_RANKS], *applied[MAX_RANKS];
    int named[MAX_RANKS];                                         // rows by each rank
    double others_computed[MAX_RANKS], others_applied[MAX_RANKS]; // all but the table
    double weights[MAX_RANKS];                                    // before the step
    double bytes[MAX_RANKS];    // sent from the gradient to the next one,
    double gathered[MAX_RANKS]; // and of these, by other calls than all-reduces
    double allowed;
} SparseStep;

typedef struct {
    const Run *run;
    SparseStep *items;
    int count;
    int dimension, table_rows;
} SparseSteps;

// Of a run, as many as all ranks made; the caller frees them by sparse_steps_free.
SparseSteps sparse_steps(const Run *run);
void sparse_steps_free(SparseSteps *steps);

// The place of a row in the step; -1: it is not there.
int row_in(const SparseStep *step, int number);

// Of a step's Row: Row.of are the SparseSteps, Row.at is the step's number.
const SparseStep *sparse_step(const Row *row);

// Reports whether every rank applies the mean to each row (sparse_rows.c).
bool judge_sparse_rows(const Runs *runs, const Rows *steps, Report *report);

#endif
