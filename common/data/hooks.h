// Calls of data/ to a layer above it; start.c sets them.

#ifndef HVDLAB_DATA_HOOKS_H
#define HVDLAB_DATA_HOOKS_H

#include <stddef.h>
#include <stdint.h>

// Called with `count` images of `bytes` bytes each that were loaded. `split` is a string constant.
extern void (*images_were_loaded)(const char *split, const uint8_t *images, size_t bytes,
                                  const uint8_t *labels, int count);

// A batch's images: their places in a data set, and the labels that they have now.
typedef struct {
    uint64_t batches, permutation; // as in the event "images"
    int64_t step;
    const uint8_t *images; // of the data set
    size_t bytes;          // of each
    const uint32_t *places;
    const int *labels;
    int count;
} DrawnImages;

// Called where tracing is on.
extern void (*images_were_drawn)(const DrawnImages *drawn);

#endif
