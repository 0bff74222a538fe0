// The programs of answer sheets: what they are about follows from a seed.

#ifndef HVDLAB_SHEET_H
#define HVDLAB_SHEET_H

#include <stdbool.h>
#include <stdint.h>

// Called by the function `caller` of an exercise's program: whether its sheet has a seed. With seed
// 0 the root says that there is none yet. Another number of workers than `workers`, and a seed above
// 999999, make the program exit with an error message.
bool sheet_has_seed(const char *exercise, const char *caller, uint64_t seed, int workers);

#endif
