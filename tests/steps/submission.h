// The file that is graded: a copy of it, its hash, and whether anybody has edited it.

#ifndef HVDLAB_STEPS_SUBMISSION_H
#define HVDLAB_STEPS_SUBMISSION_H

#include <stdbool.h>

#define SHA256_DIGITS 64

typedef struct {
    char sha256[SHA256_DIGITS + 1];    // of its bytes
    char sha256_lf[SHA256_DIGITS + 1]; // of its text with the line ends that the kit's files have
} Submission;

// Copies the file to `copy`. Exits where that is impossible.
Submission submission_take(const char *path, const char *copy);

// Copies one file to another. Exits where that is impossible.
void copy_file(const char *from, const char *to);

// True where both files have the same bytes. Exits where one can't be read.
bool same_bytes(const char *a, const char *b);

// True where it is steps/FILE.c as it was handed out. False where nothing says how that was.
bool submission_is_untouched(const Submission *submission, const char *file);

#endif
