// What the fuzz targets share. libFuzzer calls a target's LLVMFuzzerTestOneInput with one input
// after another in the same process, and what it feeds makes the program exit when it finds a
// fault. So a target calls it through fuzz_call, which comes back from die() and exit(), and takes
// back whatever memory and open files were left on the way.

#ifndef HVDLAB_FUZZ_H
#define HVDLAB_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// What a function that returns has done with the memory that it asked for. FREES_ALL is checked:
// one that keeps some is a finding.
typedef enum { FREES_ALL, KEEPS_SOME } FuzzMemory;

// Calls body(argument). True if it returned; false if it ended the program, by die() or by exit(0).
// Any other end is a finding: a signal, exit with another status, a report of a sanitizer.
bool fuzz_call(void (*body)(void *), void *argument, FuzzMemory memory);

// The path of a regular file that holds these bytes, until the next call for the same place, 0
// or 1. It lies in memory; a target may write to it, too.
const char *fuzz_file(int place, const void *bytes, size_t size);

// Exits with a finding where the condition does not hold.
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fuzz_finding(__FILE__, __LINE__, #condition " does not hold");                         \
    } while (0)
_Noreturn void fuzz_finding(const char *file, int line, const char *what);

#endif
