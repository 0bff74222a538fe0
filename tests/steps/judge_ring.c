// ring: ring.c, which fast_ring and around use as well.

#include "sums.h"

JUDGE("ring", judge_ring)
ENDS("ring", &ends_of_sums)
