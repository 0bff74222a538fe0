// The judges: each looks at the runs of a check and reports the properties that it finds, and
// nothing else. judge_F.c is exercise F's; it makes itself known by JUDGE.

#ifndef HVDLAB_STEPS_JUDGE_H
#define HVDLAB_STEPS_JUDGE_H

#include "report.h"
#include "run.h"
#include "base/format.h"

// Of runs that came to their end, at least one. What holds must hold in all of them.
typedef void (*Judge)(const Runs *runs, Report *report);

#define JUDGE(file, function)                                                                      \
    __attribute__((constructor)) static void add_to_judges(void)                                   \
    {                                                                                              \
        judge_add(file, function);                                                                 \
    }
void judge_add(const char *file, Judge judge);

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
