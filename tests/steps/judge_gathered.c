// Gathered: as in zero, each worker keeps a part of the gradients and of the state, and of the
// weights, too.

#include "sharded_weights.h"

static void judge(const Runs *runs, Report *report)
{
    if (weights_are_sharded(runs, report))
        judge_sharded_weights(runs, report);
}

JUDGE("gathered", judge)
ENDS("gathered", &shard_ends)
