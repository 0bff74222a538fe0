// Where a run with an all-reduce ends early: why ranks wait for each other, and what others'
// libraries say of a mistake.

#include "sums.h"

#include <math.h>

#include "waiting.h"

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

static Diagnosis mistake(const Traces *traces)
{
    int begin = waiting_circle(traces);
    if (begin >= 0 && traces->ranks == 1)
        return (Diagnosis){"hung",
                           "the only rank waits for a message of its own: its neighbours in a ring "
                           "are itself. One rank alone has nothing to send.",
                           NULL};
    if (begin >= 0 && awaited_rank(traces, begin) == begin)
        return (Diagnosis){"hung",
                           "a rank sends to itself, or waits for a message of its own: it can't do "
                           "both at once. Often a loop over the other ranks begins with this one.",
                           NULL};
    if (tags_differ(traces))
        return (Diagnosis){
            "hung", "a message is sent with one tag and received with another: they do not match.",
            NULL};
    if (begin >= 0 && circle_only(traces, begin, "to", "from"))
        return (Diagnosis){
            "blocking-send-deadlock",
            "every rank of the circle waits until its message is received, and none of them "
            "receives: often all send first, or one of them never receives. A send may wait for "
            "the receiver: in this check at every size, elsewhere with large messages only. If all "
            "send first, send and receive at the same time (MPI_Sendrecv), or let some ranks "
            "receive first.",
            NULL};
    if (begin >= 0 && circle_only(traces, begin, "from", "to"))
        return (Diagnosis){
            "hung",
            "every rank of the circle waits for a message, and none of them comes to send: "
            "often all receive first.",
            NULL};
    return (Diagnosis){0};
}

// What glibc says when it finds its heap damaged.
#define DAMAGED                                                                                    \
    {                                                                                              \
        "memory-overrun",                                                                          \
            "memory beyond the end of an array from malloc() was overwritten, or it was freed "    \
            "twice. Often malloc() was given a number of floats: it counts bytes, "                \
            "sizeof(float) for each. Or the array has room for the shorter parts, and a longer "   \
            "one arrives.",                                                                        \
            NULL                                                                                   \
    }
// What Open MPI 4 and 5 say of it.
#define SAME_ARRAY                                                                                 \
    {                                                                                              \
        "crashed",                                                                                 \
            "MPI refuses an array. Often it is NULL, or a collective call both sends it and "      \
            "receives into it: MPI_IN_PLACE then stands for the first of the two (with "           \
            "MPI_Reduce on its root alone, rank 0 of that communicator).",                         \
            NULL                                                                                   \
    }
static const Explanation explanations[] = {
    {"MPI_ERR_TRUNCATE",
     {"crashed",
      "a message was longer than the receiving call's buffer: sender and receiver use different "
      "parts of the array, or different messages; or the number of a chunk is below 0 (in C, "
      "-1 % 5 is -1: add size before the %).",
      NULL}},
    {"MPI_ERR_COMM",
     {"crashed",
      "a call is made with a communicator in which this rank is not, or which is not there: a "
      "group is MPI_COMM_NULL on those that are not in it, and they make none of its calls.",
      NULL}},
    {"MPI_ERR_ROOT",
     {"crashed",
      "the root of a collective call is a rank of its communicator: a group of one has none but 0.",
      NULL}},
    {"MPI_ERR_ARG", SAME_ARRAY},
    {"MPI_ERR_BUFFER", SAME_ARRAY},
    {"MPI_ERR_RANK",
     {"crashed",
      "a message goes to, or is awaited from, a rank that is not in the job: ranks go from 0 to "
      "N - 1. Often the number of a neighbour is not taken modulo N, or a loop over the ranks goes "
      "one too far.",
      NULL}},
    {"MPI_ERR_COUNT",
     {"crashed",
      "a call is asked for a number of values below 0: often the difference of two places, and the "
      "second is before the first, as where there are fewer values than ranks; or the number of a "
      "chunk is below 0 (in C, -1 % 5 is -1: add size before the %).",
      NULL}},
    {"MPI_ERR_",
     {"crashed", "MPI refuses a call, and says which of its arguments can't be right.", NULL}},
    {"free(): invalid", DAMAGED},
    {"double free or corruption", DAMAGED},
    {"malloc(): ", DAMAGED},
    {"corrupted size vs. prev_size", DAMAGED},
    {"realloc(): invalid", DAMAGED},
    {"munmap_chunk(): invalid", DAMAGED},
    {"malloc_consolidate(): ", DAMAGED},
    {0},
};

const Ends ends_of_sums = {
    .explanations = explanations, .mistake = mistake, .crashed = judge_crashed_sums};
