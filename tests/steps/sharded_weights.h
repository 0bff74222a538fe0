// What must hold where the weights are in shards, whenever they travel: each worker keeps a part of
// the gradients, of the state and of the weights; before each pass of a layer all workers have its
// weights, as their owners have updated them; few layers have them at a time, and each is gathered
// once for a pass.

#ifndef HVDLAB_STEPS_SHARDED_WEIGHTS_H
#define HVDLAB_STEPS_SHARDED_WEIGHTS_H

#include "shard_updates.h"

// True where all runs train with weights in shards; else says what they do.
bool weights_are_sharded(const Runs *runs, Report *report);

// Then all properties.
void judge_sharded_weights(const Runs *runs, Report *report);

#endif
