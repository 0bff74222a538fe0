// Seals: what keeps a submission's program away from this machine, by others' code. For a student's
// own file bubblewrap is used where it works, and nothing elsewhere. Grading the code of others is
// stricter: the first of the following that works here.
//
//     bubblewrap   namespaces: only the system's programs and the run's folder in sight, no
//     network;
//                  as root, under a user number of its own, too
//     user         as root, a user number of its own, which can read what all users can
//     landlock     the kernel keeps it from other files; network and processes it does not
//
// labs/sealed-grading.md says what each of them protects.

#ifndef HVDLAB_STEPS_SEAL_H
#define HVDLAB_STEPS_SEAL_H

#include <stdbool.h>
#include <sys/types.h>
#include "process.h"

typedef enum { SEAL_NONE, SEAL_LANDLOCK, SEAL_USER, SEAL_BUBBLEWRAP } Seal;

// For whom a check is made: the student at home; an instructor, of others' code; or an instructor
// who insists on grading where there is no seal (then as the student).
typedef enum { FOR_OWN, FOR_OTHERS, FOR_OTHERS_UNSEALED } Purpose;

// To be called before any other: the seal that the check takes, or, for others' code, exits with an
// error message where there is none. HVDLAB_SEAL=landlock, say, in the environment tries no better
// ones.
Seal seal_choose(Purpose purpose);
Seal seal_chosen(void);
bool seal_is_strict(void);
const char *seal_name(void); // "none", "landlock", ...

// The user number that programs in the seal have.
uid_t seal_user(void);

// What a program in the seal may see: absolute paths that exist, each list ended by NULL.
typedef struct {
    const char *const *readable; // beside the system's programs and libraries
    const char *const *writable;
    const char *file, *as; // a file that is seen under another name, by bubblewrap only; NULL: none
    const char *folder;    // in which it begins; its HOME
    const char *temporary; // for files of a moment
    const char *scratch;   // has tmp and shm, seen as /tmp and /dev/shm; NULL: they are the seal's
} View;

// Starts a program, with an absolute name, in the seal that was chosen.
Process seal_start(const View *view, const char *const argv[]);

// After a run: removes what a user number of its own has left where all may write.
void seal_tidy_up(void);

// How many processes of the seal's own stand above the program's.
int seal_depth(void);

#endif
