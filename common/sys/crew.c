// Threads on devices: they wait for work, do it all at a time, and meet in the middle of it.

#include "sys/crew.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "sys/device.h"
#include "sys/timeline.h"
#include "sys/trace.h"
#include "base/util.h"

typedef struct {
    Crew *crew;
    int index, device;
    pthread_t thread;
    const char *call; // that it waits in for the others; NULL: in none
    bool done;        // with the work that was given last
} Member;

struct Crew {
    const char *word;
    int count;
    Member *members;

    pthread_mutex_t lock; // of what follows, and of the members' state
    pthread_cond_t begun, ended, met;
    void (*work)(int member, void *argument); // NULL: the threads are to end
    void *argument;
    uint64_t given, meetings; // so far
    int arrived, finished;    // members
};

// The crew that the calling thread is of.
static _Thread_local const Crew *own;

// Waits for the next work; false where there is none any more.
static bool wait_for_work(Crew *crew, uint64_t done)
{
    pthread_mutex_lock(&crew->lock);
    while (crew->given == done)
        pthread_cond_wait(&crew->begun, &crew->lock);
    bool any = crew->work != NULL;
    pthread_mutex_unlock(&crew->lock);
    return any;
}

_Noreturn static void miss(const Crew *crew, const Member *waits, const Member *misses)
{
    if (misses->done)
        die("%s: %s %d waits in it for the others, and %s %d has come to the end of its work "
            "without; all of them call it, or none",
            waits->call, crew->word, waits->index, crew->word, misses->index);
    die("%s: %s %d waits in it for the others, and %s %d has called %s; all of them make the same "
        "calls",
        waits->call, crew->word, waits->index, crew->word, misses->index, misses->call);
}

// Of two members of which one waits: ends the program where they can't meet.
static void compare(const Crew *crew, const Member *a, const Member *b)
{
    const Member *waits = a->call ? a : b, *other = a->call ? b : a;
    if (waits->call && (other->done || (other->call && strcmp(other->call, waits->call) != 0)))
        miss(crew, waits, other);
}

static void compare_with_all(const Crew *crew, const Member *member)
{
    for (int i = 0; i < crew->count; i++)
        compare(crew, member, &crew->members[i]);
}

static void finish(Crew *crew, Member *member)
{
    pthread_mutex_lock(&crew->lock);
    member->done = true;
    compare_with_all(crew, member);
    if (++crew->finished == crew->count)
        pthread_cond_signal(&crew->ended);
    pthread_mutex_unlock(&crew->lock);
}

static void *live(void *argument)
{
    Member *member = argument;
    Crew *crew = member->crew;
    own = crew;
    trace_thread_is(crew->word, member->index);
    char *name = format_text("%s %d", crew->word, member->index);
    timeline_name_thread(timeline_text(name));
    free(name);
    device_use(member->device);
    for (uint64_t done = 0; wait_for_work(crew, done); done++) {
        crew->work(member->index, crew->argument);
        finish(crew, member);
    }
    return NULL;
}

Crew *crew_start(const char *word, const int *devices, int count)
{
    Crew *crew = allocate(1, sizeof *crew);
    crew->word = word;
    crew->count = count;
    crew->members = allocate((size_t)count, sizeof *crew->members);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->begun, NULL);
    pthread_cond_init(&crew->ended, NULL);
    pthread_cond_init(&crew->met, NULL);
    for (int i = 0; i < count; i++) {
        Member *member = &crew->members[i];
        *member = (Member){.crew = crew, .index = i, .device = devices[i]};
        int fault = pthread_create(&member->thread, NULL, live, member);
        if (fault)
            die("no thread can be started for device %d: %s", devices[i], strerror(fault));
    }
    return crew;
}

static void give(Crew *crew, void (*work)(int member, void *argument), void *argument)
{
    crew->work = work;
    crew->argument = argument;
    crew->finished = 0;
    for (int i = 0; i < crew->count; i++)
        crew->members[i].done = false;
    crew->given++;
    pthread_cond_broadcast(&crew->begun);
}

void crew_run(Crew *crew, const char *caller, void (*work)(int member, void *argument),
              void *argument)
{
    if (own)
        die("%s: it is called by one of the threads that are at work on the devices; the program's "
            "own calls it",
            caller);
    pthread_mutex_lock(&crew->lock);
    give(crew, work, argument);
    while (crew->finished < crew->count)
        pthread_cond_wait(&crew->ended, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void crew_meet(Crew *crew, int member, const char *call)
{
    pthread_mutex_lock(&crew->lock);
    Member *self = &crew->members[member];
    self->call = call;
    compare_with_all(crew, self);
    uint64_t meeting = crew->meetings;
    if (++crew->arrived == crew->count) {
        for (int i = 0; i < crew->count; i++)
            crew->members[i].call = NULL;
        crew->arrived = 0;
        crew->meetings++;
        pthread_cond_broadcast(&crew->met);
    }
    while (crew->meetings == meeting)
        pthread_cond_wait(&crew->met, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void crew_free(Crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    give(crew, NULL, NULL);
    pthread_mutex_unlock(&crew->lock);
    for (int i = 0; i < crew->count; i++)
        pthread_join(crew->members[i].thread, NULL);
    pthread_cond_destroy(&crew->begun);
    pthread_cond_destroy(&crew->ended);
    pthread_cond_destroy(&crew->met);
    pthread_mutex_destroy(&crew->lock);
    free(crew->members);
    free(crew);
}
