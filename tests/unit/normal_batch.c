#include "normal_batch.h"

#include "base/error.h"

Batch normal_batch(int count, int side, uint64_t seed)
{
    static float images[MAX_NORMAL_PIXELS];
    static int labels[MAX_NORMAL_PIXELS];
    if (count * side * side > MAX_NORMAL_PIXELS)
        die("normal_batch: %d images of %d x %d pixels are too many", count, side, side);
    Rng rng = rng_stream_of(seed, RNG_SYNTHETIC_DATA, 0);
    for (int i = 0; i < count * side * side; i++)
        images[i] = rng_normal(&rng);
    for (int i = 0; i < count; i++)
        labels[i] = (int)rng_below(&rng, 10);
    return (Batch){images, labels, count};
}
