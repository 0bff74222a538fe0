// Which of several files that a student handed in for one exercise counts.

#ifndef HVDLAB_CLASS_CANDIDATES_H
#define HVDLAB_CLASS_CANDIDATES_H

#include <stdbool.h>
#include "class/uploads.h"

// An upload that may be some exercise's file.
typedef struct {
    const Upload *upload;
    int student, exercise;
    int group;      // bytes of the path that name what was handed in at one time: "s09.zip"
    int number;     // 2 in "ring (2).c": of the browser's or the platform's
    int days_late;  // each begun one
    bool untouched; // as it was handed out
} Candidate;

// Days after the deadline, each begun one; 0: it is not late, or nobody knows. `time` and the
// deadlines are seconds since 1970, 0: unknown, none. A student's own deadline comes before the
// common one, `late` is what the platform says.
int days_late(long long time, long long own, long long common, bool late);

// Below 0: `a` counts, and not `b`. *why gets the reason.
int candidate_compare(const Candidate *a, const Candidate *b, const char **why);

#endif
