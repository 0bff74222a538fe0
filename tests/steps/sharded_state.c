// Reads the states of a training in equal shards.

#include "sharded_state.h"

#include <stdlib.h>
#include <string.h>
#include "base/memory.h"

bool is_variable(const TracedArray *array)
{
    return strncmp(array->name, "optimizer/", strlen("optimizer/")) != 0;
}

static bool read_array(const cJSON *event, TracedArray *array)
{
    *array = (TracedArray){event_text(event, "name"), event_int(event, "length"), {0}};
    const char *text = event_text(event, "bits");
    for (int b = 0; b < STATE_BLOCKS; b++) {
        char *end;
        array->blocks[b] = strtoull(text, &end, 16);
        if (end == text)
            return false;
        text = end;
    }
    return array->length > 0;
}

static bool read_rank(const Events *events, bool last, RankState *state)
{
    int at =
        last ? event_find_before(events, "state", events->count) : event_find(events, "state", 0);
    if (at < 0 || event_int(events->items[at], "arrays") > MAX_STATE_ARRAYS)
        return false;
    state->updates = event_number(events->items[at], "updates");
    state->arrays = event_int(events->items[at], "arrays");
    for (int a = 0; a < state->arrays; a++) {
        at = event_find(events, "state_array", at + 1);
        if (at < 0 || !read_array(events->items[at], &state->of[a]))
            return false;
    }
    return true;
}

static bool same_arrays(const RankState *a, const RankState *b)
{
    if (a->arrays != b->arrays)
        return false;
    for (int i = 0; i < a->arrays; i++)
        if (strcmp(a->of[i].name, b->of[i].name) != 0 || a->of[i].length != b->of[i].length)
            return false;
    return true;
}

static void add_rank(RankState *sum, const RankState *rank)
{
    for (int a = 0; a < sum->arrays; a++)
        for (int b = 0; b < STATE_BLOCKS && !is_variable(&sum->of[a]); b++)
            sum->of[a].blocks[b] += rank->of[a].blocks[b];
}

static bool read_all(const Run *run, bool last, State *state)
{
    for (int r = 0; r < run->ranks; r++) {
        if (!read_rank(&run->traces.of[r], last, &state->of[r]) ||
            !same_arrays(&state->of[r], &state->of[0]))
            return false;
        if (r == 0)
            state->sum = state->of[0];
        else
            add_rank(&state->sum, &state->of[r]);
    }
    return true;
}

State *state_read(const Run *run, bool last)
{
    State *state = allocate(1, sizeof *state);
    if (read_all(run, last, state))
        return state;
    free(state);
    return NULL;
}

const TracedArray *state_array_of(const State *state, int rank, int array)
{
    return is_variable(&state->sum.of[array]) ? &state->of[rank].of[array] : &state->sum.of[array];
}

bool same_blocks(const TracedArray *a, const TracedArray *b)
{
    return memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0;
}

uint64_t array_bits(const TracedArray *array)
{
    uint64_t sum = 0;
    for (int b = 0; b < STATE_BLOCKS; b++)
        sum += array->blocks[b];
    return sum;
}

double state_bytes(const State *state)
{
    double bytes = 0;
    for (int a = 0; a < state->sum.arrays; a++)
        bytes += (double)sizeof(float) * state->sum.of[a].length;
    return bytes;
}
