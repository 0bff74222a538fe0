// The thread of the stall watch; stall.h says what is promised. The protocol:
//
// 1. In hvd_init the root broadcasts its invitation by MPI; each rank's thread connects to the
//    root's over TCP (stall_connections.c).
// 2. Each rank sends its standing (stall_words.h) to the root: each second, at each tick at which it
//    has changed, and at once when it leaves or aborts the job. The root sends its own to all.
// 3. The root judges (stall_judge.c). Another rank judges only whether the root is gone or silent,
//    and before all have come to hvd_init.
// 4. A connection that ends before its rank has said that it ends, leaves or aborts the job: that
//    rank is gone.
// 5. When all have left, the root says so, and they call MPI_Finalize.
//
// The thread allocates nothing once it has joined, and takes no lock that the main thread might
// hold; it alone uses the connections, and writes to standard error by single calls.

#include "comm/stall.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/last_words.h"
#include "base/memory.h"
#include "base/setting.h"
#include "comm/job_end.h"
#include "comm/job_signal.h"
#include "comm/stall_inside.h"

#define TICK      0.25 // seconds; fewer where HVD_STALL_SECONDS is short
#define HEARTBEAT 1.0
#define TELL_WAIT 0.5
#define MIN_LIMIT 0.1     // that HVD_STALL_SECONDS may be
#define MAX_RANKS 1000000 // that a launcher may announce
#define STACK     ((size_t)256 << 10)

StallJob stall_job = {.wake = -1, .listener = -1};

// ---- For the main thread.

// Without this wait, a rank that exits at once would be reported as gone.
static void tell_by_thread(void)
{
    double end = seconds_now() + TELL_WAIT;
    stall_job.must_tell = true;
    eventfd_write(stall_job.wake, 1);
    while (stall_job.must_tell && seconds_now() < end)
        usleep(500);
}

void stall_tell_leaving(void)
{
    if (stall_job.running && stall_job.invited)
        tell_by_thread();
}

void stall_explained(void)
{
    stall_job.explained = true;
    stall_tell_leaving();
}

// MPI makes progress on messages of this rank only inside MPI calls.
void stall_wait_for_others(void)
{
    int found;
    while (stall_job.running && stall_job.limit > 0 && !stall_job.all_left &&
           (stall_job.root_lost == 0 || seconds_now() - stall_job.root_lost < LOST_ROOT)) {
        PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        usleep(1000);
    }
}

bool stall_needs_root(int rank, double since)
{
    return stall_job.running && stall_job.need_root[rank] > since;
}

// ---- What this rank says.

RankState own_state(double seconds)
{
    Doing doing = activity_now();
    RankState says = rank_state(&doing);
    says.rank = stall_job.rank;
    says.process = getpid();
    says.machine = stall_job.machine;
    says.seconds = seconds;
    says.explained = stall_job.explained;
    says.all_left = stall_job.rank == ROOT && stall_job.all_left;
    says.ended_by = stall_job.ended_by;
    says.ends = stall_job.stopping;
    return says;
}

void stall_tell(void)
{
    RankState says = own_state(0);
    connections_tell(&says);
}

// Others send each change at a tick, and each second. The root sends each second only: they just
// need to know that it runs.
static void look_at_main(double now)
{
    static struct {
        uint64_t moves, told_moves;
        double since, told; // when the last move was seen; when others were told
    } own;
    RankState says = own_state(0);
    if (says.moves != own.moves || own.since == 0)
        own.since = now;
    own.moves = says.moves;
    says.seconds = now - own.since;
    RankView *self = &stall_job.ranks[stall_job.rank];
    view_take(self, &says, now);
    self->since = own.since;
    bool news = own.moves != own.told_moves && stall_job.rank != ROOT;
    if (!news && now - own.told < HEARTBEAT)
        return;
    connections_tell(&says);
    own.told = now;
    own.told_moves = own.moves;
}

// ---- The thread.

// True for a rank that has left, or that has never connected: no need to wait for it.
static bool is_done(int rank, double now)
{
    const RankView *view = &stall_job.ranks[rank];
    if (rank == ROOT)
        return activity_now().left != HERE;
    return view->gone || view->says.left != HERE ||
           (!view->known && now - stall_job.begin > JOIN_LIMIT);
}

static void announce_end(double now)
{
    if (stall_job.rank != ROOT || !stall_job.invited || stall_job.all_left)
        return;
    for (int r = 0; r < stall_job.size; r++)
        if (!is_done(r, now))
            return;
    stall_job.all_left = true;
    stall_tell();
}

// The root's own state is current; a rank that needs its next call stays in the call.
static void note_who_needs_root(double now)
{
    for (int r = 1; stall_job.rank == ROOT && r < stall_job.size; r++)
        if (waits_for(stall_job.ranks, r, ROOT, now))
            stall_job.need_root[r] = now;
}

static void tick(double now)
{
    look_at_main(now);
    if (!job_signal() && launcher_is_gone())
        stall_end_without_launcher(); // after a signal mpirun's end is expected
    note_who_needs_root(now);
    stall_judge(now);
}

static bool someone_is_gone(void)
{
    for (int r = 0; r < stall_job.size; r++)
        if (stall_job.ranks[r].gone)
            return true;
    return false;
}

static void *watch(void *unused)
{
    double next = 0;
    bool gone = false;
    pthread_setname_np(pthread_self(), STALL_THREAD);
    while (!stall_job.stopping) {
        double now = seconds_now();
        connections_join(now);
        if (job_signal())
            stall_end_by_signal();
        bool lost = !gone && someone_is_gone(); // is reported at once: mpirun soon ends the others
        if (now >= next || lost) {
            tick(now);
            gone = gone || lost;
            next = now + stall_job.tick;
        }
        if (stall_job.must_tell) {
            stall_tell();
            stall_job.must_tell = !connections_are_whole();
        }
        announce_end(now);
        connections_hear(next - now);
    }
    stall_tell();
    return unused;
}

// ---- Its beginning and end.

// A child that this process forks has no such thread, and must not keep connections open.
static void close_watch(void)
{
    if (!stall_job.running)
        return;
    connections_close();
    close(stall_job.wake);
    release_signals();
    stall_job.running = false;
}

static bool start_thread(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); // the program's signals are the program's
    bool started = pthread_create(&stall_job.thread, &attributes, watch, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

// Allocate before the thread runs: a program may later use up all memory.
static void make_room(void)
{
    stall_job.ranks = allocate((size_t)stall_job.size, sizeof *stall_job.ranks);
    stall_job.need_root = allocate((size_t)stall_job.size, sizeof *stall_job.need_root);
    connections_make_room(stall_job.rank == ROOT ? stall_job.size + SPARE_PLACES : MAX_ADDRESSES);
}

void stall_prepare(int rank, int size)
{
    static bool prepared;
    if (prepared)
        return;
    stall_job.limit = setting_seconds(HVD_STALL_SECONDS);
    stall_job.shutdown = setting_seconds(HVD_STALL_SHUTDOWN_SECONDS);
    if (stall_job.limit > 0 && stall_job.limit < MIN_LIMIT)
        die("HVD_STALL_SECONDS=%g is too short: at least %g, or 0, which turns it off",
            stall_job.limit, MIN_LIMIT);
    if (size == 1 || rank >= size || size > MAX_RANKS)
        return;
    prepared = true;
    stall_job.rank = rank;
    stall_job.size = size;
    stall_job.tick = stall_job.limit > 0 && stall_job.limit / 8 < TICK ? stall_job.limit / 8 : TICK;
    stall_job.begin = seconds_now();
    stall_job.machine = machine_number();
    remember_launcher(rank == ROOT);
    stall_job.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    make_room();
    pthread_atfork(NULL, NULL, close_watch);
    stall_job.running = stall_job.wake >= 0 && start_thread();
    if (stall_job.running)
        catch_signals(stall_job.wake);
}

void stall_start(int rank, int size)
{
    stall_prepare(rank, size); // where it wasn't called before MPI's start
    if (size == 1 || stall_job.invited)
        return;
    Invitation invitation;
    int listener = connections_open(rank == ROOT, &invitation);
    PMPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, ROOT, MPI_COMM_WORLD);
    if (!stall_job.running) {
        if (listener >= 0)
            close(listener);
        return;
    }
    stall_job.invitation = invitation;
    stall_job.begin = seconds_now();
    stall_job.listener = listener;
    stall_job.invited = true;
    eventfd_write(stall_job.wake, 1);
}

void stall_stop(void)
{
    if (!stall_job.running)
        return;
    release_signals();
    stall_job.stopping = true;
    eventfd_write(stall_job.wake, 1);
    pthread_join(stall_job.thread, NULL);
    close_watch();
    connections_free_room();
    free(stall_job.ranks);
    free((void *)stall_job.need_root);
}
