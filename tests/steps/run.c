// One run of a program under mpirun, watched through its traces.

#include "run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "collector.h"
#include "control.h"
#include "environment.h"
#include "machine_time.h"
#include "event_rules.h"
#include "reader.h"
#include "sandbox.h"
#include "servers.h"
#include "waiting.h"
#include "workplace.h"
#include "base/clock.h"
#include "base/format.h"

// Silence, in seconds, after which a run counts as hung: where the traces prove that no rank can go
// on, and where they don't.
#define DEADLOCK_SILENCE 2.5
#define SILENCE          8.0

#define DEADLOCK_PATIENCE 4.0 // at most: what the traces prove needs no more time on a slow machine

#define READ_LIMIT    5.0  // seconds that a look for a deadlock may take
#define CONTROL_LIMIT 20.0 // seconds that a run of the control may take

#define MAX_TRACE ((long long)1 << 26) // bytes of all traces together

// Beside the plan's own. There is no --seed, since ranks must begin with different weights. On a
// GPU cuDNN would otherwise measure its algorithms, for longer than the run takes.
#define FLAGS "--loader-threads 1 --deterministic --progress plain"

bool runs_on_gpu(void)
{
    const char *device = getenv(CHECK_DEVICE);
    return device && strcmp(device, "gpu") == 0;
}

// The run must not depend on what the user's shell has set for others.
static bool is_for_runs(const char *variable)
{
    return strncmp(variable, "HVD", 3) != 0 ||
           strncmp(variable, CHECK_DEVICE "=", sizeof CHECK_DEVICE) == 0;
}

static void set_number(const char *variable, int number)
{
    char *text = format_text("%d", number);
    setenv(variable, text, 1);
    free(text);
}

static void set_environment(const Sandbox *sandbox, const RunPlan *plan)
{
    environment_keep(is_for_runs);
    // A program whose functions work in the host's memory takes the CPU by itself.
    char *flags = format_text(FLAGS "%s --log-dir %s %s", runs_on_gpu() ? "" : " --device cpu",
                              sandbox->logs, plan->flags);
    setenv("HVDLAB_FLAGS", flags, 1);
    setenv("HVDLAB_TRACE", sandbox->pipes, 1);
    setenv("HVDLAB_SYNCHRONOUS_SENDS", "1", 1);
    set_number("HVDLAB_LATE_NAMES", 1 + (plan->layout ? atoi(plan->layout) : 0));
    if (plan->kill)
        setenv("HVDLAB_KILL", plan->kill, 1);
    if (plan->kill || plan->lose)
        setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1); // the others end at once, too
    if (plan->full)
        setenv("HVDLAB_FULL", plan->full, 1);
    if (plan->layout)
        setenv("HVD_LAYOUT", plan->layout, 1);
    if (plan->seed)
        set_number("HVDLAB_SEED", (int)plan->seed);
    if (plan->devices)
        set_number("HVDLAB_DEVICES", plan->devices);
    // Here only the check ends ranks, and it waits until it knows what each rank does.
    setenv("HVD_STALL_SECONDS", "0", 1);
    // What NCCL does is queued on the GPU: a rank that waits for others there looks busy.
    setenv("HVD_TRANSPORT", "mpi", 1);
    // Open MPI 4 may lose its own line about a wrong call where it gathers those of all ranks.
    setenv("OMPI_MCA_orte_base_help_aggregate", "0", 1);
    if (!runs_on_gpu())
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
    free(flags);
}

// The size of all traces: it grows as long as something happens.
static long long trace_size(const char *folder, int ranks)
{
    long long bytes = 0;
    for (int r = 0; r < ranks; r++) {
        char *path = format_text("%s/rank-%d.jsonl", folder, r);
        struct stat file;
        if (stat(path, &file) == 0)
            bytes += file.st_size;
        free(path);
    }
    return bytes;
}

#define DEADLOCK "deadlock"

static void look_for_deadlock(const int *folders, void *job)
{
    Traces traces = traces_read(folders[0], ((Job *)job)->ranks, ((Job *)job)->workers);
    if (is_deadlock(&traces) || is_deadlock_of_servers(&traces))
        printf(DEADLOCK);
}

static bool is_deadlocked(const char *folder, Job job)
{
    Answer answer =
        reader_ask(look_for_deadlock, (const char *const[]){folder, NULL}, &job, READ_LIMIT);
    bool deadlock = answer.text && strcmp(answer.text, DEADLOCK) == 0;
    answer_free(&answer);
    return deadlock;
}

typedef enum {
    ENDED,
    HUNG,      // nothing moved any more
    TOO_LONG,  // it goes on and on
    FLOODED,   // it prints and prints
    SWOLLEN,   // its traces grow and grow
    GREEDY,    // it takes memory, disk or processes
    ABANDONED, // by all ranks; after an abort Open MPI's mpirun may wait for nothing, forever
} Outcome;

// What is watched.
typedef struct {
    Process *process;
    const Sandbox *sandbox;
    Job job;
    const RunPlan *plan;
    Usage *usage; // the most that was seen
} Watched;

static Job job_of(const RunPlan *plan)
{
    return (Job){plan->ranks + plan->servers, plan->servers ? plan->ranks : 0};
}

// True where the run takes too much: this, of its processes, and its files. Where the system limits
// them (storage.h) nothing passes the limit.
static bool is_greedy(const Watched *watched, Usage usage)
{
    const Sandbox *sandbox = watched->sandbox;
    if (sandbox->limited) {
        usage.disk = storage_bytes(sandbox->folder);
        usage.full = !storage_has_names(sandbox->folder);
    } else {
        usage.disk = usage_of_disk(sandbox->folder) + usage_of_disk(sandbox->temporary);
    }
    *watched->usage = usage_max(*watched->usage, usage);
    return usage.memory > MAX_RUN_MEMORY || usage.disk > MAX_RUN_DISK - DISK_SLACK || usage.full ||
           run_own_processes(watched->plan, &usage) > MAX_RUN_PROCESSES;
}

// Ten times a second at most.
static bool is_greedy_now(const Watched *watched, double now, double *next)
{
    if (now < *next)
        return false;
    *next = now + 0.1;
    return is_greedy(watched, usage_below(watched->process->pid));
}

// What a silence of some seconds means; ENDED: nothing yet.
static Outcome silent_outcome(const Watched *watched, bool too_long)
{
    if (!sandbox_has_children(watched->process))
        return ABANDONED;
    return too_long || is_deadlocked(watched->sandbox->trace, watched->job) ? HUNG : ENDED;
}

static Outcome watch(const Watched *watched, Limits limits)
{
    Process *process = watched->process;
    long long before = 0;
    double last = 0, next_look = 0, next_usage = 0;
    while (!process->ended) {
        process_wait(process, 50);
        double now = machine_time(process->pid);
        long long trace = trace_size(watched->sandbox->trace, watched->job.ranks);
        long long bytes = trace + (long long)process->bytes;
        if (is_greedy_now(watched, now, &next_usage))
            return GREEDY;
        if (process->flooded || trace > MAX_TRACE)
            return process->flooded ? FLOODED : SWOLLEN;
        if (now > limits.deadline)
            return bytes == 0 || now - last > DEADLOCK_SILENCE * limits.patience ? HUNG : TOO_LONG;
        if (bytes != before || bytes == 0) { // before the first event mpirun may still be starting
            before = bytes;
            last = now;
            next_look = now + DEADLOCK_SILENCE * fmin(limits.patience, DEADLOCK_PATIENCE);
        } else if (now > next_look && !process->ended) {
            next_look = now + 0.5;
            Outcome outcome = silent_outcome(watched, now - last > SILENCE * limits.patience);
            if (outcome != ENDED)
                return outcome;
        }
    }
    if (process->flooded)
        return FLOODED;
    return ENDED;
}

// By mpirun; or, where there are parameter servers, each process by itself.
static Process start_run(const Sandbox *sandbox, const char *program, const RunPlan *plan)
{
    const char *script = plan->servers ? "common/scripts/servers.sh" : "common/scripts/mpi.sh";
    char *ranks = format_text("%d", plan->ranks), *starter = realpath(script, NULL),
         *servers = format_text("%d%s%s", plan->servers, plan->paces ? ":" : "",
                                plan->paces ? plan->paces : "");
    const char *const by_mpirun[] = {starter, "run", ranks, "--tag-output", program, NULL};
    const char *const by_hand[] = {starter, "--tag-output", servers, ranks, program, NULL};
    CHECK(starter);
    Process process = sandbox_start(sandbox, plan->servers ? by_hand : by_mpirun,
                                    (const char *const[]){starter, program, NULL});
    free(ranks);
    free(starter);
    free(servers);
    return process;
}

// `complaint`: what is said where the run fails, which the caller frees; NULL: it isn't wanted.
static Run run_once(const char *program, const char *folder, const char *files, const RunPlan *plan,
                    Limits limits, char **complaint)
{
    Sandbox sandbox = sandbox_make(folder);
    if (files)
        sandbox_fill(&sandbox, files);
    if (plan->lose)
        sandbox_lose(&sandbox, plan->lose);
    set_environment(&sandbox, plan);
    Job job = job_of(plan);
    Collector *collector = collector_start(sandbox.pipes, sandbox.trace, job.ranks);
    double begin = seconds_now();
    Process process = start_run(&sandbox, program, plan);
    Usage usage = {0};
    const Watched watched = {&process, &sandbox, job, plan, &usage};
    Outcome outcome = watch(&watched, limits);
    double seconds = seconds_now() - begin;
    process_stop(&process);
    RankSet forged = collector_end(collector);
    // A burst at the end may have left too much, too.
    bool greedy = is_greedy(&watched, (Usage){0}) || outcome == GREEDY || process.out_of_memory;
    if (process.out_of_memory)
        usage.memory = fmax(usage.memory, MAX_PROCESS_MEMORY);
    if (complaint)
        *complaint = control_complaint(&process);
    workplace_hide(process.text);
    Run run = {.plan = *plan,
               .ranks = job.ranks,
               .status = outcome == ABANDONED ? EXIT_FAILURE : process.status,
               .hung = greedy || (outcome != ENDED && outcome != ABANDONED),
               .silent = outcome == HUNG && !greedy,
               .flooded = outcome == FLOODED,
               .swollen = outcome == SWOLLEN,
               .greedy = greedy,
               .usage = usage,
               .forged = forged,
               .seconds = seconds,
               .abandoned = outcome == ABANDONED,
               .work = format_text("%s", sandbox.work),
               .trace = format_text("%s", sandbox.trace),
               .text = format_text("%s", process.text ? process.text : "")};
    process_free(&process);
    control_disk(sandbox.limited ? sandbox.trace : sandbox.folder,
                 sandbox.limited ? 0 : usage.disk);
    sandbox_free(&sandbox);
    return run;
}

// (By the control, in the same seal.)
void run_need_mpirun(const char *folder, const RunPlan *plan, double patience)
{
    const RunPlan control = {.name = plan->name,
                             .ranks = plan->ranks,
                             .layout = plan->layout,
                             .devices = plan->devices,
                             .flags = ""};
    const char *program = control_program();
    char *place = format_text("%s-control", folder), *complaint = NULL;
    Limits limits = {.deadline = seconds_now() + CONTROL_LIMIT * patience, .patience = patience};
    Run run = run_once(program, place, NULL, &control, limits, &complaint);
    if (run.hung || run.status != 0)
        die("mpirun starts no processes here, or they can't communicate (see make info): %s",
            run.hung ? "they wait without end" : complaint);
    run_free(&run);
    free(complaint);
    free(place);
}

Run run_program(const char *program, const char *folder, const char *files, const RunPlan *plan,
                Limits limits)
{
    return run_once(program, folder, files, plan, limits, NULL);
}

void run_free(Run *run)
{
    traces_free(&run->traces);
    output_free(&run->output);
    free(run->work);
    free(run->trace);
    free(run->text);
    *run = (Run){0};
}

// ---- Reading a run.

// What mpirun would have said of a run that it did not see the end of.
static int status_of_ranks(const Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++)
        if (event_number(event_last(&traces->of[r], "end"), "status") != 0)
            return 1;
    return 0;
}

// The rank that was to be killed has come to that event, and no further.
static RankSet killed_rank(const RunPlan *plan, const Traces *traces)
{
    int rank, number;
    char name[32];
    if (!plan->kill || sscanf(plan->kill, "%d:%31[a-z_]:%d", &rank, name, &number) != 3 ||
        rank >= traces->ranks)
        return 0;
    const Events *events = &traces->of[rank];
    bool killed = event_count(events, name) == number && event_count(events, "end") == 0;
    return killed ? 1u << rank : 0;
}

void run_read(Run *run, int trace, int work)
{
    Job job = job_of(&run->plan);
    run->files = work;
    run->output = output_read(run->text);
    run->traces = traces_read(trace, job.ranks, job.workers);
    if (run->abandoned)
        run->status = status_of_ranks(&run->traces);
    run->traces.killed = killed_rank(&run->plan, &run->traces);
    run->killed = run->traces.killed && !run->hung && run->status != 0;
}

static bool has_communicated(const Run *run)
{
    return (ranks_with(&run->traces, "collective_end") | ranks_with(&run->traces, "message_end") |
            ranks_with(&run->traces, "wait_end")) != 0;
}

bool run_failed_at_once(const Run *run)
{
    bool failed = run->hung ? run->silent : run->status != 0 && !run->killed;
    return failed && !run->plan.servers && !has_communicated(run);
}

// ---- What is known of a run.

double crowding(void)
{
    static double last = 1; // a reader can't look any more
    double load = 0, alone;
    if (getloadavg(&load, 1) != 1)
        return last;
    alone = 2 * (double)sysconf(_SC_NPROCESSORS_ONLN);
    return last = load < alone ? 1 : load < 4 * alone ? load / alone : 4;
}

int run_own_processes(const RunPlan *plan, const Usage *usage)
{
    int ranks = plan->ranks + plan->servers;
    // bwrap's two, mpirun, a shell; servers.sh has one or two for each process.
    int around = plan->servers ? 4 + 4 * ranks : 6 + ranks;
    return usage->processes > around ? usage->processes - around : 0;
}

int run_min_events(const Run *run, const char *name)
{
    int min = event_count(&run->traces.of[0], name);
    for (int r = 1; r < run->ranks; r++) {
        int count = event_count(&run->traces.of[r], name);
        min = count < min ? count : min;
    }
    return min;
}

const Run *run_named(const Runs *runs, const char *name)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (strcmp(run->plan.name, name) == 0)
            return run;
    return NULL;
}

double run_flag(const Run *run, const char *flag)
{
    double value = (double)NAN;
    for (const char *at = run->plan.flags; (at = strstr(at, flag));) // the last one counts
        value = atof(at += strlen(flag));
    return value;
}

bool run_trains(const RunPlan *plan)
{
    return !plan->servers && strstr(plan->flags, "--epochs ") != NULL;
}

bool run_is_one_process(const RunPlan *plan)
{
    return plan->devices && plan->ranks == 1;
}

int run_node(const Run *run, int rank)
{
    const char *at = run->plan.layout;
    int node = 0;
    for (int r = 0; at && r <= rank; r++)
        node = next_listed(&at);
    return node > 0 ? node : 0;
}

int run_local_rank(const Run *run, int rank)
{
    int below = 0;
    for (int r = 0; r < rank; r++)
        below += run_node(run, r) == run_node(run, rank);
    return below;
}

int run_local_size(const Run *run, int rank)
{
    int count = 0;
    for (int r = 0; r < run->ranks; r++)
        count += run_node(run, r) == run_node(run, rank);
    return count;
}

int run_nodes(const Run *run)
{
    return rank_count(first_on_hosts(run, all_ranks(run->ranks)));
}

// The hosts' numbers may be drawn.
RankSet first_on_hosts(const Run *run, RankSet ranks)
{
    RankSet found = 0;
    for (int r = 0; r < run->ranks; r++) {
        bool first = has_rank(ranks, r);
        for (int before = 0; before < r; before++)
            first = first && !(has_rank(found, before) && same_host(run, before, r));
        found |= first ? 1u << r : 0;
    }
    return found;
}

bool same_host(const Run *run, int a, int b)
{
    return run_node(run, a) == run_node(run, b);
}

bool same_local_rank(const Run *run, int a, int b)
{
    return run_local_rank(run, a) == run_local_rank(run, b);
}

static bool is_librarys(const char *comm)
{
    static const char *const names[] = {"gradients", "variables", "metrics", "values", "group"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(comm, names[i]) == 0)
            return true;
    return false;
}

// True where a call is `function`, or a form of it: MPI_Iallreduce, MPI_Allreduce_init and
// MPIX_Allreduce_init are forms of MPI_Allreduce, MPI_Ineighbor_allgather of MPI_Allgather.
static bool is_form_of(const char *call, const char *function)
{
    static const char *const begins[] = {"I", "Neighbor_", "Ineighbor_", ""};
    if (strcmp(call, function) == 0)
        return true;
    if (strncmp(function, "MPI_", 4) != 0 || strncmp(call, "MPI", 3) != 0 || !strchr(call, '_'))
        return false;
    call = strchr(call, '_') + 1;
    function += 4;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t begin = strlen(begins[i]), length = strlen(function);
        if (strncmp(call, begins[i], begin) == 0 &&
            strncasecmp(call + begin, function, length) == 0 &&
            (!call[begin + length] || strcmp(call + begin + length, "_init") == 0))
            return true;
    }
    return false;
}

// From the begin of the program's own all-reduce to its end, or to a call of hvd's in it, the calls
// of MPI are the program's, on whatever communicator.
static bool is_programs(const cJSON *event, bool programs)
{
    if (begins_own_sum(event))
        return true;
    bool hvd = event_is(event, "collective_begin") &&
               strncmp(event_text(event, "function"), "hvd_", 4) == 0;
    return programs && !hvd && !ends_own_sum(event);
}

RankSet ranks_that_called(const Run *run, const char *function)
{
    RankSet ranks = 0;
    for (int r = 0; r < run->ranks; r++) {
        bool programs = false;
        for (int i = 0; i < run->traces.of[r].count; i++) {
            const cJSON *event = run->traces.of[r].items[i];
            programs = is_programs(event, programs);
            if (is_form_of(event_text(event, "function"), function) &&
                (programs || !is_librarys(event_text(event, "name"))))
                ranks |= 1u << r;
        }
    }
    return ranks;
}
