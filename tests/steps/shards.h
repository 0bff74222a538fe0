// What ranks drew of a split, beside what they would where each image belongs to one rank's shard.
// How images are shared out is no matter, nor whether a shard stays the same from epoch to epoch.

#ifndef HVDLAB_STEPS_SHARES_H
#define HVDLAB_STEPS_SHARES_H

#include "judge.h"
#include "passes.h"

// Of a run.
typedef struct {
    Passes trained, validated;
} ShardsDrawn;

// What is wrong with what a run drew to train on: images that come twice in an epoch, and those that do
// not come; the sizes of shards, and of batches; and with what it validated on.
Fault repeats_fault(const void *drawn);
Fault absence_fault(const void *drawn);
Fault sizes_fault(const void *drawn);
Fault batches_fault(const void *drawn);
Fault validation_fault(const void *drawn);

#endif
