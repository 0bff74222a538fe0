// Inside the CPU backend's passes: what several of them need. Which elements dropout keeps, and how
// activations are divided.

#ifndef HVDLAB_PASSES_PARTS_H
#define HVDLAB_PASSES_PARTS_H

#include <string.h>
#include "cpu/passes.h"
#include "cpu/simd.h"

typedef uint32_t WordVector __attribute__((vector_size(4 * VECTOR)));

// What dropout needs: elements whose hash is below `limit` are dropped.
typedef struct {
    uint32_t key0, key1, limit;
    float scale;
} Dropout;

static Dropout dropout_of(float rate, uint64_t key)
{
    return (Dropout){(uint32_t)key, (uint32_t)(key >> 32), (uint32_t)((double)rate * 4294967296.0),
                     1 / (1 - rate)};
}

// Set where an element is kept. The hash of position and key is a multiply-and-shift mixer of
// 32 bits; one key gives one pattern, however the work is divided among threads.
INLINE Ints keep_mask(Dropout d, uint32_t first)
{
    static const uint32_t places[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    WordVector h;
    memcpy(&h, places, sizeof h);
    h = (h + first) * 0x9e3779b9u + d.key0;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15) ^ d.key1) * 0x846ca68bu;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h ^= h >> 15;
    return (Ints)(h >= d.limit);
}

// Chunks: one image's pixels of one block of channels, contiguous in memory.
INLINE int chunk_count(Layout layout)
{
    return layout.batch * layout.blocks;
}

INLINE size_t chunk_size(Layout layout)
{
    return (size_t)layout.pixels * (size_t)layout.lanes;
}

#endif
