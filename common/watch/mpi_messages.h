// The hook of a sweep, for the messages of an all-reduce that is tried.

#ifndef HVDLAB_WATCH_MPI_MESSAGES_H
#define HVDLAB_WATCH_MPI_MESSAGES_H

#include <stddef.h>

// The hook sweep_array: messages with memory just before the array say so.
void watch_sweep(const void *array, size_t before);

#endif
