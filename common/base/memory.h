// Heap memory; where there is none the program exits.

#ifndef HVDLAB_MEMORY_H
#define HVDLAB_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

// Zeroed memory for `count` objects of `size` bytes, aligned to 64 bytes; the caller frees it with
// free(). Exits when there is none, or when count * size overflows.
void *allocate(size_t count, size_t size);

// The block at `memory` (NULL: a new one), which the caller had from here, with room for `count`
// objects of `size` bytes; what is added is not zeroed. Exits when there is none.
void *enlarge(void *memory, size_t count, size_t size);

// Whether there is room for `bytes` more in the address space, and the end of the program where
// there is none, since `what` needs it: to be asked before a library that does not look whether it
// got its memory.
bool has_room(size_t bytes);
void need_room(size_t bytes, const char *what);

// Bytes of this process that are in memory, code included; 0: unknown.
size_t resident_memory(void);

// Tells a leak checker that these objects, and what they point to, may live until the process ends:
// a program that has trained ends without freeing its model, as a Keras script does. NULL is
// nothing. One may still free them.
void lives_until_exit(const void *memory);

#endif
