// The recording of spans: each thread appends to a lane of its own, without a lock. timeline_file.c
// writes them to the file.

#include "observe/timeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/memory.h"
#include "base/format.h"

atomic_bool timeline_recording;
size_t timeline_limit = (size_t)64 << 20;

typedef struct Text Text;
struct Text {
    Text *next;
    char *words;
};

static struct {
    pthread_mutex_t lock; // of additions to the lists
    Lane *lanes;
    int count;
    _Atomic(Text *) texts; // read without the lock
    Lane *gradients;
    atomic_size_t bytes;
    atomic_bool full;
} timeline = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local Lane *own;

int64_t timeline_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// ---- Lanes.

static Lane *new_lane(const char *name)
{
    Lane *lane = allocate(1, sizeof *lane);
    lane->name = name;
    pthread_mutex_lock(&timeline.lock);
    lane->number = ++timeline.count;
    lane->next = timeline.lanes;
    timeline.lanes = lane;
    pthread_mutex_unlock(&timeline.lock);
    return lane;
}

static Lane *own_lane(void)
{
    if (!own)
        own = new_lane("training");
    return own;
}

void timeline_name_thread(const char *name)
{
    if (timeline_on() && !own)
        own = new_lane(name);
}

// False where there is no room for more.
static bool add_chunk(Lane *lane)
{
    if (atomic_fetch_add(&timeline.bytes, sizeof(Chunk)) + sizeof(Chunk) > timeline_limit) {
        atomic_store(&timeline.full, true);
        return false;
    }
    Chunk *chunk = allocate(1, sizeof *chunk);
    *(lane->last ? &lane->last->next : &lane->first) = chunk;
    lane->last = chunk;
    return true;
}

// Writes the span first, then the count that makes it visible to other threads. NULL: no room.
static Span *add_span(Lane *lane, SpanKind kind, const char *name, int64_t begin, int64_t first,
                      int64_t second)
{
    size_t count = atomic_load_explicit(&lane->count, memory_order_relaxed);
    bool full = atomic_load_explicit(&timeline.full, memory_order_relaxed);
    if (full || (count % CHUNK_SPANS == 0 && !add_chunk(lane)))
        return NULL;
    Span *span = &lane->last->spans[count % CHUNK_SPANS];
    span->name = name;
    span->kind = kind;
    span->begin = begin;
    span->numbers[0] = first;
    span->numbers[1] = second;
    atomic_store_explicit(&lane->count, count + 1, memory_order_release);
    return span;
}

// ---- Spans of the calling thread.

static void open_span(Lane *lane, Span *span)
{
    if (lane->depth < MAX_OPEN)
        lane->open[lane->depth] = span;
    lane->depth++;
}

static void close_span(Lane *lane, int64_t now)
{
    if (lane->depth == 0) // it was begun before the recording
        return;
    lane->depth--;
    if (lane->depth < MAX_OPEN && lane->open[lane->depth])
        atomic_store_explicit(&lane->open[lane->depth]->end, now, memory_order_release);
}

void timeline_push(SpanKind kind, const char *name, int64_t first, int64_t second)
{
    Lane *lane = own_lane();
    open_span(lane, add_span(lane, kind, name, timeline_clock(), first, second));
}

void timeline_pop(void)
{
    close_span(own_lane(), timeline_clock());
}

void timeline_replace(SpanKind kind, const char *name, int64_t first, int64_t second)
{
    Lane *lane = own_lane();
    int64_t now = timeline_clock();
    close_span(lane, now);
    open_span(lane, add_span(lane, kind, name, now, first, second));
}

static Text *find_text(const char *text)
{
    Text *kept = timeline.texts;
    while (kept && strcmp(kept->words, text) != 0)
        kept = kept->next;
    return kept;
}

const char *timeline_text(const char *text)
{
    if (!timeline_on())
        return text;
    Text *kept = find_text(text);
    if (kept)
        return kept->words;
    pthread_mutex_lock(&timeline.lock);
    kept = find_text(text); // another thread may have added it
    if (!kept) {
        kept = allocate(1, sizeof *kept);
        *kept = (Text){timeline.texts, format_text("%s", text)};
        timeline.texts = kept;
    }
    pthread_mutex_unlock(&timeline.lock);
    return kept->words;
}

// ---- Pieces of the gradients. Several may be under way; they end together, and so nest.

void timeline_piece_ready(const char *name, int64_t bytes, int64_t offset)
{
    if (timeline_on())
        open_span(timeline.gradients,
                  add_span(timeline.gradients, SPAN_PIECE, name, timeline_clock(), bytes, offset));
}

void timeline_pieces_averaged(void)
{
    if (!timeline_on() || timeline.gradients->depth == 0)
        return;
    int64_t now = timeline_clock();
    while (timeline.gradients->depth > 0)
        close_span(timeline.gradients, now);
}

// ---- The recording as a whole.

void timeline_record(void)
{
    own_lane();
    timeline.gradients = new_lane("gradients");
    atomic_store(&timeline_recording, true);
}

static void end_lane(Lane *lane, int64_t now)
{
    for (; lane->depth > 0; close_span(lane, now))
        if (lane->depth <= MAX_OPEN && lane->open[lane->depth - 1])
            lane->open[lane->depth - 1]->unfinished = true;
}

void timeline_stop(void)
{
    if (!atomic_exchange(&timeline_recording, false))
        return;
    int64_t now = timeline_clock();
    end_lane(own_lane(), now);
    end_lane(timeline.gradients, now);
}

const Lane *timeline_lanes(void)
{
    pthread_mutex_lock(&timeline.lock);
    const Lane *lanes = timeline.lanes;
    pthread_mutex_unlock(&timeline.lock);
    return lanes;
}

bool timeline_is_full(void)
{
    return timeline.full;
}

const Span *timeline_next_span(const Lane *lane, SpanIterator *at)
{
    size_t count = atomic_load_explicit(&lane->count, memory_order_acquire);
    while (at->index < count) {
        if (at->index % CHUNK_SPANS == 0)
            at->chunk = at->index == 0 ? lane->first : at->chunk->next;
        const Span *span = &at->chunk->spans[at->index++ % CHUNK_SPANS];
        if (atomic_load_explicit(&span->end, memory_order_acquire) != 0)
            return span;
    }
    return NULL;
}
