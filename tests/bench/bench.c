// Times training steps: of the kit, of the same network's convolutions alone, and of other
// frameworks. Every contestant is a process of its own that speaks the line protocol of peer.py, so
// that none disturbs another and each one's memory is its own; they take turns, round after round,
// so that a change of the machine's speed strikes all of them.
//
//     bench [--quick] [--peer PYTHON] --out FILE   prints a table, writes FILE
//     bench --serve NAME MODEL WIDTH BATCH         a contestant: hvdlab or convolutions-only

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "device.h"
#include "onednn.h"
#include "util.h"
#include "work.h"

#define MAX_ROUNDS      9
#define WARM_UP_STEPS   3
#define MAX_CONTESTANTS 5

typedef struct {
    const char *name; // as bench.json calls the framework
    pid_t pid;
    FILE *to, *from;
    double seconds[MAX_ROUNDS]; // per step
    double peak_rss_mib;
} Contestant;

static const struct {
    Subject subject;
    bool quick;        // also with --quick
    double round_time; // seconds that a contestant works in each round
} subjects[] = {
    {{"wrn", 1, 64}, true, 0.5},
    {{"wrn", 10, 32}, true, 1.5},
    {{"lenet", 1, 128}, false, 0.5},
};

// The contestant's side.

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

static int serve(char **words)
{
    Subject subject = {words[1], atoi(words[2]), atoi(words[3])};
    bool whole = strcmp(words[0], "hvdlab") == 0;
    Work *work = whole ? training_step(subject) : convolutions_only(subject);
    for (int i = 0; i < WARM_UP_STEPS; i++)
        work_run(work);
    printf("ready\n");
    fflush(stdout);
    for (int steps; scanf(" run %d", &steps) == 1;) {
        double begin = seconds_now();
        for (int i = 0; i < steps; i++)
            work_run(work);
        printf("%.6f %.0f\n", seconds_now() - begin, peak_rss_mib());
        fflush(stdout);
    }
    return 0;
}

// The referee's side.

static void exec_contestant(const char *name, const char *python, Subject s)
{
    char width[16], batch[16], threads[16];
    snprintf(width, sizeof width, "%d", s.width);
    snprintf(batch, sizeof batch, "%d", s.batch);
    snprintf(threads, sizeof threads, "%d", device_threads());
    if (python)
        execlp(python, python, "tests/bench/peer.py", name, s.model, width, batch, threads, NULL);
    else
        execl("/proc/self/exe", "bench", "--serve", name, s.model, width, batch, NULL);
    die("cannot start %s", python ? python : "/proc/self/exe");
}

// Starts a contestant; false if it has nothing to run with.
static bool start(Contestant *c, const char *name, const char *python, Subject subject)
{
    int in[2], out[2];
    // Closed on exec: a contestant must not hold the ends of an earlier one's pipes open.
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    c->name = name;
    fflush(stdout);
    c->pid = fork();
    CHECK(c->pid >= 0);
    if (c->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        exec_contestant(name, python, subject);
    }
    close(in[0]);
    close(out[1]);
    c->to = fdopen(in[1], "w");
    c->from = fdopen(out[0], "r");
    char line[256] = "";
    if (fgets(line, sizeof line, c->from) && strcmp(line, "ready\n") == 0)
        return true;
    line[strcspn(line, "\n")] = '\0';
    printf("  %s is left out: %s\n", name, *line ? line : "it did not start");
    fclose(c->to);
    fclose(c->from);
    waitpid(c->pid, NULL, 0);
    return false;
}

static void stop(Contestant *c)
{
    fclose(c->to); // the end of its input ends it
    fclose(c->from);
    waitpid(c->pid, NULL, 0);
}

// Seconds for that many steps.
static double take_turn(Contestant *c, int steps)
{
    double seconds = 0;
    fprintf(c->to, "run %d\n", steps);
    fflush(c->to);
    if (fscanf(c->from, "%lf %lf", &seconds, &c->peak_rss_mib) != 2)
        die("bench: %s stopped in the middle", c->name);
    return seconds;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int count)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_doubles);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static void race(Contestant *contestants, int count, int rounds, double round_time)
{
    int steps[MAX_CONTESTANTS];
    for (int i = 0; i < count; i++) {
        double seconds = take_turn(&contestants[i], 1);
        steps[i] = seconds < round_time ? (int)(round_time / seconds) : 1;
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++)
            contestants[i].seconds[round] = take_turn(&contestants[i], steps[i]) / steps[i];
}

// The median over the rounds of how many times faster `a` was than `b` in the same round.
static double ratio(const Contestant *a, const Contestant *b, int rounds)
{
    double ratios[MAX_ROUNDS];
    for (int round = 0; round < rounds; round++)
        ratios[round] = b->seconds[round] / a->seconds[round];
    return median(ratios, rounds);
}

static void add_result(cJSON *results, Subject s, const Contestant *c, double images_per_second)
{
    cJSON *result = cJSON_CreateObject();
    cJSON_AddStringToObject(result, "name", "train_step");
    cJSON_AddStringToObject(result, "framework", c->name);
    cJSON_AddStringToObject(result, "model", s.model);
    cJSON_AddNumberToObject(result, "width", s.width);
    cJSON_AddNumberToObject(result, "batch", s.batch);
    cJSON_AddStringToObject(result, "precision", "fp32");
    cJSON_AddStringToObject(result, "device", device_kind());
    cJSON_AddNumberToObject(result, "threads", device_threads());
    cJSON_AddNumberToObject(result, "ranks", 1);
    cJSON_AddNumberToObject(result, "images_per_second", images_per_second);
    cJSON_AddNumberToObject(result, "peak_rss_mib", c->peak_rss_mib);
    cJSON_AddItemToArray(results, result);
}

static void report(cJSON *results, Subject s, const Contestant *contestants, int count, int rounds)
{
    for (int i = 0; i < count; i++) {
        const Contestant *c = &contestants[i];
        double step = median(c->seconds, rounds);
        printf("  %-22s %10.1f %9.1f %8.0f", c->name, s.batch / step, 1e3 * step, c->peak_rss_mib);
        if (i > 0)
            printf("   %5.2f x", ratio(&contestants[0], c, rounds));
        printf("\n");
        add_result(results, s, c, s.batch / step);
    }
}

static void bench_subject(cJSON *results, Subject s, const char *python, int rounds, double time)
{
    static const char *const peers[] = {"pytorch", "pytorch-channels-last", "keras"};
    Contestant contestants[MAX_CONTESTANTS] = {0};
    int count = 0;
    if (!start(&contestants[count++], "hvdlab", NULL, s))
        die("the benchmark has nothing to compare with");
    count += start(&contestants[count], "convolutions-only", NULL, s);
    for (int i = 0; python && i < 3; i++)
        count += start(&contestants[count], peers[i], python, s);
    if (strcmp(s.model, "wrn") == 0)
        printf("Wide ResNet 16-%d, batch %d\n", s.width, s.batch);
    else
        printf("LeNet, batch %d\n", s.batch);
    race(contestants, count, rounds, time);
    report(results, s, contestants, count, rounds);
    fflush(stdout);
    for (int i = 0; i < count; i++)
        stop(&contestants[i]);
}

static cJSON *machine(void)
{
    cJSON *machine = cJSON_CreateObject();
    char line[256], model[256] = "unknown";
    FILE *cpuinfo = fopen("/proc/cpuinfo", "r");
    while (cpuinfo && fgets(line, sizeof line, cpuinfo))
        if (sscanf(line, "model name : %255[^\n]", model) == 1)
            break;
    if (cpuinfo)
        fclose(cpuinfo);
    const dnnl_version_t *v = dnnl_version();
    char *version = format_text("%d.%d.%d", v->major, v->minor, v->patch);
    cJSON_AddStringToObject(machine, "cpu", model);
    cJSON_AddNumberToObject(machine, "cores", device_threads());
    cJSON_AddStringToObject(machine, "onednn", version);
    cJSON_AddStringToObject(machine, "vectors",
                            onednn_has_avx512() ? "avx512" : (onednn_has_avx2() ? "avx2" : "sse"));
    free(version);
    return machine;
}

static void save(const cJSON *document, FILE *file, const char *path)
{
    char *text = cJSON_Print(document);
    if (fprintf(file, "%s\n", text) < 0 || fclose(file) != 0)
        die("cannot write %s", path);
    free(text);
    printf("\nWritten to %s.\n", path);
}

int main(int argc, char **argv)
{
    static const struct option flags[] = {{"quick", no_argument, NULL, 'q'},
                                          {"peer", required_argument, NULL, 'p'},
                                          {"out", required_argument, NULL, 'o'},
                                          {"serve", no_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    bool quick = false;
    const char *python = NULL, *out = NULL;
    for (int flag; (flag = getopt_long(argc, argv, "+", flags, NULL)) != -1;) {
        if (flag == 'q')
            quick = true;
        else if (flag == 'p')
            python = optarg;
        else if (flag == 'o')
            out = optarg;
        else if (flag == 's' && argc - optind == 4)
            return serve(argv + optind);
        else
            die("usage: bench [--quick] [--peer PYTHON] --out FILE");
    }
    if (optind < argc || !out)
        die("usage: bench [--quick] [--peer PYTHON] --out FILE");
    FILE *file = fopen(out, "we"); // before the race, lest its figures be lost
    if (!file)
        die("cannot write %s", out);
    signal(SIGPIPE, SIG_IGN); // a contestant that dies is told by its answers

    cJSON *document = cJSON_CreateObject();
    cJSON_AddItemToObject(document, "machine", machine());
    cJSON *results = cJSON_AddArrayToObject(document, "results");
    int rounds = quick ? 5 : MAX_ROUNDS;
    printf("Training steps on %d threads. Medians of %d rounds; \"x\" is hvdlab's speed over the "
           "other's in the same round.\n\n",
           device_threads(), rounds);
    printf("  %-22s %10s %9s %8s\n", "", "images/s", "ms", "MiB");
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (!quick || subjects[i].quick)
            bench_subject(results, subjects[i].subject, python, rounds, subjects[i].round_time);
    save(document, file, out);
    cJSON_Delete(document);
    return 0;
}
