// Pending calls, and their partners.
//
// Calls are matched by counting: the third send of rank 0 to rank 1 with tag 7 has a partner as
// soon as rank 1 has called for three such messages. A receive that takes any rank's or any tag's
// counts for each that it may take: where the traces leave a doubt, no rank is called blocked.

#include "waiting.h"

#include <math.h>
#include <string.h>

#define TRAINER "hvd_use_allreduce" // the collective call in which a trace has it

bool begins_own_sum(const cJSON *event)
{
    return event_is(event, "sweep_begin") ||
           (event_is(event, "collective_begin") && event_has(event, "function", TRAINER));
}

bool ends_own_sum(const cJSON *event)
{
    return event_is(event, "sweep_end") ||
           (event_is(event, "collective_end") && event_has(event, "function", TRAINER));
}

const cJSON *pending_call(const Events *events)
{
    const cJSON *pending = NULL;
    EACH_EVENT (event, events) {
        if (event_is(event, "collective_begin") || event_is(event, "message_begin") ||
            event_is(event, "wait_begin"))
            pending = event;
        if (event_is(event, "collective_end") || event_is(event, "message_end") ||
            event_is(event, "wait_end"))
            pending = NULL;
    }
    return pending;
}

// ---- Collective calls.

RankSet group_of_call(const Traces *traces, const cJSON *call)
{
    RankSet members = event_ranks(call, "ranks");
    bool of_group = strncmp(event_text(call, "function"), "hvd_group_", strlen("hvd_group_")) == 0;
    return of_group || members != all_ranks(traces->ranks) ? members : 0;
}

static bool is_alike(const cJSON *call, const cJSON *other)
{
    const char *field = *event_text(call, "name") ? "name" : "function";
    return strcmp(event_text(call, field), event_text(other, field)) == 0 &&
           strcmp(event_text(call, "ranks"), event_text(other, "ranks")) == 0;
}

// How many calls like this one the rank has begun, `last` (NULL: all) included: on that communicator;
// where it has no name, of that function among the same ranks.
static int calls_begun(const Events *events, const cJSON *call, const cJSON *last)
{
    int count = 0;
    EACH (at, events, "collective_begin") {
        count += is_alike(call, events->items[at]);
        if (events->items[at] == last)
            break;
    }
    return count;
}

// A rank of its communicator has not made the call.
static bool lacks_callers(const Traces *traces, int rank, const cJSON *call)
{
    RankSet members = event_ranks(call, "ranks");
    int number = calls_begun(&traces->of[rank], call, call);
    for (int other = 0; other < traces->ranks; other++)
        if ((members == 0 || has_rank(members, other)) &&
            calls_begun(&traces->of[other], call, NULL) < number)
            return true;
    return false;
}

// The rank's next call after `at` that is like this one, or -1.
static int next_alike(const Events *events, const cJSON *call, int at)
{
    do
        at = event_find(events, "collective_begin", at + 1);
    while (at >= 0 && !is_alike(call, events->items[at]));
    return at;
}

static bool unlike_calls_of(const Traces *traces, int rank, const cJSON *call, UnlikeCalls *calls)
{
    int number = 0, first = -1, other = -1;
    while ((first = next_alike(&traces->of[0], call, first)) >= 0 &&
           (other = next_alike(&traces->of[rank], call, other)) >= 0) {
        const cJSON *a = traces->of[0].items[first], *b = traces->of[rank].items[other];
        number++;
        if (strcmp(event_text(a, "function"), event_text(b, "function")) == 0 &&
            event_int(a, "root") == event_int(b, "root"))
            continue;
        if (calls)
            *calls = (UnlikeCalls){a, b, number, rank};
        return true;
    }
    return false;
}

bool first_unlike_calls(const Traces *traces, UnlikeCalls *calls)
{
    for (int r = 1; r < traces->ranks; r++) {
        const cJSON *last = event_last(&traces->of[r], "collective_begin");
        if (last && strncmp(event_text(last, "name"), "MPI", 3) == 0 &&
            unlike_calls_of(traces, r, last, calls))
            return true;
    }
    return false;
}

// ---- Messages.

// What a message_begin sends (field "to") or receives ("from"): whom to, and with which tag.
typedef struct {
    const char *comm;
    double peer, tag; // -1: any; NaN: it has no such direction
} Direction;

static Direction direction_of(const cJSON *message, bool sends)
{
    return (Direction){event_text(message, "name"), event_number(message, sends ? "to" : "from"),
                       event_number(message, sends ? "to_tag" : "from_tag")};
}

static bool may_be(double wanted, double other)
{
    return wanted == other || wanted < 0 || other < 0;
}

// How many of a rank's messages up to `last` (NULL: all) go that way with such a tag.
static int count_messages(const Events *events, bool sends, Direction wanted, const cJSON *last)
{
    int count = 0;
    EACH (at, events, "message_begin") {
        Direction found = direction_of(events->items[at], sends);
        count += strcmp(found.comm, wanted.comm) == 0 && may_be(wanted.peer, found.peer) &&
                 may_be(wanted.tag, found.tag);
        if (events->items[at] == last)
            break;
    }
    return count;
}

// True where a message that the rank sends (or receives) by this call has no partner.
static bool lacks_partner(const Traces *traces, int rank, const cJSON *message, bool sends)
{
    Direction wanted = direction_of(message, sends);
    if (isnan(wanted.peer))
        return false;
    int number = count_messages(&traces->of[rank], sends, wanted, message), partners = 0;
    for (int other = 0; other < traces->ranks; other++)
        if (may_be(wanted.peer, other))
            partners += count_messages(&traces->of[other], !sends,
                                       (Direction){wanted.comm, rank, wanted.tag}, NULL);
    return partners < number;
}

static bool lacks_any(const Traces *traces, int rank, const cJSON *call)
{
    if (event_is(call, "collective_begin"))
        return lacks_callers(traces, rank, call);
    return lacks_partner(traces, rank, call, true) || lacks_partner(traces, rank, call, false);
}

// ---- What goes on in the background.

// The call that began it.
static const cJSON *call_of_request(const Events *events, int number)
{
    const cJSON *begin = NULL;
    EACH_EVENT (event, events) {
        if (event_is(event, "collective_begin") || event_is(event, "message_begin"))
            begin = event;
        else if (event_number(event, "request") == number)
            return begin;
    }
    return NULL;
}

bool any_will_do(const cJSON *wait)
{
    const char *function = event_text(wait, "function");
    return strstr(function, "any") || strstr(function, "some");
}

// Of what a wait_begin waits for, the first call without a partner. One that goes on as soon as
// anything is done must lack them all.
static const cJSON *first_without_partner(const Traces *traces, int rank, const cJSON *wait)
{
    const cJSON *first = NULL;
    const char *at = event_text(wait, "requests");
    for (int number; (number = next_listed(&at)) >= 0;) {
        const cJSON *call = call_of_request(&traces->of[rank], number);
        bool lacks = call && lacks_any(traces, rank, call);
        if (!lacks && any_will_do(wait))
            return NULL;
        if (lacks && !first)
            first = call;
    }
    return first;
}

const cJSON *awaited_call(const Traces *traces, int rank)
{
    const cJSON *call = pending_call(&traces->of[rank]);
    if (call && event_is(call, "wait_begin"))
        return first_without_partner(traces, rank, call);
    return call;
}

bool is_blocked(const Traces *traces, int rank)
{
    const cJSON *call = awaited_call(traces, rank);
    return call && lacks_any(traces, rank, call);
}

bool is_deadlock(const Traces *traces)
{
    int blocked = 0;
    bool unlike = first_unlike_calls(traces, NULL);
    for (int r = 0; r < traces->ranks; r++) {
        bool waits = pending_call(&traces->of[r]);
        bool ended = event_find(&traces->of[r], "end", 0) >= 0 && !waits;
        if (is_blocked(traces, r) || (unlike && waits))
            blocked++;
        else if (!ended)
            return false;
    }
    return blocked > 0;
}

int awaited_rank(const Traces *traces, int rank)
{
    const cJSON *call = awaited_call(traces, rank);
    if (!call || !event_is(call, "message_begin"))
        return -1;
    bool sending = lacks_partner(traces, rank, call, true);
    double peer = event_number(call, sending ? "to" : "from");
    return peer >= 0 && peer < traces->ranks ? (int)peer : -1;
}

static bool is_complete(const Events *events, int request)
{
    EACH (at, events, "wait_end") {
        const char *listed = event_text(events->items[at], "requests");
        for (int done; (done = next_listed(&listed)) >= 0;)
            if (done == request)
                return true;
    }
    return false;
}

bool message_is_taken(const Traces *traces, int rank)
{
    const Events *events = &traces->of[rank];
    const cJSON *call = pending_call(events), *begin = NULL;
    Direction wanted = direction_of(call, false);
    EACH_EVENT (event, events) {
        if (event_is(event, "message_begin"))
            begin = event;
        int request = event_is(event, "message_end") ? event_int(event, "request") : 0;
        Direction found = direction_of(begin, false);
        if (request > 0 && found.peer == wanted.peer && found.tag == wanted.tag &&
            strcmp(found.comm, wanted.comm) == 0 && !is_complete(events, request) &&
            !lacks_partner(traces, rank, begin, false))
            return true;
    }
    return false;
}

int waiting_circle(const Traces *traces)
{
    for (int begin = 0; begin < traces->ranks; begin++) {
        int at = begin, length = 0;
        do
            at = awaited_rank(traces, at);
        while (at >= 0 && at != begin && ++length < traces->ranks);
        if (at == begin)
            return begin;
    }
    return -1;
}
