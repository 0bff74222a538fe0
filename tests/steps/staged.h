// What the stages of a split model called for each batch, in which order, and what became of their
// weights.

#ifndef HVDLAB_STEPS_STAGED_H
#define HVDLAB_STEPS_STAGED_H

#include "judge.h"

enum { STAGES = 2 };
typedef enum { FORWARD, BACKWARD, SEND, RECEIVE, APPLY, CALLS } CallKind;

typedef struct {
    CallKind kind;
    int micro;
    int begin, end; // places in the trace; end is INT_MAX where it never came
} Call;

// What one stage did with one batch.
typedef struct {
    Call *calls;
    int count;
    int ready; // the place in the trace where its thread began; INT_MAX: never
    double device, value, arena, arena_after; // of the whole batch's gradient; of the weights
    double applied;                           // the gradients of all updates
} StageOf;

typedef struct {
    StageOf of[STAGES];
    int images, micros;
} BatchOf;

typedef struct {
    const Run *run;
    BatchOf *batches;
    int count;
    double rate;    // the learning rate of the command line
    double devices; // that there are: machines with one GPU are graded, too
    double scale[STAGES];
} Staged;

// Of a run; the caller frees them by staged_batches_free.
Staged staged_batches(const Run *run);
void staged_batches_free(Staged *p);

// The place of a call among those of its stage, or -1.
int find_call(const StageOf *stage, CallKind kind, int micro);

// "stage 0, on device 0: forward 0, send 0, receive 0, ...", and the same of the other one.
char *schedule_text(const BatchOf *batch, int number);

// With the schedule of that batch as evidence.
Fault schedule_fault(const Diagnosis *diagnosis, const Staged *p, int batch);

// Reports whether the two devices can compute at the same time, forward and backward
// (split_overlap.c).
void judge_split_overlaps(const Runs *runs, Report *report);

#endif
