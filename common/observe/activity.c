// What the main thread is doing, as one record that any thread may read while it is written: a
// sequence lock. The writer makes the number odd, writes, and makes it even again; a reader begins
// again where the number was odd or has changed meanwhile. Each field is written with release and
// read with acquire order, so that none passes the number. (Fences would be fewer, but the thread
// sanitizer does not know them.)

#include "observe/activity.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static struct {
    atomic_uint sequence;
    _Atomic(const char *) call;
    atomic_int_least64_t number, count;
    atomic_int peer;
    _Atomic(const char *) place;
    atomic_int epoch;
    atomic_int_least64_t step;
    atomic_int left, status;
    atomic_uint_least64_t moves;
    atomic_int_least64_t last_of_hvd, last_of_comms;
} now;

static int depth; // of calls within calls, on the main thread

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

// The system is asked once in each thread.
static bool is_main_thread(void)
{
    static _Thread_local enum { UNKNOWN, MAIN, OTHER } thread;
    if (thread == UNKNOWN)
        thread = gettid() == getpid() ? MAIN : OTHER;
    return thread == MAIN;
}

void activity_begin(Activity activity)
{
    if (!is_main_thread() || depth++ > 0)
        return;
    change();
    SET(call, activity.call);
    SET(number, activity.number);
    SET(count, activity.count);
    SET(peer, activity.peer);
    SET(moves, OWN(moves) + 1);
    if (strncmp(activity.call, "MPI_", 4) == 0) {
        if (activity.number > OWN(last_of_comms))
            SET(last_of_comms, activity.number);
    } else if (activity.number > OWN(last_of_hvd))
        SET(last_of_hvd, activity.number);
    changed();
}

void activity_end(void)
{
    if (!is_main_thread() || --depth > 0)
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

void activity_place(const char *place, int epoch, int64_t step)
{
    if (!is_main_thread())
        return;
    change();
    SET(place, place);
    SET(epoch, epoch);
    SET(step, step);
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
    while (!whole) {
        before = GET(sequence);
        doing = (Doing){
            .activity = {GET(call), GET(number), GET(count), GET(peer)},
            .place = GET(place),
            .epoch = GET(epoch),
            .step = GET(step),
            .left = (Leaving)GET(left),
            .status = GET(status),
            .moves = GET(moves),
            .last_of_hvd = GET(last_of_hvd),
            .last_of_comms = GET(last_of_comms),
        };
        whole = before % 2 == 0 && before == OWN(sequence);
        if (!whole)
            sched_yield(); // the writer may wait for this core
    }
    return doing;
}
