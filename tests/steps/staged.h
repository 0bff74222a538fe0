// What the stages of a model called for each batch, in which order, and what became of their
// weights.

#ifndef HVDLAB_STEPS_STAGED_H
#define HVDLAB_STEPS_STAGED_H

#include "end.h"
#include "judge.h"

enum { MAX_JUDGED_STAGES = 16 };
typedef enum {
    FORWARD,
    BACKWARD,
    SEND_VALUES,
    SEND_GRADIENT,
    RECEIVE_VALUES,
    RECEIVE_GRADIENT,
    APPLY
} CallKind;

typedef struct {
    CallKind kind;
    const char *name; // as it was called: "send", or "send_values"
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
    StageOf of[MAX_JUDGED_STAGES];
    int stages, images, micros;
    bool over; // all schedules have returned
} BatchOf;

typedef struct {
    const Runs *runs; // all of the check
    const Run *run;
    BatchOf *batches;
    int count;
    int stages;     // of the command line; without --stages there are two
    double rate;    // the learning rate of the command line
    double devices; // that there are: machines with one GPU are graded, too
    double scale[MAX_JUDGED_STAGES];
} Staged;

// Of a run; the caller frees them by staged_batches_free.
Staged staged_batches(const Run *run);
void staged_batches_free(Staged *p);

// The place of a call among those of its stage, or -1; how many of a kind there are.
int find_call(const StageOf *stage, CallKind kind, int micro);
int count_calls(const StageOf *stage, CallKind kind);

// How many micro-batches the stage keeps at a time, at most: forward, and not yet backward.
int most_kept(const StageOf *stage);

// The call by which stage s got what this one receives, and the stage that made it; NULL, and -1,
// for a call that receives nothing, and what was never sent.
const Call *sent_for(const BatchOf *batch, int s, const Call *receive, int *sender);

// "stage 0, on device 0: forward 0, send 0, receive 0, ...", and the same of the other ones; with
// `passes` "stage 0 keeps 4: F0 F1 F2 F3 B0 ...". Of long schedules it shows the calls around
// `place` in the trace.
char *schedule_text(const Staged *p, int batch, int place, bool passes);

// With that text, of all calls, as evidence.
Fault schedule_fault(const Diagnosis *diagnosis, const Staged *p, int batch, int place);

// ---- What any schedule must do (staged_update.c): the batches are cut as asked for, each stage
// computes all micro-batches, and updates its weights once, by the whole batch's gradient.

Fault cut_fault(const void *staged);
Fault all_fault(const void *staged);
Fault once_fault(const void *staged);
Fault equal_fault(const void *staged);

// What the library says of schedules that are wrong.
extern const Explanation staged_explanations[];

// The batch in which the program ended, where it did in one, and what that proves (Ends.ended).
Fault staged_end_fault(const void *staged);
Fault staged_ended(const Run *run);

// Calls `fault` with a run's Staged (EachItem).
Fault staged_in(const Runs *runs, const Run *run, ItemFault fault);

// Reports whether the two devices can compute at the same time, forward and backward
// (split_overlap.c).
void judge_split_overlaps(const Runs *runs, Report *report);

#endif
