// Spans: what a thread does between two moments. A call site reports that something begins and
// ends; the timeline (observe/timeline.h) records it, and the stall watch reads the main thread's
// calls and its location in the training (observe/activity.h). Spans of a thread nest.

#ifndef HVDLAB_SPAN_H
#define HVDLAB_SPAN_H

#include <stdint.h>
#include "observe/activity.h"
#include "observe/timeline.h"

// Begins a span inside the open one. `name` must stay allocated (timeline_text makes a copy).
void span_begin(SpanKind kind, const char *name, int64_t first, int64_t second);

// Ends the innermost open span.
void span_end(void);

// Ends it, and begins another at the same moment.
void span_next(SpanKind kind, const char *name, int64_t first, int64_t second);

// The name of what a device computes; a GPU's host only queues it.
#define SPAN_QUEUED(gpu, name) ((gpu) ? name " (queued)" : name)

// A call in which this rank may wait for other ranks: a SPAN_CALL, which span_end() ends.
void span_begin_call(const SpanCall *call);

#endif
