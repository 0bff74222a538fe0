// The state of a training in equal shards, as the traces have it (events "state", "state_array"):
// hashes of its arrays, by blocks.

#ifndef HVDLAB_STEPS_SHARDED_STATE_H
#define HVDLAB_STEPS_SHARDED_STATE_H

#include <stdint.h>
#include "run.h"

enum { MAX_STATE_ARRAYS = 32, STATE_BLOCKS = 16 };

typedef struct {
    const char *name;
    int length;
    uint64_t blocks[STATE_BLOCKS];
} TracedArray;

typedef struct {
    double updates;
    int arrays;
    TracedArray of[MAX_STATE_ARRAYS];
} RankState;

// Of all ranks, and together: each rank has all of a variable, and its part of what the optimizer
// keeps, whose hashes add up.
typedef struct {
    RankState of[MAX_RANKS];
    RankState sum;
} State;

// The first or the last state of a run; NULL: there is none of all ranks. To be freed.
State *state_read(const Run *run, bool last);

bool is_variable(const TracedArray *array);

// An array as a rank has it: of the optimizer's, together.
const TracedArray *state_array_of(const State *state, int rank, int array);

bool same_blocks(const TracedArray *a, const TracedArray *b);
uint64_t array_bits(const TracedArray *array);
double state_bytes(const State *state);

#endif
