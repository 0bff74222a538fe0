// The thread that watches the main thread; stall.h has the contract. stall_judge.c decides what to
// report, stall_words.c makes the messages, channel.c has the sockets, job_end.c the signals and
// the cleaning up after a dead mpirun.
//
// The thread allocates nothing and takes no lock that the main thread might hold; it writes to
// standard error by single calls.

#include "comm/stall.h"

#include <errno.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/last_words.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/setting.h"
#include "comm/job_end.h"
#include "comm/stall_inside.h"

#define TICK      0.25 // seconds; fewer where HVD_STALL_SECONDS is short
#define HEARTBEAT 1.0
#define STRANGE   10.0    // seconds after which a rank that was never heard of never will be
#define MIN_LIMIT 0.1     // that HVD_STALL_SECONDS may be
#define MAX_RANKS 1000000 // that a launcher may speak of before MPI does
#define STACK     ((size_t)256 << 10)

StallJob stall_job = {.wake = -1, .listener = -1, .to_root = -1, .to_deputy = -1};

// ---- What this rank says.

static Standing own_standing(double seconds)
{
    Doing doing = activity_now();
    Standing says = standing_of(&doing);
    says.rank = stall_job.rank;
    says.process = getpid();
    says.machine = stall_job.machine;
    says.seconds = seconds;
    says.explained = stall_job.explained;
    return says;
}

static void tell(const Standing *says)
{
    channel_send(stall_job.rank == ROOT ? stall_job.to_deputy : stall_job.to_root,
                 &stall_job.invitation, says, sizeof *says);
}

// Before the final message: a rank that exits as soon as it has received it would otherwise be
// reported as gone.
static void wait_for_channel(void)
{
    for (int i = 0;
         i < 50 && (stall_job.rank == ROOT ? stall_job.to_deputy < 0 : stall_job.joining); i++)
        usleep(10000);
}

void stall_tell_leaving(void)
{
    if (!stall_job.running)
        return;
    wait_for_channel();
    Standing says = own_standing(0);
    tell(&says);
    eventfd_write(stall_job.wake, 1);
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

void stall_explained(void)
{
    if (!stall_job.running)
        return;
    wait_for_channel();
    stall_job.explained = true; // also in what the thread still sends
    Standing says = own_standing(0);
    tell(&says);
}

// The main thread's state as this thread last saw it.
static struct {
    uint64_t moves;
    double since, told; // when the last move was seen; when others were told
    bool told_of_it;
} own;

// A state is sent when it has lasted for a tick; the state after a long one is sent at once.
static void look_at_main(double now)
{
    Standing says = own_standing(0);
    bool moved = says.moves != own.moves || own.since == 0;
    bool after_long = moved && own.since > 0 && now - own.since > HEARTBEAT;
    if (moved) {
        own.moves = says.moves;
        own.since = now;
        own.told_of_it = false;
    }
    says.seconds = now - own.since;
    view_take(&stall_job.ranks[stall_job.rank], &says, now);
    stall_job.ranks[stall_job.rank].since = own.since;
    bool news = !own.told_of_it && (!moved || after_long);
    if (!news && now - own.told < HEARTBEAT)
        return;
    tell(&says);
    own.told = now;
    own.told_of_it = !moved || after_long;
}

// ---- Signals, and the launcher.

// mpirun may have exited, or may be about to, and output on its way through it would be lost.
static void speak_last(const Words *words)
{
    (void)!write(launcher_stderr(), words->text, words->length);
}

static bool some_rank_failed(void)
{
    for (int r = 0; r < stall_job.size; r++)
        if (stall_job.ranks[r].gone ||
            (stall_job.ranks[r].says.explained && stall_job.ranks[r].says.ended_by == 0) ||
            (stall_job.ranks[r].says.left != HERE && stall_job.ranks[r].says.status != 0))
            return true;
    return false;
}

// When a rank has failed, mpirun ends the others by a signal: the failure is then the reason. The
// rank that receives a signal from another process reports it.
static void end_by_signal(int number)
{
    static Words words;
    bool meant_for_this = job_signal_is_foreign();
    words_add(&words, "%s: ", program_name());
    if (stall_job.rank != ROOT)
        words_add(&words, "rank %d: ", stall_job.rank);
    words_add(&words, "ended by %s%s", signal_name(number),
              job_signal_is_launchers() ? ", which mpirun sent" : "");
    words_of_place(&stall_job.ranks[stall_job.rank].says, &words);
    words_add(&words, "\n");
    if (meant_for_this || (stall_job.rank == ROOT && !some_rank_failed()))
        speak_last(&words);
    else if (job_signal_is_launchers())
        stall_name_gone();
    stall_job.explained = true;
    Standing says = own_standing(0);
    says.ended_by = meant_for_this ? 0 : number;
    tell(&says);
    // mpirun kills the others as soon as the first one ends: the root needs time to report.
    if (stall_job.rank != ROOT && job_signal_is_launchers())
        sleep_seconds(SIGNAL_WAIT);
    die_by_signal(number);
}

static void end_without_launcher(void)
{
    static Words words;
    words_add(&words, "%s: mpirun is gone, so the job ends", program_name());
    words_of_place(&stall_job.ranks[stall_job.rank].says, &words);
    words_add(&words, "\n");
    if (stall_job.rank == ROOT)
        speak_last(&words);
    remove_leftovers();
    _exit(STATUS_USER_MUST);
}

// ---- The root's connections.

static void close_connection(Connection *connection)
{
    if (connection->rank == DEPUTY)
        stall_job.to_deputy = -1;
    close(connection->socket);
    *connection = (Connection){.socket = -1, .rank = -1};
}

static void take_message(Connection *connection, const Standing *says, double now)
{
    if (says->rank <= ROOT || says->rank >= stall_job.size)
        return;
    if (connection->rank < 0) {
        connection->rank = says->rank;
        channel_answer(connection->socket, &stall_job.invitation);
        if (says->rank == DEPUTY)
            stall_job.to_deputy = connection->socket;
    }
    if (connection->rank == says->rank)
        view_take(&stall_job.ranks[says->rank], says, now);
}

static void receive(Connection *connection, double now)
{
    Standing says;
    ChannelNews news;
    while ((news = channel_receive(connection->socket, &connection->incoming, &stall_job.invitation,
                                   &says, sizeof says)) == CHANNEL_MESSAGE)
        take_message(connection, &says, now);
    if (news != CHANNEL_CLOSED)
        return;
    if (connection->rank >= 0) {
        RankView *rank = &stall_job.ranks[connection->rank];
        rank->gone = !rank->says.ends && !rank->says.explained && rank->says.left == HERE;
        rank->since = now;
    }
    close_connection(connection);
}

static void accept_others(void)
{
    int socket = channel_accept(stall_job.listener);
    for (int i = 0; socket >= 0 && i < stall_job.places; i++)
        if (stall_job.connections[i].socket < 0) {
            stall_job.connections[i].socket = socket;
            return;
        }
    if (socket >= 0)
        close(socket);
    else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        close(stall_job.listener); // there are no more sockets
        stall_job.listener = -1;
    }
}

// ---- The common end.

// True for a rank that has left, or that has never connected: no need to wait for it.
static bool is_through(int rank, double now)
{
    const RankView *view = &stall_job.ranks[rank];
    if (rank == ROOT)
        return activity_now().left != HERE;
    return view->gone || view->says.left != HERE ||
           (!view->known && now - stall_job.begin > STRANGE);
}

// The root tells all ranks when none of them makes further calls.
static void announce_end(double now)
{
    if (stall_job.all_left)
        return;
    for (int r = 0; r < stall_job.size; r++)
        if (!is_through(r, now))
            return;
    Standing says = own_standing(0);
    says.all_left = 1;
    for (int i = 0; i < stall_job.places; i++)
        channel_send(stall_job.connections[i].socket, &stall_job.invitation, &says, sizeof says);
    stall_job.all_left = true;
}

// ---- The other ranks' connection.

static bool must_stop(void)
{
    return stall_job.stopping || job_signal();
}

static void join_root(void)
{
    Standing hello = own_standing(0);
    stall_job.connections[0].socket =
        channel_join(&stall_job.invitation, stall_job.wake, must_stop, &hello, sizeof hello);
    stall_job.to_root = stall_job.connections[0].socket;
    stall_job.all_left = stall_job.to_root < 0;
}

// The root sends to its deputy only, until it announces the end to all.
static void hear_root(double now)
{
    Connection *root = &stall_job.connections[0];
    Standing says;
    ChannelNews news;
    while ((news = channel_receive(root->socket, &root->incoming, &stall_job.invitation, &says,
                                   sizeof says)) == CHANNEL_MESSAGE) {
        view_take(&stall_job.ranks[ROOT], &says, now);
        if (says.all_left)
            stall_job.all_left = true;
    }
    if (news != CHANNEL_CLOSED)
        return;
    const Standing *last = &stall_job.ranks[ROOT].says;
    stall_job.ranks[ROOT].gone = !last->ends && !last->explained && last->left == HERE;
    stall_job.to_root = -1;
    stall_job.root_lost = seconds_now();
    close(root->socket);
    root->socket = -1;
}

// ---- The thread.

// The root polls all its connections, another rank its own one; each also polls its wake-up
// descriptor.
static void wait_for_news(struct pollfd *wanted, double seconds)
{
    int count = 0;
    wanted[count++] = (struct pollfd){.fd = stall_job.wake, .events = POLLIN};
    wanted[count++] = (struct pollfd){.fd = stall_job.listener, .events = POLLIN};
    for (int i = 0; i < stall_job.places; i++)
        wanted[count++] = (struct pollfd){.fd = stall_job.connections[i].socket, .events = POLLIN};
    if (poll(wanted, (nfds_t)count, (int)(seconds * 1000) + 1) <= 0)
        return;
    eventfd_t unused;
    if (wanted[0].revents)
        eventfd_read(stall_job.wake, &unused);
    double now = seconds_now();
    if (wanted[1].revents)
        accept_others();
    for (int i = 0; i < stall_job.places; i++)
        if (stall_job.connections[i].socket >= 0 && wanted[2 + i].revents) {
            if (stall_job.rank == ROOT)
                receive(&stall_job.connections[i], now);
            else
                hear_root(now);
        }
}

// The root's own state is of this moment; a rank that needs its next call stays in the call.
static void note_who_needs_root(double now)
{
    for (int r = 1; r < stall_job.size; r++)
        if (waits_for(stall_job.ranks, r, ROOT, now))
            stall_job.need_root[r] = now;
}

bool stall_needs_root(int rank, double since)
{
    return stall_job.running && stall_job.need_root[rank] > since;
}

static void tick(double now)
{
    look_at_main(now);
    if (!job_signal() && launcher_is_gone()) // else it went after it had said so
        end_without_launcher();
    if (stall_job.rank == ROOT)
        note_who_needs_root(now);
    stall_judge(now);
}

// A lost rank is reported at once: mpirun soon ends the others.
static bool someone_is_gone(void)
{
    for (int r = 0; r < stall_job.size; r++)
        if (stall_job.ranks[r].gone)
            return true;
    return false;
}

static void *watch(void *wanted)
{
    pthread_setname_np(pthread_self(), "stall"); // for top -H
    double next = 0;
    bool gone = false;
    while (!stall_job.stopping) {
        if (stall_job.joining && stall_job.invited) {
            join_root();
            stall_job.joining = false;
        }
        if (job_signal()) {
            wait_for_news(wanted, 0); // of a rank that has failed, which may be why
            end_by_signal(job_signal());
        }
        double now = seconds_now();
        bool lost = !gone && someone_is_gone();
        if (now >= next || lost) {
            tick(now);
            gone = gone || lost;
            next = now + stall_job.tick;
        }
        if (stall_job.rank == ROOT && stall_job.invited)
            announce_end(now);
        wait_for_news(wanted, next - now);
    }
    return wanted;
}

// ---- Its beginning and end.

// A child that this process forks has no such thread, and must not keep connections open.
static void forget_in_child(void)
{
    if (!stall_job.running)
        return;
    for (int i = 0; i < stall_job.places; i++)
        if (stall_job.connections[i].socket >= 0)
            close(stall_job.connections[i].socket);
    if (stall_job.listener >= 0)
        close(stall_job.listener);
    close(stall_job.wake);
    release_signals();
    stall_job.running = false;
}

static bool start_thread(void *wanted)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); // the program's signals are the program's
    bool started = pthread_create(&stall_job.thread, &attributes, watch, wanted) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

// Allocate before the thread runs: a program may later use up all memory.
static void *make_room(void)
{
    stall_job.places = stall_job.rank == ROOT ? stall_job.size + 8 : 1;
    stall_job.connections = allocate((size_t)stall_job.places, sizeof *stall_job.connections);
    for (int i = 0; i < stall_job.places; i++)
        stall_job.connections[i] = (Connection){.socket = -1, .rank = -1};
    stall_job.ranks = allocate((size_t)stall_job.size, sizeof *stall_job.ranks);
    stall_job.need_root = allocate((size_t)stall_job.size, sizeof *stall_job.need_root);
    return allocate((size_t)stall_job.places + 2, sizeof(struct pollfd));
}

void stall_prepare(int rank, int size)
{
    static bool prepared;
    if (stall_job.running)
        return;
    stall_job.limit = setting_seconds(HVD_STALL_SECONDS);
    stall_job.shutdown = setting_seconds(HVD_STALL_SHUTDOWN_SECONDS);
    if (stall_job.limit > 0 && stall_job.limit < MIN_LIMIT)
        die("HVD_STALL_SECONDS=%g is too short: at least %g, or 0, which turns it off",
            stall_job.limit, MIN_LIMIT);
    if (size == 1 || rank >= size || size > MAX_RANKS)
        return;
    stall_job.rank = rank;
    stall_job.size = size;
    stall_job.tick = stall_job.limit > 0 && stall_job.limit / 8 < TICK ? stall_job.limit / 8 : TICK;
    stall_job.begin = seconds_now();
    stall_job.machine = machine_number();
    remember_launcher(rank == ROOT);
    stall_job.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    void *room = make_room();
    if (!prepared)
        prepared = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    stall_job.running = stall_job.wake >= 0 && start_thread(room);
    if (stall_job.running)
        catch_signals(stall_job.wake);
}

void stall_start(int rank, int size)
{
    stall_prepare(rank, size); // where it wasn't called before MPI's start
    if (size == 1 || stall_job.invited)
        return;
    Invitation invitation = {0};
    int listener = rank == ROOT ? channel_open(ranks_share_machine(), size, &invitation) : -1;
    PMPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, ROOT, MPI_COMM_WORLD);
    if (!stall_job.running) {
        if (listener >= 0)
            close(listener);
        return;
    }
    stall_job.invitation = invitation;
    stall_job.begin = seconds_now();
    stall_job.listener = listener;
    stall_job.joining = rank != ROOT;
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
    void *room;
    pthread_join(stall_job.thread, &room);
    Standing says = own_standing(0);
    says.ends = 1;
    tell(&says);
    forget_in_child();
    free(room);
    free(stall_job.connections);
    free(stall_job.ranks);
    free((void *)stall_job.need_root);
}
