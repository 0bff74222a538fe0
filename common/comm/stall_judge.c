// Decides what the stall watch reports, and when it aborts the job. Runs in the thread of stall.c.

#include "comm/stall.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/last_words.h"
#include "comm/job_end.h"
#include "comm/job_signal.h"
#include "comm/launch.h"
#include "comm/stall_inside.h"

#define ROOT_SILENCE 3.0 // seconds: it speaks each second
#define LAST_NEWS    0.1 // less than SIGNAL_WAIT, for which the others wait
#define GATHERING    0.5 // seconds to collect waiting ranks before the message

// ---- Speaking, and ending the job.

static Words words; // the message that is being made

static void speak(void)
{
    (void)!write(STDERR_FILENO, words.text, words.length);
}

static void begin_message(void)
{
    words.length = 0;
    words_add(&words, "%s: ", program_name());
}

// The beginning of a message that aborts the job (`ends`), or of a warning.
static void begin_stall(bool ends)
{
    begin_message();
    if (ends)
        words_add(&words, "HVD_STALL_SHUTDOWN_SECONDS=%g: the job ends, since ",
                  stall_job.shutdown);
    else
        words_add(&words, "stall: ");
}

// Tells the other ranks first, so that none reports this one as gone; mpirun ends them. Not
// MPI_Abort: MPI belongs to the main thread.
static _Noreturn void abort_stalled_job(void)
{
    stall_job.explained = true;
    stall_tell();
    if (ftrylockfile(stdout) == 0)
        fflush(stdout);
    _exit(STATUS_USER_MUST);
}

// Whether a report is due: after the limit, twice that, and so on.
static bool is_due(double *next_report, double waited)
{
    if (*next_report == 0)
        *next_report = stall_job.limit;
    bool due = waited >= *next_report;
    while (*next_report <= waited)
        *next_report *= 2;
    return due;
}

// ---- Ranks that left or are gone: the root reports them, rank 1 the root: one message.

static struct {
    double seen; // 0: there are none
    bool named;
} leavers;

static bool has_failed(const RankView *rank)
{
    return rank->gone || (rank->says.left != HERE && rank->says.status != 0);
}

// The first rank that exited with a status other than 0 or is gone (mpirun aborts the job), or -1.
static int first_failed(void)
{
    for (int r = 0; r < stall_job.size; r++)
        if (has_failed(&stall_job.ranks[r]))
            return r;
    return -1;
}

// A rank that ends the job has said why.
static bool some_rank_explained(void)
{
    for (int r = 0; r < stall_job.size; r++)
        if (stall_job.ranks[r].says.explained && stall_job.ranks[r].says.ended_by == 0)
            return true;
    return false;
}

static void report_leavers(void)
{
    words_add(&words, "\n");
    if (getenv(JOB_END_FIELDS) && first_failed() >= 0)
        words_add(&words, JOB_END_RANK "%d\n", first_failed());
    speak();
    leavers.named = true;
}

static void judge_leavers(double now)
{
    begin_message();
    bool failed = first_failed() >= 0;
    if (leavers.named || stall_job.rank > 1 || (stall_job.rank != ROOT && !failed) ||
        !words_of_leavers(stall_job.ranks, stall_job.size, now, &words))
        return;
    if (leavers.seen == 0)
        leavers.seen = now;
    if (!failed && now - leavers.seen < GATHERING)
        return;
    report_leavers();
    if (!failed)
        abort_stalled_job();
}

// ---- This process ends, by a signal or because mpirun is gone.

static void print_with_place(int file)
{
    words_of_place(&stall_job.ranks[stall_job.rank].says, &words);
    words_add(&words, "\n");
    (void)!write(file, words.text, words.length);
}

// mpirun ends the job because of a rank: names it if it is gone and no other has been named.
static void name_gone(void)
{
    int gone = first_failed();
    if (stall_job.limit <= 0 || leavers.named || stall_job.rank > 1 || gone < 0 ||
        !stall_job.ranks[gone].gone)
        return;
    begin_message();
    words_add(&words, "rank %d is " RANK_IS_GONE, gone);
    report_leavers();
}

// mpirun ends the job because of a rank: what that rank's connection still brings names it.
static void hear_last_news(void)
{
    double end = seconds_now() + LAST_NEWS, now;
    while (first_failed() < 0 && !some_rank_explained() && (now = seconds_now()) < end)
        connections_hear(end - now);
}

void stall_end_by_signal(void)
{
    hear_last_news();
    bool by_launcher = known_launcher() && job_signal_sender() == known_launcher();
    bool for_this_rank = known_launcher() && !by_launcher;
    bool some_rank_failed = first_failed() >= 0 || some_rank_explained();
    if (for_this_rank || (stall_job.rank == ROOT && !some_rank_failed)) {
        begin_message();
        if (stall_job.rank != ROOT)
            words_add(&words, "rank %d: ", stall_job.rank);
        words_add(&words, "ended by %s%s", job_signal_name(),
                  by_launcher ? ", which mpirun sent" : "");
        print_with_place(STDERR_FILENO);
    } else if (by_launcher)
        name_gone();
    stall_job.explained = true;
    stall_job.ended_by = for_this_rank ? 0 : job_signal();
    stall_tell();
    // mpirun kills the others as soon as the first one ends: the root needs time to report.
    if (stall_job.rank != ROOT && by_launcher)
        sleep_seconds(SIGNAL_WAIT);
    die_by_signal(job_signal());
}

void stall_end_without_launcher(void)
{
    begin_message();
    words_add(&words, "mpirun is gone, so the job ends");
    if (stall_job.rank == ROOT)
        print_with_place(launcher_stderr());
    remove_leftovers();
    _exit(STATUS_USER_MUST);
}

// ---- Ranks that wait, on the root.

// A stopped process sends nothing; on this machine the system shows its state at once.
static void look_for_stopped(void)
{
    for (int r = 0; r < stall_job.size; r++) {
        RankView *rank = &stall_job.ranks[r];
        if (r != stall_job.rank && rank->known && rank->says.machine == stall_job.machine)
            rank->stopped = process_is_stopped(rank->says.process);
    }
}

static _Noreturn void end_stalled_job(double now)
{
    begin_stall(true);
    words_of_waiting(stall_job.ranks, stall_job.size, now, &words);
    words_add(&words, "\n");
    speak();
    abort_stalled_job();
}

static void note_end_of_stall(double seconds)
{
    begin_message();
    words_add(&words, "note: after %.0f s that waiting is over\n", seconds);
    speak();
}

// The time after which a rank counts as waiting: a job may end before a report is due.
static double limit_of_wait(void)
{
    return stall_job.shutdown > 0 ? fmin(stall_job.shutdown, stall_job.limit) : stall_job.limit;
}

static void judge_stall(double now)
{
    static double last, next_report; // last: when the last stall began
    double limit = limit_of_wait();
    if (stall_begin(stall_job.ranks, stall_job.size, limit, now) > 0)
        look_for_stopped(); // a stopped rank waits for nothing
    double begin = stall_begin(stall_job.ranks, stall_job.size, limit, now);
    if (leavers.named)
        return;
    if (begin == 0) {
        if (next_report > stall_job.limit)
            note_end_of_stall(now - last);
        next_report = 0;
        return;
    }
    last = begin;
    if (is_due(&next_report, now - begin)) {
        words.length = 0;
        words_of_stall(stall_job.ranks, stall_job.size, now, &words);
        speak();
    }
    if (stall_job.shutdown > 0 && now - begin >= stall_job.shutdown)
        end_stalled_job(now);
}

// ---- Where the root can't judge: each rank for its own call.

// One rank aborts the job; the others wait `more` seconds for it.
static bool is_time_to_end(double waited, double more)
{
    return stall_job.shutdown > 0 && waited >= stall_job.shutdown + more;
}

// Before the ranks can speak to each other: MPI's start waits for all of them. The first rank of
// this machine that waits reports which of its ranks are stopped, or have not come.
static bool add_neighbours(void)
{
    static Neighbours all;
    find_neighbours(STALL_THREAD, &all);
    for (int i = 0; i < all.count; i++) {
        const Neighbour *other = &all.of[i];
        if (other->stopped)
            words_add(&words, "; rank %d is stopped (by SIGSTOP, or a debugger)", other->rank);
        else if (!other->has_thread)
            words_add(&words, "; rank %d has not", other->rank);
        else if (other->rank < stall_job.rank)
            return false;
    }
    return true;
}

static void judge_start(double now)
{
    static double next_report;
    double waited = now - stall_job.begin;
    bool ends = is_time_to_end(waited, stall_job.rank == ROOT ? 0 : 1);
    if (!is_due(&next_report, waited) && !ends)
        return;
    begin_stall(ends);
    words_add(&words, "rank %d waits in hvd_init for %.0f s: not all %d ranks have come to it",
              stall_job.rank, waited, stall_job.size);
    if (!add_neighbours())
        return;
    words_add(&words, "\n");
    speak();
    if (ends)
        abort_stalled_job();
}

// A root that is stopped, or whose machine is lost or overloaded.
static void judge_root(double now)
{
    static double next_report;
    const RankView *root = &stall_job.ranks[ROOT], *self = &stall_job.ranks[stall_job.rank];
    double limit = limit_of_wait(), silence = now - (root->known ? root->heard : stall_job.begin);
    bool waits = self->says.in_call && self->says.left == HERE && now - self->since > limit;
    if (!waits || !connections_may_reach_root() || silence <= fmax(limit, ROOT_SILENCE) ||
        leavers.named) {
        next_report = 0;
        return;
    }
    bool ends = is_time_to_end(silence, stall_job.rank == 1 ? 0 : OTHERS_WAIT);
    if (!is_due(&next_report, silence) && !ends)
        return;
    look_for_stopped();
    begin_stall(ends);
    words_of_silence(self, root, silence, &words);
    speak();
    if (ends)
        abort_stalled_job();
}

void stall_judge(double now)
{
    if (stall_job.limit <= 0 || some_rank_explained())
        return;
    if (!stall_job.invited) {
        judge_start(now);
        return;
    }
    judge_leavers(now);
    if (stall_job.rank == ROOT)
        judge_stall(now);
    else
        judge_root(now);
}
