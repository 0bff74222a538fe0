// Inside the library: the position of batches, as a text that a checkpoint keeps. A pipeline's
// output is a function of its seeds and of how much it has given, so a position is restored from
// the seeds by going forward, without preparing images.

#ifndef HVDLAB_POSITION_H
#define HVDLAB_POSITION_H

#include <stdbool.h>
#include "data/augment.h"

// The caller frees it.
char *batches_position(const Batches *batches);

// Whether it is one of these stages and this data set.
bool batches_have_position(const Batches *batches, const char *position);

// Moves to that position: batches_next then gives the batch that would come there. The batches must
// be new if a cache keeps random draws. Returns false, and changes nothing, if they have no such
// position.
bool batches_go_to(Batches *batches, const char *position);

// Keeps only the number of calls of batches_begin, so that random draws do not repeat.
void batches_begin_after(Batches *batches, const char *position);

#endif
