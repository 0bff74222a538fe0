// Calls of lessons/ to a layer above it; start.c sets them.

#ifndef HVDLAB_LESSONS_HOOKS_H
#define HVDLAB_LESSONS_HOOKS_H

#include <stddef.h>

// Called when an all-reduce is about to be tried on this array, in front of which there are
// `before` bytes that belong to it; NULL: no more.
extern void (*sweep_array)(const void *array, size_t before);

#endif
