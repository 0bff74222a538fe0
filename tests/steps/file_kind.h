// What a file is that is no text of a C program, by its first bytes.

#ifndef HVDLAB_STEPS_FILE_KIND_H
#define HVDLAB_STEPS_FILE_KIND_H

#include "report.h"

// The diagnosis; NULL: it may be a C program.
const Diagnosis *file_kind(const char *path);

// "FF FE 23 00": its first bytes. The caller frees it.
char *first_bytes(const char *path);

#endif
