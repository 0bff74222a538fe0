// grades.json in the forms that other programs read.

#ifndef HVDLAB_CLASS_FORMS_H
#define HVDLAB_CLASS_FORMS_H

#include <stdio.h>
#include "base/json.h"

void print_csv(FILE *out, const cJSON *grades); // id, name, email, points and verdict of each
                                                // exercise, points, days late, remarks
void print_book(
    FILE *out, const cJSON *grades); // points of every exercise that was ever graded in this folder
void print_junit(FILE *out, const cJSON *grades);
void print_gradescope(FILE *out, const cJSON *grades,
                      const char *id); // results.json; exits where there is no mark
void print_autolab(FILE *out, const cJSON *grades,
                   const char *id); // the last line that an Autolab grader prints

// The worksheet and the grade book, filled in; all else stays as it came. Who has no mark keeps
// what stood there.
void print_moodle(FILE *out, const cJSON *grades, const char *worksheet);
void print_canvas(FILE *out, const cJSON *grades, const char *book, const char *column);

// A zip for Moodle's "Upload multiple feedback files in a zip", of the pages in a folder.
void write_feedback(const cJSON *grades, const char *worksheet, const char *pages, const char *zip);

#endif
