// Ends of runs: what is known of them in the exercises of a lab, beside what is true of any
// program.

#ifndef HVDLAB_STEPS_END_H
#define HVDLAB_STEPS_END_H

#include "judge.h"

// A line by which the library ended the program, because of a mistake that has a name.
typedef struct {
    const char *words; // in the line
    const Diagnosis *diagnosis;
} Explanation;

typedef struct {
    const Explanation *explanations; // up to one without words; NULL: none

    // The same of ranks that disagreed: its words begin the event's term; of
    // those that disagreed in the learning rate.
    Explanation disagreed;
    const Diagnosis *rates_differ;

    // What is wrong where nothing moves any more, or ranks make different calls. Its name is "hung"
    // but where the traces prove more; NULL where the exercise knows nothing of its own.
    const Diagnosis *(*mistake)(const Traces *traces);

    // What a run that ended with a failing status shows that explains it: reports it, or nothing.
    void (*crashed)(const Run *run, Report *report);

    // What a run shows that failed or hung: a diagnosis, where the traces prove more than the
    // messages (NULL elsewhere), and more evidence, or NULL.
    Fault (*ended)(const Run *run);

    // In a program's own loop, ranks with different counts make different calls.
    bool counts_tell_calls;

    const char *training; // the exercise whose hint says that all ranks train; NULL: the graded one
} Ends;

// Makes them known for the exercise with that file.
#define ENDS(file, ends)                                                                           \
    __attribute__((constructor)) static void add_to_ends(void)                                     \
    {                                                                                              \
        ends_add(file, ends);                                                                      \
    }
void ends_add(const char *file, const Ends *ends);

// The same of its own: OWN_ENDS("save", .crashed = crashed, EXPLAINED({"cannot save", &d_cannot_save}))
#define OWN_ENDS(file, ...)                                                                        \
    static const Ends ends = {__VA_ARGS__};                                                        \
    ENDS(file, &ends)
#define EXPLAINED(...)                                                                             \
    .explanations = (const Explanation[])                                                          \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

// Of the exercise with that file; empty where none is listed.
const Ends *ends_of(const char *file);

// Where the library ended ranks that disagreed, the event; NULL: it did not.
const cJSON *disagreement(const Run *run);

// The diagnosis where a trace, or another file of a run, is none that the library can have written.
#define NONSENSE "trace-makes-no-sense"
#define SENSE    "the traces of the run make sense"

// Did all ranks come to the end of the program, and train, where they are to, or were they killed
// as the plan says? Reports it only where they did not: then there is nothing more to judge.
bool judge_end(const Run *run, const Ends *ends, Report *report);
const char *end_property(const RunPlan *plan);

#endif
