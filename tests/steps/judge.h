// The judges: each looks at the runs of a check and reports the properties that it finds, and
// nothing else. judge_F.c is exercise F's; it makes itself known by JUDGE.

#ifndef HVDLAB_STEPS_JUDGE_H
#define HVDLAB_STEPS_JUDGE_H

#include "report.h"
#include "run.h"
#include "base/format.h"

// What is wrong in a run: a diagnosis, and what it follows from, to be freed.
typedef struct {
    const Diagnosis *diagnosis; // NULL: nothing
    char *evidence;
} Fault;
#define NO_FAULT ((Fault){NULL, NULL})

// One with that evidence; and the same fault with more words before its evidence.
Fault fault_with(const Diagnosis *diagnosis, const char *format, ...) PRINTF_LIKE(2, 3);
Fault fault_at(Fault fault, const char *format, ...) PRINTF_LIKE(2, 3);

// A property that each run has by itself.
typedef struct {
    const char *text; // in a student's words
    Fault (*fault)(const Run *run);
} RunProperty;

// Of runs that came to their end, at least one. What holds must hold in all of them.
typedef void (*Judge)(const Runs *runs, Report *report);

#define JUDGE(file, function)                                                                      \
    __attribute__((constructor)) static void add_to_judges(void)                                   \
    {                                                                                              \
        judge_add(file, function);                                                                 \
    }
void judge_add(const char *file, Judge judge);

// The judge of `file` as a table: PROPERTIES("step_02", {"the root prints", printing_fault}, ...).
// Each property holds where it has no fault in any run; else the first run with one is shown.
#define PROPERTIES(file, ...)                                                                      \
    static void judge_table(const Runs *runs, Report *report)                                      \
    {                                                                                              \
        judge_properties(runs, (const RunProperty[]){__VA_ARGS__, {0}}, report);                   \
    }                                                                                              \
    JUDGE(file, judge_table)
void judge_properties(const Runs *runs, const RunProperty *properties, Report *report);
bool judge_property(const Runs *runs, const char *text, Fault (*fault)(const Run *run),
                    Report *report);

// A property that each item of a run has by itself: each update, each call, what was read of the
// run. `needs`: the property that must hold for this one to be judged; NULL: none.
typedef Fault (*ItemFault)(const void *item);
typedef struct {
    const char *text;
    ItemFault fault;
    const char *needs;
} ItemProperty;

// Calls `fault` with each item of a run, up to the first that has one, which it returns.
typedef Fault (*EachItem)(const Runs *runs, const Run *run, ItemFault fault);

// The table ends with {0}. Returns whether all properties hold.
bool judge_items(const Runs *runs, EachItem each, const ItemProperty *properties, Report *report);

// The judge of the exercise with that file; NULL: there is none.
Judge judge_of(const char *file);

// Did the compiler make a program of `file`, with status 0? `messages` is what it printed. Another
// status than the compiler's own: it had to be ended.
bool judge_compiler(const char *file, int status, const char *messages, Report *report);

// Evidence from a run, which it takes over: says from which; evidence_in only where there are
// several.
char *evidence_of_run(const Run *run, char *evidence);
char *evidence_in(const Runs *runs, const Run *run, char *evidence);

// Reports a property that fails in `run`, with that evidence. Returns false.
bool report_failure_in(Report *report, const Runs *runs, const Run *run, const char *property,
                       const Diagnosis *diagnosis, const char *format, ...) PRINTF_LIKE(6, 7);

// Reports the fault of a run, if it has one, and takes over its evidence. Returns whether there is none.
bool report_fault(Report *report, const Runs *runs, const Run *run, const char *property,
                  Fault fault);

// Reports a failure where some ranks of a run have no such event: "ranks 0 and 2 of 4 DID". Returns
// whether there is no such run.
bool all_ranks_have(const Runs *runs, const char *event, const char *property,
                    const Diagnosis *diagnosis, const char *did, Report *report);

// Reports a property that holds in all runs where `evidence` is NULL, and a failure otherwise.
// Returns whether it holds.
bool report_property(Report *report, const char *property, const Diagnosis *diagnosis,
                     char *evidence);

// The runs on which nothing was trained can show nothing of training. True where there is one;
// fails unless the exercise is only held.
bool nothing_trained(const Runs *runs, const char *property, Report *report);

// The same of a loop of the program's own: where some rank computes no gradients there is nothing
// to say of its updates.
bool none_computed(const Runs *runs, const char *property, Report *report);

#endif
