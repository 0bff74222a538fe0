// `make compare`: the device beside another. On a machine without a GPU one core stands beside all
// of them.

#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "subject.h"

// `subject`: what to train instead of the usual; NULL: the usual.
void compare_devices(bool quick, const Subject *subject);

#endif
