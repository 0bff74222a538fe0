// Which file of what was handed in is graded, for each student and exercise.

#ifndef HVDLAB_CLASS_TAKE_H
#define HVDLAB_CLASS_TAKE_H

#include <stdbool.h>
#include <stdint.h>

// What `make grade` was asked for; NULL or 0 where it was not.
typedef struct {
    const char *submissions; // a folder, or an archive of all
    const char *roster;      // CSV
    const char *worksheet, *book, *column;
    const char *repositories; // a folder: ID.tar of each student's repository; ID.error, why there
                              // is none; ID.note
    const char *exercises;    // a file: NAME FILE POINTS, a tab between them
    const char *originals, *solutions; // folders of F.c as they were handed out, and done
    const char *secret;                // of the course, from which seeds follow
    const char *kit;                   // what decides, as text
    const char *only;                  // ids, commas between them: tasks for these alone
    long long deadline;
    bool stamps;    // answer sheets must have the seed of their student's stamp
    const char *to; // an empty folder: UNIT/F.c, taken.json, tasks.tsv
} Request;

// Writes what is taken. tasks.tsv has a line for each check: UNIT EXERCISE FILE SEED SHA256 STAMP
// KEY, where UNIT is the folder of a student or a team, STAMP the seed that an answer sheet must have,
// or 0, and KEY is result_key(). Exits with an error message where a roster matches nobody, or nobody
// has handed in.
void take_submissions(const Request *request);

// What make release stamps a student's package with: a code, and the seed of the answer sheets. The
// package has the name of their folder.
typedef struct {
    char code[17];
    uint64_t seed;
} Stamp;
Stamp stamp_of(const char *secret, const char *folder);

// What is taken, for people; nothing is written or graded.
void print_taken(const char *taken_json);

#endif
