// How learning platforms name what they let an instructor download, and the columns of their
// tables.

#ifndef HVDLAB_CLASS_PLATFORMS_H
#define HVDLAB_CLASS_PLATFORMS_H

#include <stdbool.h>

// The parts of a name. The texts live until the next call.
typedef struct {
    const char *name;   // the student's, as the platform writes it
    const char *number; // the platform's
    bool late;
    const char *rest; // the file's name, within the name that was given; "" for a folder
} PlatformName;

// "Jane Doe_123456_assignsubmission_file", a folder, or "..._file_ring.c".
bool moodle_name_parts(const char *name, PlatformName *parts);

// "doejane_LATE_1234_56789_ring.c".
bool canvas_name_parts(const char *name, PlatformName *parts);

// Any of these two, or Blackboard's "Lab 3_jdoe_attempt_2026-05-06-12-00-01_ring.c", whose number
// is the user's name.
bool file_name_parts(const char *name, PlatformName *parts);

// Columns, each a list of the names that they may have, ended by NULL.
extern const char *const moodle_identifier[],
    *const moodle_name[], *const moodle_email[],
                              *const moodle_number[],
                                  *const moodle_user[],
                                      *const moodle_grade[],
                                          *const moodle_maximum[],
                                              *const moodle_feedback[],
                                                  *const canvas_id[], *const canvas_student[],
                                                                          *const canvas_user[],
                                                                              *const canvas_login[];

// The number at the end of "Participant 123"; "" where there is none.
const char *moodle_participant(const char *cell);

// The path in a zip of feedback files by which Moodle knows whose the file is. The caller frees it.
char *moodle_feedback_name(const char *name, const char *number, const char *file);

#endif
