// What a rank waits for, and whether that can come: collective calls that another rank has not
// begun, messages that no rank sends or receives.

#ifndef HVDLAB_STEPS_WAITING_H
#define HVDLAB_STEPS_WAITING_H

#include "events.h"

// The call of MPI that a rank has begun and not ended, or NULL: a collective_begin, a message_begin
// or a wait_begin.
const cJSON *pending_call(const Events *events);

// The library calls the program's own all-reduce, in a sweep or for the optimizer; it has returned.
bool begins_own_sum(const cJSON *event);
bool ends_own_sum(const cJSON *event);

// The call goes on as soon as any request is done.
bool any_will_do(const cJSON *wait);

// The call that a pending one waits for: itself, or, where that waits for what goes on in the
// background, the first call which began such a thing and finds no partner; NULL where all do.
const cJSON *awaited_call(const Traces *traces, int rank);

// The members of a group among which a collective call is made; 0: it is a call of all ranks, or none.
RankSet group_of_call(const Traces *traces, const cJSON *call);

// True where the rank waits for what no other rank has begun.
bool is_blocked(const Traces *traces, int rank);

// The first collective call on a communicator of the program's own of which a rank has made another one,
// another function or root. `calls`, unless NULL, has both; the first one is rank 0's.
typedef struct {
    const cJSON *first, *other;
    int number, rank; // of the call on its communicator, from 1; of the other
} UnlikeCalls;
bool first_unlike_calls(const Traces *traces, UnlikeCalls *calls);

// True where every rank that has not ended is blocked, or waits where the ranks have made different
// collective calls: then none will ever go on, however long one waits.
bool is_deadlock(const Traces *traces);

// The rank that a blocked one waits for, by a message; -1: none, or any.
int awaited_rank(const Traces *traces, int rank);

// True where the rank waits in a receive, and one in the background that it began before, from the same
// rank and with the same tag, is not waited for and has taken a message.
bool message_is_taken(const Traces *traces, int rank);

// A rank that waits for itself in the end: awaited_rank leads from it around a circle and back; -1
// where there is none.
int waiting_circle(const Traces *traces);

#endif
