// Batches of random images for tests.

#ifndef HVDLAB_UNIT_NORMAL_BATCH_H
#define HVDLAB_UNIT_NORMAL_BATCH_H

#include "hvdlab.h"

// `count` images of side x side pixels, normal, with labels 0 to 9: the same for the same arguments,
// at most MAX_NORMAL_PIXELS in all. The next call overwrites them.
enum { MAX_NORMAL_PIXELS = 32 * 28 * 28 };
Batch normal_batch(int count, int side, uint64_t seed);

#endif
