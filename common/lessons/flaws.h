// Trainings that lose time, each for a reason of its own (lab 2, exercise profile). The reasons
// follow from a seed. The program describes what the timeline shows, and each training runs again
// with the remedy that the program names.

#ifndef HVDLAB_FLAWS_H
#define HVDLAB_FLAWS_H

#include <stdint.h>
#include "run/args.h"

#pragma GCC visibility push(default) // a step may call what follows

enum {
    TRAININGS = 3,
    NO_RANK = -2,    // not answered
    EVERY_RANK = -1, // all of them lose the same time, in the same way
};

typedef enum {
    NO_REMEDY,      // not answered
    REPLACE_DEVICE, // one rank's device computes too slowly
    CACHE_IMAGES,   // one rank reads its images too slowly
    LARGER_PIECES,  // the gradients travel in too many pieces
} Remedy;

// What the timeline shows of a training. "In a step" means in a step like most others: the first
// two steps of a training are not.
typedef struct {
    int rank;         // on which the time is lost
    const char *span; // in which it is lost there: its name in the timeline
    int milliseconds; // how long that span takes in a step; may be 0 where EVERY_RANK loses time
    int pieces;       // in how many pieces the gradients travel in a step
    Remedy remedy;
} Finding;

// Runs three trainings on exactly four workers, and each again with the remedy of its finding. In
// the timeline the spans "training 1", "training 1 again" and so on enclose them. The root prints
// how long a step takes. With the seed 0 it only says that there is no seed yet. A number of
// workers other than four makes the program exit with an error message.
void train_with_flaws(uint64_t seed, const Finding findings[TRAININGS], const Args *args);

#pragma GCC visibility pop

#endif
