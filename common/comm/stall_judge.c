// Decides what to report about ranks that wait, have left or are stopped, and when to abort the
// job. Runs in the thread of stall.c.

#include "comm/stall.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>
#include "base/error.h"
#include "comm/job_end.h"
#include "comm/stall_inside.h"

#define ROOT_SILENCE 3.0
#define GATHERING    0.5 // seconds in which others may come to wait, too, before a leaver is named

// ---- Speaking, and ending the job.

static void speak(const Words *words)
{
    (void)!write(STDERR_FILENO, words->text, words->length);
}

// The beginning of a message that aborts the job (`ends`), or of a warning.
static void begin_line(Words *words, bool ends)
{
    words->length = 0;
    words_add(words, "%s: ", program_name());
    if (ends)
        words_add(words, "HVD_STALL_SHUTDOWN_SECONDS=%g: the job ends, since ", stall_job.shutdown);
    else
        words_add(words, "stall: ");
}

// Announces the root's end to the other ranks first, so that none reports it as lost; mpirun ends
// them. Not MPI_Abort: MPI belongs to the main thread.
static _Noreturn void abort_stalled_job(void)
{
    stall_explained();
    if (ftrylockfile(stdout) == 0)
        fflush(stdout);
    _exit(STATUS_USER_MUST);
}

// ---- Judging, on the root.

static struct {
    double leavers_seen; // 0: there are none
    bool leavers_named;  // on the root, or the root's end on the deputy
    double stall;        // when the one that was reported began, 0: none was
    double next_report;  // seconds of waiting
} judged;

// mpirun itself handles a process that has exited with another status than 0, or is gone.
static bool only_mpirun_ends_it(void)
{
    for (int r = 0; r < stall_job.size; r++)
        if (stall_job.ranks[r].gone ||
            (stall_job.ranks[r].says.left != HERE && stall_job.ranks[r].says.status != 0))
            return true;
    return false;
}

static void judge_leavers(double now)
{
    static Words words;
    words.length = 0;
    words_add(&words, "%s: ", program_name());
    if (judged.leavers_named || !words_of_leavers(stall_job.ranks, stall_job.size, now, &words))
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
        abort_stalled_job();
}

// A stopped process sends nothing; on this machine the system shows its state at once.
static void look_for_stopped(void)
{
    for (int r = 0; r < stall_job.size; r++)
        if (r != stall_job.rank && stall_job.ranks[r].known &&
            stall_job.ranks[r].says.machine == stall_job.machine)
            stall_job.ranks[r].stopped = process_is_stopped(stall_job.ranks[r].says.process);
}

static void report_stall(double now)
{
    static Words words;
    words.length = 0;
    words_of_stall(stall_job.ranks, stall_job.size, now, &words);
    speak(&words);
}

static void end_stalled_job(double now)
{
    static Words words;
    begin_line(&words, true);
    words_of_waiting(stall_job.ranks, stall_job.size, now, &words);
    words_add(&words, "\n");
    speak(&words);
    abort_stalled_job();
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

// After which a rank counts as waiting: a job may end before a report is due.
static double limit_of_wait(void)
{
    return stall_job.shutdown > 0 ? fmin(stall_job.shutdown, stall_job.limit) : stall_job.limit;
}

static void judge_stall(double now)
{
    double limit = limit_of_wait();
    if (stall_begin(stall_job.ranks, stall_job.size, limit, now) > 0)
        look_for_stopped(); // one that is stopped waits for nothing
    double begin = stall_begin(stall_job.ranks, stall_job.size, limit, now);
    if (judged.leavers_named)
        return;
    if (begin == 0) {
        if (judged.next_report > stall_job.limit)
            note_end_of_stall(now);
        return;
    }
    judged.stall = begin;
    if (judged.next_report == 0)
        judged.next_report = stall_job.limit;
    if (now - begin >= judged.next_report) {
        report_stall(now);
        while (judged.next_report <= now - begin)
            judged.next_report *= 2;
    }
    if (stall_job.shutdown > 0 && now - begin >= stall_job.shutdown)
        end_stalled_job(now);
}

// ---- Before the ranks can speak to each other: MPI's start waits for all of them.

// "rank 0 is stopped (...), and rank 2 is": the stopped ranks of this machine. True on the first
// rank that is not stopped; that rank reports them.
static bool look_at_neighbours(Words *words)
{
    static Neighbour neighbours[MAX_NEIGHBOURS];
    int count = find_neighbour_ranks(neighbours, MAX_NEIGHBOURS);
    for (int i = 0; i < count; i++) {
        bool stopped = process_is_stopped(neighbours[i].process);
        if (!stopped && neighbours[i].rank < stall_job.rank)
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
    double waited = now - stall_job.begin;
    // (mpirun ends the others after the first has aborted the job.)
    bool ends =
        stall_job.shutdown > 0 && waited >= stall_job.shutdown + (stall_job.rank == ROOT ? 0 : 1);
    if (waited < (next_report > 0 ? next_report : stall_job.limit) && !ends)
        return;
    begin_line(&words, ends);
    words_add(&words, "rank %d waits in hvd_init for %.0f s: not all %d ranks have come to it",
              stall_job.rank, waited, stall_job.size);
    next_report = 2 * waited;
    if (!look_at_neighbours(&words))
        return;
    words_add(&words, "\n");
    speak(&words);
    if (ends)
        abort_stalled_job();
}

// ---- Where the root can't speak: the deputy knows of itself and of the root.

static void name_failed_root(double now)
{
    static Words words;
    words.length = 0;
    words_add(&words, "%s: ", program_name());
    if (judged.leavers_named || !words_of_leavers(stall_job.ranks, DEPUTY + 1, now, &words))
        return;
    words_add(&words, "\n");
    speak(&words);
    judged.leavers_named = true;
}

void stall_name_gone(void)
{
    static Words words;
    int gone = stall_job.rank == DEPUTY ? ROOT : stall_job.size;
    for (int r = 0; stall_job.rank == ROOT && r < stall_job.size && gone == stall_job.size; r++)
        if (stall_job.ranks[r].gone)
            gone = r;
    if (stall_job.rank > DEPUTY || gone == stall_job.size || !stall_job.ranks[gone].gone ||
        stall_job.limit <= 0 || judged.leavers_named)
        return;
    judged.leavers_named = true;
    words.length = 0;
    words_add(&words, "%s: rank %d is " RANK_IS_GONE "\n", program_name(), gone);
    speak(&words);
}

static bool root_is_stopped(void)
{
    static Neighbour neighbours[MAX_NEIGHBOURS];
    const RankView *root = &stall_job.ranks[ROOT];
    if (root->known)
        return root->says.machine == stall_job.machine && process_is_stopped(root->says.process);
    int count = find_neighbour_ranks(neighbours, MAX_NEIGHBOURS);
    for (int i = 0; i < count; i++)
        if (neighbours[i].rank == ROOT)
            return process_is_stopped(neighbours[i].process);
    return false;
}

static void name_silent_root(double silence)
{
    static double next_report;
    static Words words;
    bool ends = stall_job.shutdown > 0 && silence >= stall_job.shutdown;
    if (silence < next_report && !ends)
        return;
    begin_line(&words, ends);
    words_add(&words, "rank %d %s for %.0f s; rank %d waits in %s\n", ROOT,
              root_is_stopped() ? "has been stopped (by SIGSTOP, or a debugger)"
                                : "has not answered",
              silence, DEPUTY, stall_job.ranks[DEPUTY].says.call);
    speak(&words);
    next_report = 2 * silence;
    if (ends)
        abort_stalled_job();
}

static void judge_root(double now)
{
    const RankView *root = &stall_job.ranks[ROOT], *self = &stall_job.ranks[DEPUTY];
    double limit = limit_of_wait(), patience = fmax(limit, ROOT_SILENCE);
    bool waits = self->says.in_call && self->says.left == HERE && now - self->since > limit;
    if (root->gone || (root->says.left != HERE && root->says.status != 0))
        name_failed_root(now);
    else if (waits && now - (root->known ? root->heard : stall_job.begin) > patience)
        name_silent_root(now - (root->known ? root->heard : stall_job.begin));
}

void stall_judge(double now)
{
    if (stall_job.limit <= 0)
        return;
    if (!stall_job.invited)
        judge_start(now);
    else if (stall_job.rank == ROOT) {
        judge_leavers(now);
        judge_stall(now);
    } else if (stall_job.rank == DEPUTY)
        judge_root(now);
}
