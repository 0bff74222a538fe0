// Where each rank of a run is when nothing moves any more, and what keeps it there, in words.

#ifndef HVDLAB_STEPS_WHEREABOUTS_H
#define HVDLAB_STEPS_WHEREABOUTS_H

#include "events.h"

// Lines of the kind "rank 0 waits in the broadcast of the variables" and "ranks 1-3, after step 3
// of epoch 1, wait in the all-reduce of the gradients". The caller frees it.
char *whereabouts(const Traces *traces);

// The likely mistake behind them, and the exercise whose hint helps (NULL: the one that is graded).
typedef struct {
    const char *text;
    const char *exercise;
} Mistake;
Mistake likely_mistake(const Traces *traces);

#endif
