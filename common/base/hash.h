// Hashes that find changes and differences, and withstand no attack. Checkpoints and traces hold
// them: they keep their values.

#ifndef HVDLAB_HASH_H
#define HVDLAB_HASH_H

#include <stddef.h>
#include <stdint.h>

// FNV-1a (Fowler, Noll and Vo; draft-eastlake-fnv): `hash` is FNV_START, or that of the bytes
// before these.
#define FNV_START 0xcbf29ce484222325
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size);
uint64_t hash_text(const char *text);

// Of `count` things of `bytes` bytes each, 32 bits of its hash: "7e13e189,0c2b5f11". The caller frees
// it.
char *hashes_text(const void *things, int count, size_t bytes);

// Of many bytes, faster; and one step of it, for a number.
uint64_t hash_words(uint64_t hash, const void *bytes, size_t size);
uint64_t hash_number(uint64_t hash, uint64_t number);

#endif
