// Notices a program that is older than the student's file that it was built from.

#ifndef HVDLAB_STALE_PROGRAM_H
#define HVDLAB_STALE_PROGRAM_H

// For a program FOLDER/build/F: warns, on the root rank, if FOLDER/steps/F.c was changed later.
void stale_program_check(void);

#endif
