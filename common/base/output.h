// What a program leaves behind: whether its output, logs and files arrive where they should.

#ifndef HVDLAB_OUTPUT_H
#define HVDLAB_OUTPUT_H

#include "base/error.h"

// The program goes on, but something that it was to leave behind is lost (a log, its output): where
// it would end with status 0 it prints "PROGRAM: MESSAGE" as its last line and ends with 1. What
// was written to standard output and did not arrive is noticed without this call.
void ends_incomplete(const char *format, ...) PRINTF_LIKE(1, 2);

// How many such calls there were so far.
int losses_so_far(void);

// Looks whether what mpirun prints for its ranks gets lost, since they can't see it themselves: it
// goes to a disk that is full, or to /dev/full. The program then ends incomplete. Also called when
// the program ends.
void watch_output(void);

// Before main (start.c): opens the standard streams that are closed, so that no file takes their
// place. At exit: exits with status 1 where ends_incomplete() was called and the status would be 0.
void output_begin(void);
void output_finish(int status);

#endif
