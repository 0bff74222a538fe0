// A control: a program that is known to be right. Where a submission does not compile, or its ranks
// end before any of them has communicated, the control is compiled and run in the same way. If that
// fails, too, the machine is at fault: the check ends with status 2, and there is no verdict.

#ifndef HVDLAB_STEPS_CONTROL_H
#define HVDLAB_STEPS_CONTROL_H

#include "process.h"

// To be called before the others: compile-step, the check's folder, and how long the compiler has.
void control_prepare(const char *compiler, const char *folder, double seconds);

// The control's program, an absolute path. Exits where it can't be compiled, and says why.
const char *control_program(void);

// What a process says of its failure: the first lines that are more than a frame, as one line. The
// caller frees it.
char *control_complaint(const Process *process);

// Exits where a disk that the check writes to is full. `used`: bytes that the program has written.
void control_disk(const char *folder, double used);

#endif
