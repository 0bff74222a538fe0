// Prefetch: a ring of slots between background threads, which fill them, and the caller, who takes
// them in order. A thread takes the next step's number and pulls its element, one thread at a time,
// then prepares it in the step's slot while others do the same. The result does not depend on the
// thread or the time: an element is determined when it is pulled.

#include "data/pipeline_inside.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "observe/span.h"

// One element, in preparation or ready.
typedef struct {
    Element raw, done;
    Scratch scratch;
    bool ready;
} Slot;

typedef struct {
    Pipeline stage;
    Slot *slots;    // step s uses slot s % slot_count
    int slot_count; // 0: as many as keep all threads busy, when they are started
    pthread_t *threads;
    int thread_count; // 0 before the first pass

    pthread_mutex_t lock;
    pthread_cond_t work;  // for the threads: there may be a step to take, or it is time to end
    pthread_cond_t ready; // for the caller: an element is ready, or no more come

    // The lock guards all fields below.
    int64_t taken;  // steps, by the threads
    int64_t handed; // on
    int64_t end;    // steps in this pass, where that is known
    bool pulling;   // a thread is pulling
    int busy;       // threads that are at a step
    bool paused, quit;
} Prefetch;

static Slot *slot_of(Prefetch *prefetch, int64_t step)
{
    return &prefetch->slots[step % prefetch->slot_count];
}

// ---- The threads' side.

static bool has_step_to_take(const Prefetch *prefetch)
{
    return !prefetch->paused && !prefetch->pulling && prefetch->taken < prefetch->end &&
           prefetch->taken < prefetch->stage.limit &&
           prefetch->taken < prefetch->handed + prefetch->slot_count;
}

// Pulls the next element, if there is one. Called with the lock held; releases it meanwhile.
static bool pull_step(Prefetch *prefetch, int64_t step, Slot *slot)
{
    Pipeline *upstream = prefetch->stage.upstream;
    prefetch->pulling = true;
    pthread_mutex_unlock(&prefetch->lock);
    bool comes = upstream->next(upstream, &slot->raw);
    pthread_mutex_lock(&prefetch->lock);
    prefetch->pulling = false;
    if (!comes)
        prefetch->end = step;
    pthread_cond_signal(&prefetch->work); // for another thread, which may pull now
    return comes;
}

static void prepare_step(const Prefetch *prefetch, int64_t step, Slot *slot)
{
    const Pipeline *upstream = prefetch->stage.upstream;
    span_begin(SPAN_LOAD, upstream->form.pending ? "augment a batch" : "load a batch",
               slot->raw.count, step);
    prepare(prefetch->stage.source, upstream->form, &slot->raw, &slot->scratch, &slot->done);
    span_end();
}

// Called with the lock held; releases it meanwhile.
static void do_step(Prefetch *prefetch)
{
    int64_t step = prefetch->taken++;
    Slot *slot = slot_of(prefetch, step);
    prefetch->busy++;
    bool comes = pull_step(prefetch, step, slot);
    if (comes) {
        pthread_mutex_unlock(&prefetch->lock);
        prepare_step(prefetch, step, slot);
        pthread_mutex_lock(&prefetch->lock);
    }
    slot->ready = comes;
    prefetch->busy--;
    pthread_cond_signal(&prefetch->ready);
}

// The main loop of a background thread.
static void *load(void *argument)
{
    Prefetch *prefetch = argument;
    timeline_name_thread("loading");
    pthread_mutex_lock(&prefetch->lock);
    while (!prefetch->quit) {
        if (has_step_to_take(prefetch))
            do_step(prefetch);
        else
            pthread_cond_wait(&prefetch->work, &prefetch->lock);
    }
    pthread_mutex_unlock(&prefetch->lock);
    return NULL;
}

// ---- The other side.

static bool next_prefetched(Pipeline *stage, Element *element)
{
    Prefetch *prefetch = (Prefetch *)stage;
    pthread_mutex_lock(&prefetch->lock);
    Slot *slot = slot_of(prefetch, prefetch->handed);
    while (!slot->ready && prefetch->handed < prefetch->end)
        pthread_cond_wait(&prefetch->ready, &prefetch->lock);
    bool comes = slot->ready;
    if (comes) {
        swap_elements(element, &slot->done);
        slot->ready = false;
        prefetch->handed++;
        pthread_cond_signal(&prefetch->work); // the slot is free again
    }
    pthread_mutex_unlock(&prefetch->lock);
    return comes;
}

// One slot for each thread and one more, so that no thread waits for the trainer. Huge batches (a
// whole data set) use fewer.
static int slots_for_threads(const Prefetch *prefetch)
{
    const size_t limit = (size_t)1 << 28; // bytes, with the batch that the trainer has
    const Pipeline *stage = &prefetch->stage;
    size_t bytes = (size_t)stage->form.size * image_length(&stage->source->format) * sizeof(float);
    size_t fitting = limit / bytes, wanted = (size_t)settings()->loader_threads + 1;
    return fitting < 2 ? 1 : fitting <= wanted ? (int)fitting - 1 : (int)wanted;
}

static void allocate_slots(Prefetch *prefetch)
{
    const Pipeline *stage = &prefetch->stage;
    if (prefetch->slot_count == 0)
        prefetch->slot_count = slots_for_threads(prefetch);
    prefetch->slots = allocate((size_t)prefetch->slot_count, sizeof *prefetch->slots);
    for (int i = 0; i < prefetch->slot_count; i++) {
        Slot *slot = &prefetch->slots[i];
        slot->raw = new_element(stage->source, stage->upstream->form);
        slot->done = new_element(stage->source, stage->form);
        slot->scratch = allocate_scratch(&stage->source->format);
        add_held(&stage->source->ahead, stage->form, &slot->done);
    }
}

static void start_threads(Prefetch *prefetch)
{
    allocate_slots(prefetch);
    prefetch->thread_count = settings()->loader_threads;
    prefetch->threads = allocate((size_t)prefetch->thread_count, sizeof *prefetch->threads);
    for (int i = 0; i < prefetch->thread_count; i++) {
        int fault = pthread_create(&prefetch->threads[i], NULL, load, prefetch);
        if (fault != 0)
            die("cannot start %d loader threads: %s; fewer need less memory (--loader-threads)",
                prefetch->thread_count, strerror(fault));
    }
}

// Makes the threads stop after their current elements.
static void pause_threads(Pipeline *stage)
{
    Prefetch *prefetch = (Prefetch *)stage;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->paused = true;
    while (prefetch->busy > 0)
        pthread_cond_wait(&prefetch->ready, &prefetch->lock);
    pthread_mutex_unlock(&prefetch->lock);
}

static void rewind_prefetch(Pipeline *stage)
{
    Prefetch *prefetch = (Prefetch *)stage;
    pause_threads(stage);
    if (prefetch->thread_count == 0)
        start_threads(prefetch);
    stage->upstream->rewind(stage->upstream);
    for (; stage->skip > 0; stage->skip--)
        stage->upstream->next(stage->upstream, &prefetch->slots[0].raw);
    pthread_mutex_lock(&prefetch->lock);
    for (int i = 0; i < prefetch->slot_count; i++)
        prefetch->slots[i].ready = false;
    prefetch->taken = prefetch->handed = 0;
    prefetch->end = INT64_MAX;
    prefetch->paused = false;
    pthread_cond_broadcast(&prefetch->work);
    pthread_mutex_unlock(&prefetch->lock);
}

static void free_prefetch(Pipeline *stage)
{
    Prefetch *prefetch = (Prefetch *)stage;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->quit = true;
    pthread_cond_broadcast(&prefetch->work);
    pthread_mutex_unlock(&prefetch->lock);
    for (int i = 0; i < prefetch->thread_count; i++)
        pthread_join(prefetch->threads[i], NULL);
    for (int i = 0; prefetch->slots && i < prefetch->slot_count; i++) {
        free_element(&prefetch->slots[i].raw);
        free_element(&prefetch->slots[i].done);
        free_scratch(&prefetch->slots[i].scratch);
    }
    free(prefetch->slots);
    free(prefetch->threads);
    pthread_cond_destroy(&prefetch->ready);
    pthread_cond_destroy(&prefetch->work);
    pthread_mutex_destroy(&prefetch->lock);
}

static Pipeline *new_prefetch(Pipeline *p, const char *caller, int ahead, char *name)
{
    Prefetch *prefetch = new_stage(sizeof *prefetch, p, caller, name);
    prefetch->stage.next = next_prefetched;
    prefetch->stage.rewind = rewind_prefetch;
    prefetch->stage.pause = pause_threads;
    prefetch->stage.free = free_prefetch;
    prefetch->stage.form = prepared(p->form);
    prefetch->slot_count = ahead;
    prefetch->paused = true;
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->work, NULL);
    pthread_cond_init(&prefetch->ready, NULL);
    return &prefetch->stage;
}

enum { MAX_AHEAD = 100000 };

// Exits where the memory of so many places is more than there is.
static void check_room(const Pipeline *stage, int places)
{
    size_t length = image_length(&stage->source->format), bytes = sizeof(float);
    if (__builtin_mul_overflow(bytes * length, (size_t)stage->form.size, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)places, &bytes))
        bytes = SIZE_MAX / 2;
    need_room(bytes, "pipeline_prefetch");
}

Pipeline *pipeline_prefetch(Pipeline *p, int ahead)
{
    if (ahead < 1 || ahead > MAX_AHEAD)
        die("%s: %d places; there must be at least 1, and at most %d", __func__, ahead, MAX_AHEAD);
    p = new_prefetch(p, __func__, ahead, format_text("prefetch %d", ahead));
    check_room(p, ahead);
    return p;
}

Pipeline *prefetch_for_threads(Pipeline *p)
{
    return new_prefetch(p, __func__, 0, format_text("prefetch"));
}
