// One run of a program under mpirun, watched through its traces.

#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "process.h"
#include "whereabouts.h"

// Silence, in seconds, after which a run counts as hung: where the traces prove that nobody will
// ever go on, and where they don't.
#define DEADLOCK_SILENCE 2.5
#define SILENCE          8.0

// Small enough for a second or two. With 4 ranks 19 and 10 batches tell a right division from the
// wrong ones: 19 / 4 = 4.75, 3 * 10 / 4 = 7.5, but 3 * (10 / 4) is 6, or 9 where 2.5 is rounded up.
// There is no --seed, since ranks must begin with different weights. On a GPU cuDNN would otherwise
// measure its algorithms, for longer than the run takes.
#define FLAGS                                                                                      \
    "--data synthetic --images 38 --batch-size 2 --val-batch-size 4 --width 1 --base-lr 0.01 "     \
    "--loader-threads 1 --deterministic --progress plain"

extern char **environ;

bool runs_on_gpu(void)
{
    const char *device = getenv(CHECK_DEVICE);
    return device && strcmp(device, "gpu") == 0;
}

// The run shall not depend on what the user's shell has set for others.
static void set_environment(const char *folder, const char *more_flags)
{
    for (char **variable = environ; *variable;) {
        if (strncmp(*variable, "HVD", 3) != 0 ||
            strncmp(*variable, CHECK_DEVICE "=", sizeof CHECK_DEVICE) == 0) {
            variable++;
            continue;
        }
        char *name = format_text("%.*s", (int)strcspn(*variable, "="), *variable);
        unsetenv(name);
        free(name);
        variable = environ;
    }
    char *flags = format_text(FLAGS " --device %s --log-dir %s/logs %s",
                              runs_on_gpu() ? "gpu" : "cpu", folder, more_flags);
    setenv("HVDLAB_FLAGS", flags, 1);
    setenv("HVDLAB_TRACE", folder, 1);
    setenv("HVD_RANKS_PER_NODE", "2", 1); // so that a rank is not a local rank
    // What NCCL does is queued on the GPU: a rank that waits for others there looks busy.
    setenv("HVD_TRANSPORT", "mpi", 1);
    if (!runs_on_gpu())
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
    free(flags);
}

// The size of all traces and of what was printed: it grows as long as something happens.
static long long amount(const Process *process, const char *folder)
{
    long long bytes = (long long)process->bytes;
    for (int r = 0; r < RANKS; r++) {
        char *path = format_text("%s/rank-%d.jsonl", folder, r);
        struct stat file;
        if (stat(path, &file) == 0)
            bytes += file.st_size;
        free(path);
    }
    return bytes;
}

static bool is_deadlocked(const char *folder)
{
    Events events[RANKS];
    events_read(events, folder);
    bool deadlock = is_deadlock(events);
    events_free(events);
    return deadlock;
}

typedef enum {
    ENDED,
    HUNG,      // nothing moved any more
    TOO_LONG,  // it goes on and on
    ABANDONED, // by all ranks; after an abort Open MPI's mpirun may wait for nothing, for ever
} Outcome;

// What a silence of some seconds means; ENDED: nothing yet.
static Outcome silent_outcome(const Process *process, const char *folder, bool too_long)
{
    if (!process_has_children(process))
        return ABANDONED;
    return too_long || is_deadlocked(folder) ? HUNG : ENDED;
}

static Outcome watch(Process *process, const char *folder, Limits limits)
{
    long long before = 0;
    double last = 0, next_look = 0;
    while (!process->ended) {
        process_wait(process, 50);
        double now = seconds_now();
        long long bytes = amount(process, folder);
        if (now > limits.deadline)
            return bytes == 0 || now - last > DEADLOCK_SILENCE * limits.patience ? HUNG : TOO_LONG;
        if (bytes != before || bytes == 0) { // before the first event mpirun may still be starting
            before = bytes;
            last = now;
            next_look = now + DEADLOCK_SILENCE * limits.patience;
        } else if (now > next_look && !process->ended) {
            next_look = now + 0.5;
            Outcome outcome =
                silent_outcome(process, folder, now - last > SILENCE * limits.patience);
            if (outcome != ENDED)
                return outcome;
        }
    }
    return ENDED;
}

// What mpirun would have said of a run that it did not see the end of.
static int status_of_ranks(const Events events[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        if (event_number(event_last(&events[r], "end"), "status") != 0)
            return 1;
    return 0;
}

static bool ranks_did_something(const Run *run)
{
    bool any = false;
    for (int r = 0; r < RANKS; r++)
        any = any || run->events[r].count > 0;
    for (int i = 0; i < run->output.count; i++)
        any = any || run->output.lines[i].rank != MPIRUN;
    return any;
}

// An mpirun that can't start anything is not the student's doing.
static void need_mpirun(const char *ranks)
{
    Process process =
        process_start((const char *const[]){"common/scripts/mpi.sh", "run", ranks, "true", NULL});
    while (!process.ended)
        process_wait(&process, 1000);
    process_stop(&process);
    if (process.status != 0) {
        Output output = output_read(process.text);
        int line = 0;
        while (line < output.count - 1 && strncmp(output.lines[line].text, "---", 3) == 0)
            line++;
        die("mpirun starts no processes here (see make info): %s",
            output.count ? output.lines[line].text : "it doesn't say why");
    }
    process_free(&process);
}

Run run_program(const char *program, const char *folder, int rank_count, const char *more_flags,
                Limits limits)
{
    set_environment(folder, more_flags);
    char *ranks = format_text("%d", rank_count);
    double begin = seconds_now();
    Process process = process_start((const char *const[]){"common/scripts/mpi.sh", "run", ranks,
                                                          "--tag-output", program, NULL});
    Outcome outcome = watch(&process, folder, limits);
    Run run = {.ranks = rank_count,
               .hung = outcome == HUNG || outcome == TOO_LONG,
               .silent = outcome == HUNG,
               .seconds = seconds_now() - begin};
    process_stop(&process);
    run.output = output_read(process.text);
    events_read(run.events, folder);
    run.status = outcome == ABANDONED ? status_of_ranks(run.events) : process.status;
    process_free(&process);
    if (!run.hung && run.status != 0 && !ranks_did_something(&run))
        need_mpirun(ranks);
    free(ranks);
    return run;
}

void run_free(Run *run)
{
    events_free(run->events);
    output_free(&run->output);
    *run = (Run){0};
}
