// The contestant's side of the race; race.h has the protocol.

#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include "subject.h"

// Serves until the end of standard input. `contestant` is "hvdlab" (under mpirun: all its ranks
// together) or "convolutions-only". Returns main's status.
int serve(const char *contestant, const Subject *subject);

#endif
