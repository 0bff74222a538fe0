// Passes each span to the timeline, and keeps the main thread's for the stall watch.

#include "observe/span.h"

#include <stdbool.h>
#include "base/process.h"

// What a span of the main thread changes in the record of the stall watch.
typedef enum { CHANGES_NOTHING, IS_CALL, CHANGES_LOCATION } Effect;

static struct {
    Effect effect;
    Location before; // of one that CHANGES_LOCATION
} open_spans[64];    // spans nested deeper change nothing
enum { MAX_KEPT = sizeof open_spans / sizeof *open_spans };

static int depth;
static Location here = {NULL, -1, -1};

static void move_to(Location location)
{
    here = location;
    activity_move(&here);
}

static void push(Effect effect)
{
    if (depth < MAX_KEPT)
        open_spans[depth].effect = effect;
    depth++;
}

static void enter(SpanKind kind, const char *name, int64_t number)
{
    if (!is_main_thread())
        return;
    Location in_span = here;
    if (kind == SPAN_EPOCH)
        in_span = (Location){"training", (int)number, -1};
    else if (kind == SPAN_EVALUATION)
        in_span.name = name;
    else if (kind == SPAN_STEP)
        in_span.step = number;
    else if (kind == SPAN_CALLBACK && here.step < 0) // in a step it is part of the training
        in_span.name = "in callbacks";
    else {
        push(CHANGES_NOTHING);
        return;
    }
    if (depth < MAX_KEPT) {
        open_spans[depth].before = here;
        move_to(in_span);
    }
    push(CHANGES_LOCATION);
}

static void enter_call(const SpanCall *call)
{
    if (!is_main_thread())
        return;
    push(IS_CALL);
    if (depth <= MAX_KEPT)
        activity_begin_call(call);
}

static void leave(void)
{
    if (!is_main_thread() || depth == 0 || --depth >= MAX_KEPT)
        return;
    if (open_spans[depth].effect == IS_CALL)
        activity_end_call();
    else if (open_spans[depth].effect == CHANGES_LOCATION)
        move_to(open_spans[depth].before);
}

void span_begin(SpanKind kind, const char *name, int64_t first, int64_t second)
{
    enter(kind, name, first);
    if (timeline_on())
        timeline_push(kind, name, first, second);
}

void span_begin_call(const SpanCall *call)
{
    enter_call(call);
    if (timeline_on())
        timeline_push(SPAN_CALL, call->name, call->bytes, call->partner);
}

void span_end(void)
{
    leave();
    if (timeline_on())
        timeline_pop();
}

void span_next(SpanKind kind, const char *name, int64_t first, int64_t second)
{
    leave();
    enter(kind, name, first);
    if (timeline_on())
        timeline_replace(kind, name, first, second);
}
