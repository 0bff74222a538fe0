// What a check arranges: a kill, a full disk, names that come late, sends that wait. It stands in
// the environment, is read once, before main, and is then out of the program's reach.

#ifndef HVDLAB_ARRANGED_H
#define HVDLAB_ARRANGED_H

#include <stdbool.h>

typedef struct {
    char event[32]; // HVDLAB_KILL=RANK:EVENT:N, of this rank: it is killed when it has written its
    int number;     // N-th such event; 0: it is not
    int full;       // HVDLAB_FULL=N: the N-th call of write_checkpoint finds the disk full
    bool late;      // HVDLAB_LATE_NAMES=1: see latest_checkpoint()
    bool synchronous; // HVDLAB_SYNCHRONOUS_SENDS=1: a send ends only when it is received
} Arranged;

// Called by start.c. A rank's environment, or that of a process with a role, has none of it
// afterwards; a launcher's keeps it, for its ranks.
void arranged_read(void);

const Arranged *arranged(void);

#endif
