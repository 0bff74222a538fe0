// OpenMP's teams, for the thread sanitizer (SANITIZE=thread). gcc's libgomp is not instrumented, so
// the sanitizer does not see that a team begins after what its master did before, that its threads
// wait for each other at a barrier, and that the master goes on after all of them; what they share
// would look like races. The program's own functions of these names are found before libgomp's, by
// oneDNN, too: they tell the sanitizer which thread has waited for which, and call libgomp's.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_barrier(void);
void GOMP_critical_start(void);
void GOMP_critical_end(void);
#pragma GCC visibility pop

typedef struct {
    void (*body)(void *);
    void *data;
    // Addresses that tell the sanitizer which thread waits for which.
    char begin, end, barriers[2];
} Team;

// A thread's team, and the number of barriers that it has passed. (Two addresses alternate, so that
// a thread at the next barrier is not taken for one at this barrier.)
static _Thread_local Team *team;
static _Thread_local unsigned passed;

// libgomp's function of this name.
#define NEXT(name) ((__typeof__(&(name)))(uintptr_t)dlsym(RTLD_NEXT, #name))

static void be_member(void *argument)
{
    Team *outer = team, *mine = argument;
    unsigned passed_outside = passed;
    __tsan_acquire(&mine->begin);
    team = mine;
    passed = 0;
    mine->body(mine->data);
    team = outer;
    passed = passed_outside;
    __tsan_release(&mine->end);
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags)
{
    Team new = {.body = body, .data = data};
    __tsan_release(&new.begin);
    NEXT(GOMP_parallel)(be_member, &new, threads, flags);
    __tsan_acquire(&new.end);
}

void GOMP_barrier(void)
{
    char *place = team ? &team->barriers[passed++ % 2] : NULL;
    if (place)
        __tsan_release(place);
    NEXT(GOMP_barrier)();
    if (place)
        __tsan_acquire(place);
}

static char critical;

void GOMP_critical_start(void)
{
    NEXT(GOMP_critical_start)();
    __tsan_acquire(&critical);
}

void GOMP_critical_end(void)
{
    __tsan_release(&critical);
    NEXT(GOMP_critical_end)();
}
