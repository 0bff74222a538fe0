// Inside the timeline: what timeline.c has recorded, for timeline_file.c, which writes it.

#ifndef HVDLAB_TIMELINE_INSIDE_H
#define HVDLAB_TIMELINE_INSIDE_H

#include <stddef.h>
#include "observe/timeline.h"

// Times are nanoseconds of this machine's monotonic clock.
typedef struct {
    const char *name;
    SpanKind kind;
    int64_t begin;
    _Atomic int64_t end; // 0: it is open
    int64_t numbers[2];  // -1: none
    bool unfinished;     // it was open when the recording ended
} Span;

enum { CHUNK_SPANS = 1024, MAX_OPEN = 256 };

typedef struct Chunk Chunk;
struct Chunk {
    Chunk *next;
    Span spans[CHUNK_SPANS];
};

// A row of the picture. One thread writes it: spans are added in the order in which they begin.
// Another may read as many as `count` says.
typedef struct Lane Lane;
struct Lane {
    Lane *next;
    int number; // from 1
    const char *name;
    Chunk *first, *last;
    _Atomic size_t count;
    Span *open[MAX_OPEN]; // from the outermost on; NULL where there was no room
    int depth;            // how many are open, beyond MAX_OPEN, too
};

int64_t timeline_clock(void);

// Begins the recording, with the calling thread as the one that trains; ends it, with the spans
// that are open in the calling thread.
void timeline_record(void);
void timeline_stop(void);

// All lanes, the newest first; NULL: nothing was recorded.
const Lane *timeline_lanes(void);
// Whether there was more than could be kept.
bool timeline_is_full(void);

// The spans of a lane in turn, with an iterator that begins as {0}; NULL: there are no
// more. One that another thread has not ended is passed over.
typedef struct {
    const Chunk *chunk;
    size_t index; // of the next span, in the lane
} SpanIterator;
const Span *timeline_next_span(const Lane *lane, SpanIterator *at);

#endif
