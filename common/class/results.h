// grades.json: what was taken, what the checks found, and what comes of it; all else is derived
// from it.
//
//     {"kit", "penalty",
//      "students": [{"id", "name", "email", "team", "unit", "results": [RESULT...], "earlier":
//      [RESULT...]}], "not_understood": [{"entry", "why"}]}
//
// RESULT: exercise, max_points, points (null: no mark), passed, verdict, seed, sha256, from, time,
// days_late, remark, override {points, reason, was}, and of the check: seal, look_at, note,
// seconds, properties. `earlier` has exercises of other weeks.

#ifndef HVDLAB_CLASS_RESULTS_H
#define HVDLAB_CLASS_RESULTS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"

typedef struct {
    const char *taken;     // taken.json
    const char *results;   // a folder: UNIT/F.KEY.json, .error (why it could not be graded)
    const char *exercises; // a file: NAME FILE POINTS
    const char *kit;       // what decides, as text
    const char *before;    // grades.json of before; NULL: there is none
    const char *overrides; // CSV: id, exercise, points, reason; NULL: none
    double penalty;        // percent of the points, for each day begun
    bool only; // some students alone were graded: of others what the kit of before found counts
} Collection;

// The caller deletes it.
cJSON *collect_results(const Collection *collection);

// The same students, files and exercises with other verdicts, a line each. Returns how many.
int print_changes(const cJSON *before, const cJSON *after);

// The part of a result's file name that says of which file, seed, kit and stamp it is. The caller
// frees it.
char *result_key(const char *sha256, uint64_t seed, const char *kit, uint64_t stamp);

// Exits with an error message where an override names no student, or none of the kit's exercises
// ("1 2 ring"): to be asked before anything is graded.
void check_overrides(const char *overrides, const char *taken, const char *exercises);

// ---- Reading it.

const cJSON *student_of(const cJSON *grades, const char *id); // exits where there is none
double result_number(const cJSON *result, const char *field); // 0 where it is not there
bool has_mark(const cJSON *result);
bool all_marked(const cJSON *student);
double sum_of(const cJSON *student, const char *field);
int days_late_of(const cJSON *student); // the most of any exercise

#endif
