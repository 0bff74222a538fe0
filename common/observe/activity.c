// The record is a sequence lock. The writer makes the sequence number odd, writes, and makes it
// even again; a reader starts again if the number was odd or has changed. Fields are written with
// release order and read with acquire order, so that no access passes the number. (Fences would be
// fewer, but the thread sanitizer does not support them.)

#include "observe/activity.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include "base/clock.h"
#include "base/process.h"

#define MAX_WAIT 0.1 // seconds for the writer, which a signal's handler may have interrupted

static struct {
    atomic_uint sequence;
    _Atomic(const char *) call;
    atomic_int_least64_t number, count;
    atomic_int peer;
    _Atomic(const char *) location;
    atomic_int epoch;
    atomic_int_least64_t step;
    atomic_int left, status;
    atomic_uint_least64_t moves;
    atomic_int_least64_t last_of_hvd, last_of_comms;
} now = {.epoch = -1, .step = -1};

static int depth; // of calls within calls

#define SET(field, value) atomic_store_explicit(&now.field, value, memory_order_release)
#define GET(field)        atomic_load_explicit(&now.field, memory_order_acquire)
// The only writer needs no order to read what it wrote itself.
#define OWN(field) atomic_load_explicit(&now.field, memory_order_relaxed)

static void change(void)
{
    atomic_store_explicit(&now.sequence, OWN(sequence) + 1, memory_order_relaxed);
}

static void changed(void)
{
    SET(sequence, OWN(sequence) + 1);
}

void activity_begin_call(const SpanCall *call)
{
    if (depth++ > 0)
        return;
    change();
    SET(call, call->name);
    SET(number, call->number);
    SET(count, call->count);
    SET(peer, call->peer);
    SET(moves, OWN(moves) + 1);
    if (strncmp(call->name, "MPI_", 4) == 0) {
        if (call->number > OWN(last_of_comms))
            SET(last_of_comms, call->number);
    } else if (call->number > OWN(last_of_hvd))
        SET(last_of_hvd, call->number);
    changed();
}

void activity_end_call(void)
{
    if (--depth > 0)
        return;
    change();
    SET(call, NULL);
    SET(moves, OWN(moves) + 1);
    changed();
}

bool activity_inside(void)
{
    return is_main_thread() && depth > 0;
}

void activity_move(const Location *to)
{
    change();
    SET(location, to->name);
    SET(epoch, to->epoch);
    SET(step, to->step);
    changed();
}

void activity_leave(Leaving how, int status)
{
    if (!is_main_thread() || OWN(left) != HERE)
        return;
    change();
    SET(left, (int)how);
    SET(status, status);
    SET(moves, OWN(moves) + 1);
    changed();
}

Doing activity_now(void)
{
    Doing doing;
    unsigned before;
    bool whole = false;
    double begin = 0, waited = 0;
    while (!whole && waited < MAX_WAIT) {
        before = GET(sequence);
        doing = (Doing){
            .call = {.name = GET(call),
                     .number = GET(number),
                     .count = GET(count),
                     .peer = GET(peer)},
            .location = {GET(location), GET(epoch), GET(step)},
            .left = (Leaving)GET(left),
            .status = GET(status),
            .moves = GET(moves),
            .last_of_hvd = GET(last_of_hvd),
            .last_of_comms = GET(last_of_comms),
        };
        whole = before % 2 == 0 && before == OWN(sequence);
        if (whole)
            break;
        sched_yield(); // the writer may wait for this core
        begin = begin > 0 ? begin : seconds_now();
        waited = seconds_now() - begin;
    }
    if (!whole)
        doing.call = (SpanCall){0}; // not known
    return doing;
}
