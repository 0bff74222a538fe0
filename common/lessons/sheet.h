// The programs of answer sheets: what they are about follows from a seed.

#ifndef HVDLAB_SHEET_H
#define HVDLAB_SHEET_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_SHEET_SEED = 999999 };

// Called by the function `caller` of an exercise's program: whether its sheet has a seed. With seed
// 0 the root says that there is none yet. Another number of workers than `workers`, and a seed above
// MAX_SHEET_SEED, make the program exit with an error message.
bool sheet_has_seed(const char *exercise, const char *caller, uint64_t seed, int workers);

#endif
