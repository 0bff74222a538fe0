// Where each rank of a run is when nothing moves any more, and what keeps it there.

#ifndef HVDLAB_STEPS_WHEREABOUTS_H
#define HVDLAB_STEPS_WHEREABOUTS_H

#include "events.h"

// The collective call that a rank has begun and not ended, or NULL.
const cJSON *pending_collective(const Events *events);

// True where every rank that has not ended waits in a collective call that another rank has not
// begun: then none will ever go on, however long one waits.
bool is_deadlock(const Events events[RANKS]);

// Lines of the kind "rank 0 waits in the broadcast of the variables" and "ranks 1-3, after step 3
// of epoch 1, wait in the all-reduce of the gradients". The caller frees it.
char *whereabouts(const Events events[RANKS]);

// The likely mistake behind them, and the step whose hint helps (0: the one that is graded).
typedef struct {
    const char *text;
    int step;
} Mistake;
Mistake likely_mistake(const Events events[RANKS]);

#endif
