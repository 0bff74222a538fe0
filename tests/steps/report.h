// What a check found: properties, one after another, that hold or don't; on the screen and as JSON.
// Whatever a text quotes is cleaned (text_clean): it may come from a submission.

#ifndef HVDLAB_STEPS_REPORT_H
#define HVDLAB_STEPS_REPORT_H

#include <stdint.h>
#include "words.h"

// What a failed property says of the program.
typedef struct {
    const char *name;    // kebab-case
    const char *mistake; // the likely one, in a sentence or two
    const char *hint;    // the exercise whose hint helps; NULL: the one that is graded
} Diagnosis;

typedef struct {
    char *name;
    bool ok;
    char *evidence; // lines; NULL where it holds
    char *mistake;
    char *hint;
} Property;

#define MAX_PROPERTIES 24

typedef struct {
    const char *exercise;
    bool held; // judged only as an earlier exercise's, whose properties must still hold
    const char *file;
    char *diagnosis; // of the first property that failed; NULL: none did
    Property properties[MAX_PROPERTIES];
    int count;
    char *notes; // lines, or NULL
    double seconds;
    const char *seal;    // seal_name()
    uint64_t seed;       // of the runs; 0: none
    const char *sha256;  // of the file
    bool untouched;      // the file is the one that was handed out
    const char *look_at; // lines for an instructor (symbols.h), or NULL
} Report;

// A property that holds. Returns true.
bool report_ok(Report *report, const char *property);

// One that does not. Takes over `evidence`: lines with a line break between them. Returns false.
bool report_failure(Report *report, const char *property, const Diagnosis *diagnosis,
                    char *evidence);

// Takes back the properties that hold, but the first `kept`.
void report_take_back(Report *report, int kept);

// Takes over what failed first where an earlier exercise's properties, `held`, don't hold any more.
void report_lost(Report *report, const Report *held);

// A remark, which fails nothing.
void report_note(Report *report, const char *format, ...) PRINTF_LIKE(2, 3);

// True as long as nothing failed.
bool report_passed(const Report *report);

// What was found, as a text that another process makes a report of; the caller frees it. Takes over
// such a text, and adds it to a report; false: it makes no sense.
char *report_text(const Report *report);
bool report_take(Report *report, const char *text);

void report_print(const Report *report);
void report_write_json(const Report *report, const char *path); // as file_replace does
void report_free(Report *report);

#endif
