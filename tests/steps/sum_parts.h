// What a wrong sum is made of, as far as sums.h does not say it.

#ifndef HVDLAB_STEPS_SUM_PARTS_H
#define HVDLAB_STEPS_SUM_PARTS_H

#include "sums.h"

// The parts of which a value is made that a call left at that place; false where nothing explains
// it.
bool find_parts(const SumCall *call, size_t place, double value, SumParts *parts);

// "the average", "the sum divided by 2", "the sum of ranks 0-2", "the sum of ranks 0-2, with rank 1
// twice". The caller frees it.
char *parts_words(const SumParts *parts, int ranks);

// Kinds of wrong sums: what this rank brought alone, all but that, all and that twice, some ranks'
// values once each, or the values of all, and of some of them more than once.
bool is_average(const SumCall *call, const SumParts *parts, int rank);
bool is_its_own(const SumCall *call, const SumParts *parts, int rank);
bool lacks_its_own(const SumCall *call, const SumParts *parts, int rank);
bool doubles_its_own(const SumCall *call, const SumParts *parts, int rank);
bool lacks_some(const SumCall *call, const SumParts *parts, int rank);
bool has_some_again(const SumCall *call, const SumParts *parts, int rank);

#endif
