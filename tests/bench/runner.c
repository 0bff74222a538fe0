// Both sides of a runner: how it is started and told what to do, and how it does it.

#include "runner.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "hvd/hvd.h"
#include "run/device.h"

enum { WARM_UP_STEPS = 3 };

// ---- Starting one.

void runner_stop(Runner *r)
{
    fclose(r->to); // the end of its input ends it
    fclose(r->from);
    waitpid(r->pid, NULL, 0);
}

// In the child: becomes the runner.
static _Noreturn void become(int in, int out, const char *const *command,
                             const char *const *environment)
{
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    for (; environment && *environment; environment += 2)
        setenv(environment[0], environment[1], 1);
    execvp(command[0], (char *const *)(uintptr_t)command);
    die("cannot start %s", command[0]);
}

// What the line begins with that says what a peer lacks.
static const char absent[] = "absent: ";

// `command` as for execvp; the environment's variables on top.
static bool start(Runner *r, const char *name, const char *const *command,
                  const char *const *environment)
{
    int in[2], out[2];
    // Closed on exec: a runner must not hold the ends of an earlier one's pipes open.
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    r->name = name;
    fflush(stdout);
    r->pid = fork();
    CHECK(r->pid >= 0);
    if (r->pid == 0)
        become(in[0], out[1], command, environment);
    close(in[0]);
    close(out[1]);
    r->to = fdopen(in[1], "w");
    r->from = fdopen(out[0], "r");
    char line[256] = "";
    if (fgets(line, sizeof line, r->from) && strcmp(line, "ready\n") == 0)
        return true;
    line[strcspn(line, "\n")] = '\0';
    const char *why = strncmp(line, absent, strlen(absent)) == 0 ? line + strlen(absent) : line;
    printf("  %s is left out: %s\n", name, *why ? why : "it did not start");
    runner_stop(r);
    return false;
}

// A workload as words of a command line.
typedef struct {
    char width[16], batch[16];
    const char *device, *precision;
} Words;

static Words words_of(const Workload *w)
{
    Words words = {.device = device_names[w->device], .precision = precision_names[w->precision]};
    snprintf(words.width, sizeof words.width, "%d", w->width);
    snprintf(words.batch, sizeof words.batch, "%d", w->batch);
    return words;
}

const char *own_path(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length > 0);
    path[length] = '\0';
    return path;
}

bool runner_start(Runner *r, const char *name, const char *python, const Workload *workload,
                  const char *const *environment)
{
    Words w = words_of(workload);
    char threads[16];
    snprintf(threads, sizeof threads, "%d", device_threads());
    // clang-format off
    const char *peer[] = {python, "tests/bench/peer.py", name, workload->model, w.width, w.batch,
                          threads, w.device, w.precision, NULL};
    const char *own[] = {own_path(), "--run", name, workload->model, w.width, w.batch,
                         w.device, w.precision, NULL};
    // clang-format on
    return start(r, name, python ? peer : own, environment);
}

void runner_start_hvdlab(Runner *r, const Workload *workload, const char *const *environment)
{
    if (!runner_start(r, "hvdlab", NULL, workload, environment))
        die("bench: hvdlab cannot be started");
}

void runner_start_ranks(Runner *r, const char *what, int ranks, int devices,
                        const Workload *workload)
{
    Words w = words_of(workload);
    char count[16], device_count[16];
    snprintf(count, sizeof count, "%d", ranks);
    snprintf(device_count, sizeof device_count, "%d", devices);
    // clang-format off
    const char *command[] = {"common/scripts/mpi.sh", "run", count, own_path(), "--run", what,
                             workload->model, w.width, w.batch, w.device, w.precision, NULL};
    // clang-format on
    const char *environment[] = {"HVDLAB_DEVICES", device_count, NULL};
    if (!start(r, what, command, environment))
        die("bench: %d ranks cannot be started", ranks);
}

void runner_start_mirrored(Runner *r, int devices, const Workload *workload)
{
    char count[16];
    snprintf(count, sizeof count, "%d", devices);
    const char *environment[] = {"HVDLAB_DEVICES", count, NULL};
    if (!runner_start(r, "mirrored", NULL, workload, environment))
        die("bench: mirrored training cannot be started");
}

// ---- Telling it what to do.

// Seconds for that many steps.
static double take_turn(Runner *r, int steps)
{
    double seconds = 0;
    fprintf(r->to, "run %d\n", steps);
    fflush(r->to);
    if (fscanf(r->from, "%lf %lf", &seconds, &r->peak_rss_mib) != 2)
        die("bench: %s stopped in the middle", r->name);
    return seconds;
}

void time_in_turns(Runner *runners, int count, int rounds, double round_time)
{
    int *steps = allocate((size_t)count, sizeof *steps);
    for (int i = 0; i < count; i++) {
        double seconds = take_turn(&runners[i], 1);
        steps[i] = seconds < round_time ? (int)(round_time / seconds) : 1;
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++)
            runners[i].seconds[round] = take_turn(&runners[i], steps[i]) / steps[i];
    free(steps);
}

void runner_profile(Runner *r, int steps, Timing timings[WORK_KINDS])
{
    fprintf(r->to, "profile %d\n", steps);
    fflush(r->to);
    for (int kind = 0; kind < WORK_KINDS; kind++)
        if (fscanf(r->from, "%lf %lf", &timings[kind].calls, &timings[kind].seconds) != 2)
            die("bench: %s stopped in the middle", r->name);
}

void runner_parts(Runner *r, double parts[EPOCH_PARTS])
{
    fprintf(r->to, "parts 1\n");
    fflush(r->to);
    for (int i = 0; i < EPOCH_PARTS; i++)
        if (fscanf(r->from, "%lf", &parts[i]) != 1)
            die("bench: %s stopped in the middle", r->name);
}

Peak runner_peak(Runner *r)
{
    Peak peak;
    fprintf(r->to, "peak 1\n");
    fflush(r->to);
    if (fscanf(r->from, "%lf %lf", &peak.flops, &peak.bytes) != 2)
        die("bench: %s stopped in the middle", r->name);
    return peak;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort(const double *values, int count, double sorted[MAX_ROUNDS])
{
    CHECK(count > 0 && count <= MAX_ROUNDS);
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_doubles);
}

double median(const double *values, int count)
{
    double sorted[MAX_ROUNDS];
    sort(values, count, sorted);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

double spread(const double *values, int count)
{
    double sorted[MAX_ROUNDS];
    sort(values, count, sorted);
    return (sorted[count - 1] - sorted[0]) / median(values, count);
}

double speed_ratio(const Runner *a, const Runner *b, int rounds)
{
    double ratios[MAX_ROUNDS];
    for (int round = 0; round < rounds; round++)
        ratios[round] = b->seconds[round] / a->seconds[round];
    return median(ratios, rounds);
}

// ---- In the runner.

static double peak_rss_mib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return (double)kib / 1024;
}

// What the root has been told.
typedef struct {
    char word[16];
    int steps; // 0: nothing more
} Task;

// Waits for a message from the root without taking a core: others run meanwhile.
static void broadcast_quietly(Task *task)
{
    MPI_Request request;
    MPI_Ibcast(task, sizeof *task, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done;)
        usleep(2000);
}

// What to do next, the same on every rank.
static Task next_task(void)
{
    Task task = {.steps = 0};
    if (launcher_rank() == 0 && scanf("%15s %d", task.word, &task.steps) != 2)
        task.steps = 0;
    if (launched())
        broadcast_quietly(&task);
    return task;
}

static void answer_profile(Steps *steps, int count)
{
    Timing timings[WORK_KINDS];
    profiler_set(PROFILER_TIMES);
    run_steps(steps, count);
    profiler_timings(count, timings);
    profiler_set(PROFILER_OFF);
    for (int kind = 0; kind < WORK_KINDS; kind++)
        printf("%.9g %.9g\n", timings[kind].calls, timings[kind].seconds);
}

static void answer_peak(void)
{
    Peak peak = measure_peak();
    printf("%.9g %.9g\n", peak.flops, peak.bytes);
}

static void answer_parts(Epoch *epoch)
{
    double parts[EPOCH_PARTS];
    epoch_parts(epoch, parts);
    for (int i = 0; i < EPOCH_PARTS && launcher_rank() == 0; i++)
        printf("%.9g%s", parts[i], i + 1 < EPOCH_PARTS ? " " : "\n");
}

// Ranks begin together; what is told is the mean over them.
static void answer_run(Steps *steps, int count)
{
    if (launched())
        PMPI_Barrier(MPI_COMM_WORLD);
    double begin = seconds_now();
    run_steps(steps, count);
    double seconds = seconds_now() - begin;
    if (launched())
        PMPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (launcher_rank() == 0)
        printf("%.6f %.0f\n", seconds / launcher_size(), peak_rss_mib());
}

// Its operations are noted while they are prepared, so that they can be profiled.
static Steps *prepare(const char *framework, const Workload *workload)
{
    if (strcmp(framework, "mirrored") == 0)
        return prepare_mirrored(workload);
    if (strcmp(framework, "epochs") == 0)
        return prepare_epoch(workload);
    if (strcmp(framework, "apart") == 0 || strcmp(framework, "in-step") == 0)
        return prepare_apart(workload, strcmp(framework, "in-step") == 0);
    if (strcmp(framework, "hvdlab") != 0)
        return prepare_convolutions(workload);
    profiler_set(PROFILER_OPERATIONS);
    Steps *steps = prepare_training(workload);
    run_steps(steps, 1);
    profiler_set(PROFILER_OFF);
    return steps;
}

// The results will say that this is what was timed.
static void take_device(const Workload *workload)
{
    settings()->device = workload->device;
    settings()->precision = workload->precision;
    if (launched()) {
        hvd_init();
        device_use(hvd_local_rank());
    }
    CHECK(device_is_gpu() == (workload->device == DEVICE_GPU));
    CHECK(device_precision() == workload->precision);
}

int runner_main(const char *framework, const Workload *workload)
{
    take_device(workload);
    static Steps *steps; // until the process ends
    steps = prepare(framework, workload);
    run_steps(steps, steps_epoch(steps) ? 1 : WARM_UP_STEPS);
    if (launcher_rank() == 0)
        printf("ready\n");
    fflush(stdout);
    for (Task task; (task = next_task()).steps > 0;) {
        if (strcmp(task.word, "profile") == 0)
            answer_profile(steps, task.steps);
        else if (strcmp(task.word, "peak") == 0)
            answer_peak();
        else if (strcmp(task.word, "parts") == 0)
            answer_parts(steps_epoch(steps));
        else
            answer_run(steps, task.steps);
        fflush(stdout);
    }
    return 0;
}
