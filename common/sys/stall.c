// The thread that watches the main thread, and the root's that judges; stall.h says what they
// promise. The words are in stall_words.c, the sockets in channel.c, signals and what a dead mpirun
// leaves behind in job_end.c.
//
// The thread allocates nothing and takes no lock that the main thread might hold: standard error is
// written by single calls.

#include "sys/stall.h"

#include <errno.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/util.h"
#include "sys/channel.h"
#include "sys/job_end.h"
#include "sys/stall_words.h"

#define ROOT         0
#define DEPUTY       1    // the rank that speaks where the root can't
#define STATUS_ENDED 2    // what is waited for has to be changed by the user
#define TICK         0.25 // seconds; fewer where HVD_STALL_SECONDS is short
#define HEARTBEAT    1.0
#define ROOT_SILENCE 3.0
#define STRANGE      10.0 // seconds after which a rank that was never heard of never will be
#define GATHERING    0.5  // seconds in which others may come to wait, too, before a leaver is named
#define LAST_WORDS   0.3  // seconds
#define LOST_ROOT    5.0  // seconds that mpirun has to end a job whose root is gone
#define SHORTEST     0.1  // that HVD_STALL_SECONDS may be
#define MOST_SECONDS 1e6
#define MOST_RANKS   1000000 // that a launcher may speak of before MPI does
#define STACK        ((size_t)256 << 10)

// On the root a connection for each rank, and some for those that have not said yet who they are.
typedef struct {
    int socket; // -1: none
    int rank;   // -1: not known yet
    Incoming incoming;
} Connection;

static struct {
    pthread_t thread;
    atomic_bool running;
    int rank, size, wake;
    double limit, shutdown, tick; // seconds
    Invitation invitation;
    uint64_t machine;
    atomic_bool invited; // the ranks have come to hvd_init, and know the invitation
    atomic_int listener;
    atomic_int to_root, to_deputy; // sockets, -1: none; the main thread sends, too
    Connection *connections;
    int places;
    RankView *ranks; // on the root all, on others the root and itself
    atomic_bool joining, stopping;
    atomic_bool explained;    // this process ends the job, and has said why
    atomic_bool all_left;     // or it can't be known
    _Atomic double root_lost; // when the root was gone before it had said so; 0: never
    double begin;
} job = {.wake = -1, .listener = -1, .to_root = -1, .to_deputy = -1};

// ---- What this rank says.

static Standing own_standing(double seconds)
{
    Doing doing = activity_now();
    Standing says = standing_of(&doing);
    says.rank = job.rank;
    says.process = getpid();
    says.machine = job.machine;
    says.seconds = seconds;
    says.explained = job.explained;
    return says;
}

static void tell(const Standing *says)
{
    channel_send(job.rank == ROOT ? job.to_deputy : job.to_root, &job.invitation, says,
                 sizeof *says);
}

// Before the last word: one that leaves as soon as it has come would otherwise be called gone.
static void wait_for_channel(void)
{
    for (int i = 0; i < 50 && (job.rank == ROOT ? job.to_deputy < 0 : job.joining); i++)
        usleep(10000);
}

void stall_tell_leaving(void)
{
    if (!job.running)
        return;
    wait_for_channel();
    Standing says = own_standing(0);
    tell(&says);
    eventfd_write(job.wake, 1);
}

// MPI moves what others still want of this rank only while it is called.
void stall_wait_for_others(void)
{
    int found;
    while (job.running && job.limit > 0 && !job.all_left &&
           (job.root_lost == 0 || seconds_now() - job.root_lost < LOST_ROOT)) {
        PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        usleep(1000);
    }
}

void stall_explained(void)
{
    if (!job.running)
        return;
    wait_for_channel();
    job.explained = true; // also in what the thread still sends
    Standing says = own_standing(0);
    tell(&says);
}

// What the thread has seen of the main thread.
static struct {
    uint64_t moves;
    double since, told; // when the last move was seen; when others were told
    bool told_of_it;
} own;

// A state is told once it has lasted for a tick, and what follows a long one at once.
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
    view_take(&job.ranks[job.rank], &says, now);
    job.ranks[job.rank].since = own.since;
    bool news = !own.told_of_it && (!moved || after_long);
    if (!news && now - own.told < HEARTBEAT)
        return;
    tell(&says);
    own.told = now;
    own.told_of_it = !moved || after_long;
}

// ---- Speaking, and ending the job.

static void speak(const Words *words)
{
    (void)!write(STDERR_FILENO, words->text, words->length);
}

// Where mpirun may be gone, or about to go, with what is on its way through it.
static void speak_last(const Words *words)
{
    (void)!write(launcher_stderr(), words->text, words->length);
}

// The root's end is told before, so that nobody calls it gone; mpirun ends the others. Not by MPI,
// which belongs to the main thread.
static _Noreturn void end_job(void)
{
    stall_explained();
    if (ftrylockfile(stdout) == 0)
        fflush(stdout);
    _exit(STATUS_ENDED);
}

// ---- Judging, on the root.

static struct {
    double leavers_seen; // 0: there are none
    bool leavers_named;
    double stall;       // when the one that was reported began, 0: none was
    double next_report; // seconds of waiting
} judged;

// A process that has left with another status than 0, or is gone, is mpirun's to deal with.
static bool only_mpirun_ends_it(void)
{
    for (int r = 0; r < job.size; r++)
        if (job.ranks[r].gone || (job.ranks[r].says.left != HERE && job.ranks[r].says.status != 0))
            return true;
    return false;
}

static void judge_leavers(double now)
{
    static Words words;
    words.length = 0;
    words_add(&words, "%s: ", program_name());
    if (judged.leavers_named || !words_of_leavers(job.ranks, job.size, now, &words))
        return;
    if (judged.leavers_seen == 0)
        judged.leavers_seen = now;
    bool hurry = only_mpirun_ends_it();
    if (!hurry && now - judged.leavers_seen < GATHERING)
        return;
    words_add(&words, "\n");
    speak(&words);
    judged.leavers_named = true;
    if (!hurry)
        end_job();
}

// A stopped process sends nothing; on this machine it can be asked for at once.
static void look_for_stopped(void)
{
    for (int r = 0; r < job.size; r++)
        if (r != job.rank && job.ranks[r].known && job.ranks[r].says.machine == job.machine)
            job.ranks[r].stopped = process_is_stopped(job.ranks[r].says.process);
}

static void report_stall(double now)
{
    static Words words;
    words.length = 0;
    words_of_stall(job.ranks, job.size, now, &words);
    speak(&words);
}

static void end_stalled_job(double now)
{
    static Words words;
    words.length = 0;
    words_add(&words, "%s: HVD_STALL_SHUTDOWN_SECONDS=%g: the job ends, since ", program_name(),
              job.shutdown);
    words_of_waiting(job.ranks, job.size, now, &words);
    words_add(&words, "\n");
    speak(&words);
    end_job();
}

static void note_end_of_stall(double now)
{
    static Words words;
    words.length = 0;
    words_add(&words, "%s: note: after %.0f s that waiting is over\n", program_name(),
              now - judged.stall);
    speak(&words);
    judged.next_report = 0;
}

static void judge_stall(double now)
{
    bool short_life = job.shutdown > 0 && job.shutdown < job.limit;
    double limit = short_life ? job.shutdown : job.limit;
    if (stall_begin(job.ranks, job.size, limit, now) > 0)
        look_for_stopped(); // one that is stopped waits for nothing
    double begin = stall_begin(job.ranks, job.size, limit, now);
    if (judged.leavers_named)
        return;
    if (begin == 0) {
        if (judged.next_report > job.limit)
            note_end_of_stall(now);
        return;
    }
    judged.stall = begin;
    if (judged.next_report == 0)
        judged.next_report = job.limit;
    if (now - begin >= judged.next_report) {
        report_stall(now);
        while (judged.next_report <= now - begin)
            judged.next_report *= 2;
    }
    if (job.shutdown > 0 && now - begin >= job.shutdown)
        end_stalled_job(now);
}

// ---- Before the ranks can speak to each other: MPI's start waits for all of them.

#define MOST_NEIGHBOURS 256

// "rank 0 is stopped (...), and rank 2 is": those of this machine. True where this rank is the
// first that is not, which speaks.
static bool look_at_neighbours(Words *words)
{
    static Neighbour neighbours[MOST_NEIGHBOURS];
    int count = find_neighbour_ranks(neighbours, MOST_NEIGHBOURS);
    for (int i = 0; i < count; i++) {
        bool stopped = process_is_stopped(neighbours[i].process);
        if (!stopped && neighbours[i].rank < job.rank)
            return false;
        if (stopped)
            words_add(words, "; rank %d is stopped (by SIGSTOP, or a debugger)",
                      neighbours[i].rank);
    }
    return true;
}

static void judge_start(double now)
{
    static double next_report;
    static Words words;
    double waited = now - job.begin;
    // (mpirun ends the others where the first has ended the job.)
    bool ends = job.shutdown > 0 && waited >= job.shutdown + (job.rank == ROOT ? 0 : 1);
    if (waited < (next_report > 0 ? next_report : job.limit) && !ends)
        return;
    words.length = 0;
    words_add(&words, "%s: ", program_name());
    if (ends)
        words_add(&words, "HVD_STALL_SHUTDOWN_SECONDS=%g: the job ends, since ", job.shutdown);
    else
        words_add(&words, "stall: ");
    words_add(&words, "rank %d waits in hvd_init for %.0f s: not all %d ranks have come to it",
              job.rank, waited, job.size);
    next_report = 2 * waited;
    if (!look_at_neighbours(&words))
        return;
    words_add(&words, "\n");
    speak(&words);
    if (ends)
        end_job();
}

// ---- Where the root can't speak: the deputy knows of itself and of the root.

static void name_failed_root(double now)
{
    static bool named;
    static Words words;
    words.length = 0;
    words_add(&words, "%s: ", program_name());
    if (named || !words_of_leavers(job.ranks, DEPUTY + 1, now, &words))
        return;
    words_add(&words, "\n");
    speak(&words);
    named = true;
}

static bool root_is_stopped(void)
{
    static Neighbour neighbours[MOST_NEIGHBOURS];
    const RankView *root = &job.ranks[ROOT];
    if (root->known)
        return root->says.machine == job.machine && process_is_stopped(root->says.process);
    int count = find_neighbour_ranks(neighbours, MOST_NEIGHBOURS);
    for (int i = 0; i < count; i++)
        if (neighbours[i].rank == ROOT)
            return process_is_stopped(neighbours[i].process);
    return false;
}

static void name_silent_root(double silence)
{
    static double next_report;
    static Words words;
    bool ends = job.shutdown > 0 && silence >= job.shutdown;
    if (silence < next_report && !ends)
        return;
    words.length = 0;
    words_add(&words, "%s: ", program_name());
    if (ends)
        words_add(&words, "HVD_STALL_SHUTDOWN_SECONDS=%g: the job ends, since ", job.shutdown);
    else
        words_add(&words, "stall: ");
    words_add(&words, "rank %d %s for %.0f s; rank %d waits in %s\n", ROOT,
              root_is_stopped() ? "has been stopped (by SIGSTOP, or a debugger)"
                                : "has not answered",
              silence, DEPUTY, job.ranks[DEPUTY].says.call);
    speak(&words);
    next_report = 2 * silence;
    if (ends)
        end_job();
}

static void judge_root(double now)
{
    const RankView *root = &job.ranks[ROOT], *self = &job.ranks[DEPUTY];
    double patience = job.limit > ROOT_SILENCE ? job.limit : ROOT_SILENCE;
    bool waits = self->says.in_call && self->says.left == HERE && now - self->since > job.limit;
    if (root->gone || (root->says.left != HERE && root->says.status != 0))
        name_failed_root(now);
    else if (waits && now - (root->known ? root->heard : job.begin) > patience)
        name_silent_root(now - (root->known ? root->heard : job.begin));
}

// ---- Signals, and the launcher.

static bool some_rank_failed(void)
{
    for (int r = 0; r < job.size; r++)
        if (job.ranks[r].gone || (job.ranks[r].says.explained && job.ranks[r].says.ended_by == 0) ||
            (job.ranks[r].says.left != HERE && job.ranks[r].says.status != 0))
            return true;
    return false;
}

// mpirun ends the other ranks by a signal, too, where one has failed: then that was the reason. One
// that somebody else sends to a rank is that rank's to name.
static void end_by_signal(int number)
{
    static Words words;
    bool meant_for_this = job_signal_is_strangers();
    words_add(&words, "%s: ", program_name());
    if (job.rank != ROOT)
        words_add(&words, "rank %d: ", job.rank);
    words_add(&words, "ended by %s%s", signal_name(number),
              job_signal_is_launchers() ? ", which mpirun sent" : "");
    words_of_place(&job.ranks[job.rank].says, &words);
    words_add(&words, "\n");
    if (meant_for_this || (job.rank == ROOT && !some_rank_failed()))
        speak_last(&words);
    job.explained = true;
    Standing says = own_standing(0);
    says.ended_by = meant_for_this ? 0 : number;
    tell(&says);
    // mpirun kills the others as soon as it sees the first one end: the root needs time to speak.
    if (job.rank != ROOT && job_signal_is_launchers())
        sleep_seconds(LAST_WORDS);
    die_by_signal(number);
}

static void end_without_launcher(void)
{
    static Words words;
    words_add(&words, "%s: mpirun is gone, so the job ends", program_name());
    words_of_place(&job.ranks[job.rank].says, &words);
    words_add(&words, "\n");
    if (job.rank == ROOT)
        speak_last(&words);
    remove_leftovers();
    _exit(STATUS_ENDED);
}

// ---- The root's connections.

static void close_connection(Connection *connection)
{
    if (connection->rank == DEPUTY)
        job.to_deputy = -1;
    close(connection->socket);
    *connection = (Connection){.socket = -1, .rank = -1};
}

static void take_message(Connection *connection, const Standing *says, double now)
{
    if (says->rank <= ROOT || says->rank >= job.size)
        return;
    if (connection->rank < 0) {
        connection->rank = says->rank;
        channel_answer(connection->socket, &job.invitation);
        if (says->rank == DEPUTY)
            job.to_deputy = connection->socket;
    }
    if (connection->rank == says->rank)
        view_take(&job.ranks[says->rank], says, now);
}

static void receive(Connection *connection, double now)
{
    Standing says;
    ChannelNews news;
    while ((news = channel_receive(connection->socket, &connection->incoming, &job.invitation,
                                   &says, sizeof says)) == CHANNEL_MESSAGE)
        take_message(connection, &says, now);
    if (news != CHANNEL_CLOSED)
        return;
    if (connection->rank >= 0) {
        RankView *rank = &job.ranks[connection->rank];
        rank->gone = !rank->says.ends && !rank->says.explained && rank->says.left == HERE;
        rank->since = now;
    }
    close_connection(connection);
}

static void accept_others(void)
{
    int socket = channel_accept(job.listener);
    for (int i = 0; socket >= 0 && i < job.places; i++)
        if (job.connections[i].socket < 0) {
            job.connections[i].socket = socket;
            return;
        }
    if (socket >= 0)
        close(socket);
    else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        close(job.listener); // there are no more sockets
        job.listener = -1;
    }
}

// ---- The common end.

// True where a rank need not be waited for: it has left, or it has never been heard of.
static bool is_through(int rank, double now)
{
    const RankView *view = &job.ranks[rank];
    if (rank == ROOT)
        return activity_now().left != HERE;
    return view->gone || view->says.left != HERE || (!view->known && now - job.begin > STRANGE);
}

// The root tells all ranks once none of them makes a further call.
static void announce_end(double now)
{
    if (job.all_left)
        return;
    for (int r = 0; r < job.size; r++)
        if (!is_through(r, now))
            return;
    Standing says = own_standing(0);
    says.all_left = 1;
    for (int i = 0; i < job.places; i++)
        channel_send(job.connections[i].socket, &job.invitation, &says, sizeof says);
    job.all_left = true;
}

// ---- The other ranks' connection.

static void join_root(void)
{
    Standing hello = own_standing(0);
    job.connections[0].socket = channel_join(&job.invitation, job.wake, &hello, sizeof hello);
    job.to_root = job.connections[0].socket;
    job.all_left = job.to_root < 0;
}

// The root speaks to its deputy only, until it tells all of the end.
static void hear_root(double now)
{
    Connection *root = &job.connections[0];
    Standing says;
    ChannelNews news;
    while ((news = channel_receive(root->socket, &root->incoming, &job.invitation, &says,
                                   sizeof says)) == CHANNEL_MESSAGE) {
        view_take(&job.ranks[ROOT], &says, now);
        if (says.all_left)
            job.all_left = true;
    }
    if (news != CHANNEL_CLOSED)
        return;
    const Standing *last = &job.ranks[ROOT].says;
    job.ranks[ROOT].gone = !last->ends && !last->explained && last->left == HERE;
    job.to_root = -1;
    job.root_lost = seconds_now();
    close(root->socket);
    root->socket = -1;
}

// ---- The thread.

// The root waits for any of its connections, another rank for its own; all for what wakes them.
static void wait_for_news(struct pollfd *wanted, double seconds)
{
    int count = 0;
    wanted[count++] = (struct pollfd){.fd = job.wake, .events = POLLIN};
    wanted[count++] = (struct pollfd){.fd = job.listener, .events = POLLIN};
    for (int i = 0; i < job.places; i++)
        wanted[count++] = (struct pollfd){.fd = job.connections[i].socket, .events = POLLIN};
    if (poll(wanted, (nfds_t)count, (int)(seconds * 1000) + 1) <= 0)
        return;
    eventfd_t unused;
    if (wanted[0].revents)
        eventfd_read(job.wake, &unused);
    double now = seconds_now();
    if (wanted[1].revents)
        accept_others();
    for (int i = 0; i < job.places; i++)
        if (job.connections[i].socket >= 0 && wanted[2 + i].revents) {
            if (job.rank == ROOT)
                receive(&job.connections[i], now);
            else
                hear_root(now);
        }
}

static void tick(double now)
{
    look_at_main(now);
    if (!job_signal() && launcher_is_gone()) // else it went after it had said so
        end_without_launcher();
    if (job.limit <= 0)
        return;
    if (!job.invited)
        judge_start(now);
    else if (job.rank == ROOT) {
        judge_leavers(now);
        judge_stall(now);
    } else if (job.rank == DEPUTY)
        judge_root(now);
}

// Whoever is gone is judged at once: mpirun gives the others a moment only.
static bool someone_is_gone(void)
{
    for (int r = 0; r < job.size; r++)
        if (job.ranks[r].gone)
            return true;
    return false;
}

static void *watch(void *wanted)
{
    pthread_setname_np(pthread_self(), "stall"); // for top -H
    double next = 0;
    bool gone = false;
    while (!job.stopping) {
        if (job.joining && job.invited) {
            join_root();
            job.joining = false;
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
            next = now + job.tick;
        }
        if (job.rank == ROOT && job.invited)
            announce_end(now);
        wait_for_news(wanted, next - now);
    }
    return wanted;
}

// ---- Its beginning and end.

// A child that this process forks has no such thread, and keeps nobody's connection open.
static void forget_in_child(void)
{
    if (!job.running)
        return;
    for (int i = 0; i < job.places; i++)
        if (job.connections[i].socket >= 0)
            close(job.connections[i].socket);
    if (job.listener >= 0)
        close(job.listener);
    close(job.wake);
    release_signals();
    job.running = false;
}

static double seconds_from(const char *name, double otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    double seconds = strtod(text, &end);
    if (*end || !(seconds >= 0 && seconds <= MOST_SECONDS) || *text == '-' || *text == '+')
        die("%s=%s is not a number of seconds from 0 to %.0f", name, text, MOST_SECONDS);
    return seconds;
}

static bool start_thread(void *wanted)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); // the program's signals are the program's
    bool started = pthread_create(&job.thread, &attributes, watch, wanted) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static bool is_one_machine(void)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = getenv("OMPI_COMM_WORLD_SIZE");
    return local && all && strcmp(local, all) == 0;
}

// Memory is there before the thread, which finds none where a program has used it up.
static void *make_room(void)
{
    job.places = job.rank == ROOT ? job.size + 8 : 1;
    job.connections = allocate((size_t)job.places, sizeof *job.connections);
    for (int i = 0; i < job.places; i++)
        job.connections[i] = (Connection){.socket = -1, .rank = -1};
    job.ranks = allocate((size_t)job.size, sizeof *job.ranks);
    return allocate((size_t)job.places + 2, sizeof(struct pollfd));
}

void stall_prepare(int rank, int size)
{
    static bool prepared;
    job.limit = seconds_from("HVD_STALL_SECONDS", 10);
    job.shutdown = seconds_from("HVD_STALL_SHUTDOWN_SECONDS", 0);
    if (job.limit > 0 && job.limit < SHORTEST)
        die("HVD_STALL_SECONDS=%g is too short: at least %g, or 0, which turns it off", job.limit,
            SHORTEST);
    if (size == 1 || job.running || rank >= size || size > MOST_RANKS)
        return;
    job.rank = rank;
    job.size = size;
    job.tick = job.limit > 0 && job.limit / 8 < TICK ? job.limit / 8 : TICK;
    job.begin = seconds_now();
    job.machine = machine_number();
    remember_launcher(rank == ROOT);
    job.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    void *room = make_room();
    if (!prepared)
        prepared = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    job.running = job.wake >= 0 && start_thread(room);
    if (job.running)
        catch_signals(job.wake);
}

void stall_start(int rank, int size)
{
    stall_prepare(rank, size); // where it wasn't called before MPI's start
    if (size == 1 || job.invited)
        return;
    Invitation invitation = {0};
    int listener = rank == ROOT ? channel_open(is_one_machine(), size, &invitation) : -1;
    PMPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, ROOT, MPI_COMM_WORLD);
    if (!job.running) {
        if (listener >= 0)
            close(listener);
        return;
    }
    job.invitation = invitation;
    job.begin = seconds_now();
    job.listener = listener;
    job.joining = rank != ROOT;
    job.invited = true;
    eventfd_write(job.wake, 1);
}

void stall_stop(void)
{
    if (!job.running)
        return;
    release_signals();
    job.stopping = true;
    eventfd_write(job.wake, 1);
    void *room;
    pthread_join(job.thread, &room);
    Standing says = own_standing(0);
    says.ends = 1;
    tell(&says);
    forget_in_child();
    free(room);
    free(job.connections);
    free(job.ranks);
}
