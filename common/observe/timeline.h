// The timeline of a job: HVD_TIMELINE=FILE.json has every rank note when it does what, and the root
// write all of it when the job ends, as one file in the Trace Event Format (Google, "Trace Event
// Format", the JSON object format), which https://ui.perfetto.dev and chrome://tracing show. A
// process of the picture is a rank; its threads are
//
//     training    epochs, their steps (forward, backward, update, what the rank waits for),
//                 validation, callbacks, calls of hvd and MPI
//     gradients   each piece of the gradients, from the moment it is ready until it is averaged:
//                 its bytes, and its place in the arena, in floats
//     loading     one for each loader thread: the batches that it prepares
//     replica R   one for each replica of a mirrored model: what it computes, and its waits
//     stage S     one for each part of a model that is cut
//
// The categories (cat) are train, compute, wait, callback, gradients, loading. Times are
// microseconds, to the nanosecond, since the first span of all ranks; clocks of different machines
// are compared when the job begins and when it ends. Spans of one thread nest: none overlaps
// another in part.
//
// On a GPU the host only queues most work. A span whose name ends in "(queued)" says when the host
// did so, not when the GPU computed; what the host then waits for is "wait for the GPU".
//
// A span with the argument "unfinished" was still going on when the rank came to its end.
//
// All ranks must have the same setting. While training runs nothing is written, formatted or
// locked. A rank keeps 64 MiB of spans (about a million); then it notes no more, and the end says
// so. Where a job ends otherwise than by main's return, exit(0) or hvd_shutdown, nothing is
// gathered: then the root writes its own part alone, where it comes to exit at all, and after
// die(), abort() or a signal there is no file. A program without hvd_init writes its own part; of
// several such processes under one launcher the first does.
//
// A FILE that can't be written makes the program exit at its beginning, with a line and status 2;
// where the writing fails at the end, there is a line, and the status is 1.

#ifndef HVDLAB_TIMELINE_H
#define HVDLAB_TIMELINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a span is about: its category in the timeline, and what its two numbers mean (-1: nothing).
typedef enum {
    SPAN_EPOCH,      // train: epoch
    SPAN_EVALUATION, // train
    SPAN_STEP,       // train: step
    SPAN_COMPUTE,    // compute: images
    SPAN_WAIT,       // wait
    SPAN_CALL,       // wait: bytes, and the rank of the job that is the root or the partner
    SPAN_CALLBACK,   // callback: epoch
    SPAN_PIECE,      // gradients: bytes, offset
    SPAN_LOAD,       // loading: images, step
} SpanKind;

// True while the recording goes on. One load where it does not.
extern atomic_bool timeline_recording;
static inline bool timeline_on(void)
{
    return atomic_load_explicit(&timeline_recording, memory_order_relaxed);
}

// Called by span.c while it records; span.h says what they do.
void timeline_push(SpanKind kind, const char *name, int64_t first, int64_t second);
void timeline_pop(void);
void timeline_replace(SpanKind kind, const char *name, int64_t first, int64_t second);

// What the thread is called; said before its first span. Without, "training".
void timeline_name_thread(const char *name);

// A copy of a text that may not stay: made, under a lock, when it is first seen.
const char *timeline_text(const char *text);

// Of the thread that trains: a piece of the gradients is ready; all that were are averaged.
void timeline_piece_ready(const char *name, int64_t bytes, int64_t offset);
void timeline_pieces_averaged(void);

// How many bytes of spans a rank keeps; tests lower it.
extern size_t timeline_limit;

// ---- For comm/timeline_file.c, which writes the file.

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
