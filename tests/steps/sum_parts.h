// What a wrong sum is made of, as far as sums.h does not say it.

#ifndef HVDLAB_STEPS_SUM_PARTS_H
#define HVDLAB_STEPS_SUM_PARTS_H

#include "sums.h"

// A divisor: each rank's values are divided by the number of ranks on its host.
#define HOST_MEANS (-1)

// Which ranks' values are in a wrong sum, and how often.
typedef struct {
    int times[MAX_RANKS];
    int divisor; // of the whole sum; 0: it is not divided; HOST_MEANS
} SumParts;

// The parts of which a value is made that a call left at that place; false where nothing explains
// it.
bool find_parts(const SumCall *call, size_t place, double value, SumParts *parts);

// "the average", "the sum divided by 2", "the sum of ranks 0-2", "the sum of ranks 0-2, with rank 1
// twice". The caller frees it.
char *parts_words(const SumParts *parts, int ranks);

#endif
