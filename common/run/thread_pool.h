// Threads that work on several devices of this process at a time, one on each. A thread stays on
// its device until the pool is freed.

#ifndef HVDLAB_THREAD_POOL_H
#define HVDLAB_THREAD_POOL_H

typedef struct ThreadPool ThreadPool;

// Starts a thread on each of these devices. `word` is what a member is called: in traces its events
// have a field of that name, its number; where the pool makes the program exit, it is named so.
ThreadPool *thread_pool_start(const char *word, const int *devices, int count);

// Exits with an error message, which names `caller`, where a member of any pool calls it.
void thread_pool_check_outside(const char *caller);

// Ends the threads. Not for members, as thread_pool_run.
void thread_pool_free(ThreadPool *pool, const char *caller);

// Has all members call work(member, argument), at the same time, and returns when all have. Exits
// with an error message, which names `caller`, where a member calls it.
void thread_pool_run(ThreadPool *pool, const char *caller, void (*work)(int member, void *argument),
                     void *argument);

// Inside `work`: returns when all members have called it. Exits with an error message where that
// can't happen: another member is at the end of its work, or has made another call; and where it is
// not that member's thread that calls.
void thread_pool_barrier(ThreadPool *pool, int member, const char *call);

#endif
