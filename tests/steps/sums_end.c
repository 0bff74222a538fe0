// Where a run with an all-reduce ends early: why ranks wait for each other, and what others'
// libraries say of a mistake.

#include "sums.h"

#include <math.h>

#include "waiting.h"
#include "diagnoses/sums_end.h"

// True where every rank of the circle waits until its message is received (or, with `field` "from",
// until one arrives), and for nothing else.
static bool circle_only(const Traces *traces, int begin, const char *field, const char *other)
{
    int at = begin;
    do {
        const cJSON *call = awaited_call(traces, at);
        if (!is_blocked(traces, at) || isnan(event_number(call, field)) ||
            !isnan(event_number(call, other)))
            return false;
        at = awaited_rank(traces, at);
    } while (at != begin);
    return true;
}

// True where a rank waits for a message to be received that another one waits for, by another tag.
static bool tags_differ(const Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++) {
        const cJSON *send = awaited_call(traces, r);
        int to = awaited_rank(traces, r);
        const cJSON *receive = to < 0 ? NULL : awaited_call(traces, to);
        if (receive && is_blocked(traces, r) && is_blocked(traces, to) &&
            event_number(send, "to") == to && awaited_rank(traces, to) == r &&
            event_number(receive, "from") == r &&
            event_number(send, "to_tag") != event_number(receive, "from_tag"))
            return true;
    }
    return false;
}

static bool any_message_is_taken(const Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++)
        if (message_is_taken(traces, r))
            return true;
    return false;
}

static const Diagnosis *mistake(const Traces *traces)
{
    int begin = waiting_circle(traces);
    if (begin >= 0 && traces->ranks == 1)
        return &d_hung_alone;
    if (begin >= 0 && awaited_rank(traces, begin) == begin)
        return &d_hung_to_itself;
    if (tags_differ(traces))
        return &d_hung_tags;
    if (begin >= 0 && circle_only(traces, begin, "to", "from"))
        return &d_blocking_send_deadlock;
    if (begin >= 0 && circle_only(traces, begin, "from", "to"))
        return any_message_is_taken(traces) ? &d_hung_taken : &d_hung_circle;
    return NULL;
}

static const Explanation explanations[] = {
    {"MPI_ERR_TRUNCATE", &d_crashed_too_long},
    {"MPI_ERR_COMM", &d_crashed_no_communicator},
    {"MPI_ERR_ROOT", &d_crashed_root},
    // Open MPI 4 and 5.
    {"MPI_ERR_ARG", &d_crashed_same_array},
    {"MPI_ERR_BUFFER", &d_crashed_same_array},
    {"MPI_ERR_RANK", &d_crashed_no_such_rank},
    {"MPI_ERR_COUNT", &d_crashed_count},
    {"MPI_ERR_", &d_crashed_refused},
    // glibc, when it finds its heap damaged.
    {"free(): ", &d_memory_overrun},
    {"double free or corruption", &d_memory_overrun},
    {"malloc(): ", &d_memory_overrun},
    {"malloc assertion failure", &d_memory_overrun},
    {"malloc.c:", &d_memory_overrun},
    {"corrupted size vs. prev_size", &d_memory_overrun},
    {"corrupted double-linked list", &d_memory_overrun},
    {"realloc(): ", &d_memory_overrun},
    {"munmap_chunk(): ", &d_memory_overrun},
    {"malloc_consolidate(): ", &d_memory_overrun},
    {0},
};

const Ends ends_of_sums = {
    .explanations = explanations, .mistake = mistake, .crashed = judge_crashed_sums};
