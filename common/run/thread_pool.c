// Threads on devices: they wait for work, start it together, and synchronize at barriers.

#include "run/thread_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "run/device.h"
#include "observe/timeline.h"
#include "observe/trace.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"

typedef struct {
    ThreadPool *pool;
    int index, device;
    pthread_t thread;
    const char *call; // that it waits in for the others; NULL: in none
    bool done;        // with the work that was given last
} Member;

struct ThreadPool {
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

// The member whose thread this is; NULL: the program's own.
static _Thread_local const Member *own;

// Waits for the next work; false when there is none left.
static bool wait_for_work(ThreadPool *pool, uint64_t done)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->given == done)
        pthread_cond_wait(&pool->begun, &pool->lock);
    bool any = pool->work != NULL;
    pthread_mutex_unlock(&pool->lock);
    return any;
}

_Noreturn static void miss(const ThreadPool *pool, const Member *waits, const Member *misses)
{
    if (misses->done)
        die("%s: %s %d waits in it for the others, and %s %d has come to the end of its work "
            "without; all of them call it, or none",
            waits->call, pool->word, waits->index, pool->word, misses->index);
    die("%s: %s %d waits in it for the others, and %s %d has called %s; all of them make the "
        "same calls",
        waits->call, pool->word, waits->index, pool->word, misses->index, misses->call);
}

// Exits if two members, of which one waits, can't reach the same barrier.
static void compare(const ThreadPool *pool, const Member *a, const Member *b)
{
    const Member *waits = a->call ? a : b, *other = a->call ? b : a;
    if (waits->call && (other->done || (other->call && strcmp(other->call, waits->call) != 0)))
        miss(pool, waits, other);
}

static void compare_with_all(const ThreadPool *pool, const Member *member)
{
    for (int i = 0; i < pool->count; i++)
        compare(pool, member, &pool->members[i]);
}

static void finish(ThreadPool *pool, Member *member)
{
    pthread_mutex_lock(&pool->lock);
    member->done = true;
    compare_with_all(pool, member);
    if (++pool->finished == pool->count)
        pthread_cond_signal(&pool->ended);
    pthread_mutex_unlock(&pool->lock);
}

static void *live(void *argument)
{
    Member *member = argument;
    ThreadPool *pool = member->pool;
    own = member;
    trace_thread_is(pool->word, member->index);
    char *name = format_text("%s %d", pool->word, member->index);
    timeline_name_thread(timeline_text(name));
    free(name);
    device_use(member->device);
    for (uint64_t done = 0; wait_for_work(pool, done); done++) {
        pool->work(member->index, pool->argument);
        finish(pool, member);
    }
    return NULL;
}

ThreadPool *thread_pool_start(const char *word, const int *devices, int count)
{
    ThreadPool *pool = allocate(1, sizeof *pool);
    pool->word = word;
    pool->count = count;
    pool->members = allocate((size_t)count, sizeof *pool->members);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begun, NULL);
    pthread_cond_init(&pool->ended, NULL);
    pthread_cond_init(&pool->met, NULL);
    for (int i = 0; i < count; i++) {
        Member *member = &pool->members[i];
        *member = (Member){.pool = pool, .index = i, .device = devices[i]};
        int fault = pthread_create(&member->thread, NULL, live, member);
        if (fault)
            die("no thread can be started for device %d: %s", devices[i], strerror(fault));
    }
    return pool;
}

static void give(ThreadPool *pool, void (*work)(int member, void *argument), void *argument)
{
    pool->work = work;
    pool->argument = argument;
    pool->finished = 0;
    for (int i = 0; i < pool->count; i++)
        pool->members[i].done = false;
    pool->given++;
    pthread_cond_broadcast(&pool->begun);
}

void thread_pool_check_outside(const char *caller)
{
    if (own)
        die("%s: it is called by one of the threads that are at work on the devices; the program's "
            "own calls it",
            caller);
}

void thread_pool_run(ThreadPool *pool, const char *caller, void (*work)(int member, void *argument),
                     void *argument)
{
    thread_pool_check_outside(caller);
    pthread_mutex_lock(&pool->lock);
    give(pool, work, argument);
    while (pool->finished < pool->count)
        pthread_cond_wait(&pool->ended, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void thread_pool_barrier(ThreadPool *pool, int member, const char *call)
{
    Member *self = &pool->members[member];
    if (own != self)
        die("%s: %s %d is not this thread's: a function on each device calls it for its own", call,
            pool->word, member);
    pthread_mutex_lock(&pool->lock);
    self->call = call;
    compare_with_all(pool, self);
    uint64_t meeting = pool->meetings;
    if (++pool->arrived == pool->count) {
        for (int i = 0; i < pool->count; i++)
            pool->members[i].call = NULL;
        pool->arrived = 0;
        pool->meetings++;
        pthread_cond_broadcast(&pool->met);
    }
    while (pool->meetings == meeting)
        pthread_cond_wait(&pool->met, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void thread_pool_free(ThreadPool *pool, const char *caller)
{
    thread_pool_check_outside(caller);
    pthread_mutex_lock(&pool->lock);
    give(pool, NULL, NULL);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->count; i++)
        pthread_join(pool->members[i].thread, NULL);
    pthread_cond_destroy(&pool->begun);
    pthread_cond_destroy(&pool->ended);
    pthread_cond_destroy(&pool->met);
    pthread_mutex_destroy(&pool->lock);
    free(pool->members);
    free(pool);
}
