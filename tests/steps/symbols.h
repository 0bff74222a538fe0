// What a submission calls and has that an exercise hardly needs: shown to an instructor, who looks
// at the file. It decides nothing: a right program may have any of it.

#ifndef HVDLAB_STEPS_SYMBOLS_H
#define HVDLAB_STEPS_SYMBOLS_H

// Reads what compile-step has written of the object (OUT.symbols). Lines, which the caller frees;
// NULL: nothing to look at.
char *symbols_to_look_at(const char *path);

#endif
