// Times training steps: of the kit, of the same network's convolutions alone, and of other
// frameworks; of the kit on one rank and on several; and the all-reduce beside MPI's own.
//
//     bench [--quick] [--peer PYTHON] --out FILE   prints tables, writes FILE
//     bench [--quick] --scaling FOLDER             ranks only; writes FOLDER/scaling.dat
//     bench [--quick] --compare                    one device beside all of them
//     bench --serve NAME MODEL WIDTH BATCH         a contestant: hvdlab or convolutions-only
//     bench --serve-allreduce                      under mpirun: the all-reduce

#include <cjson/cJSON.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "allreduce.h"
#include "device.h"
#include "onednn.h"
#include "race.h"
#include "serve.h"
#include "util.h"

enum { QUICK_ROUNDS = 5, MAX_CONTESTANTS = 8 };

static const struct {
    Subject subject;
    bool quick;        // also with --quick
    double round_time; // seconds that a contestant works in each round
} subjects[] = {
    {{"wrn", 1, 64}, true, 0.5},
    {{"wrn", 10, 32}, true, 1.5},
    {{"lenet", 1, 128}, false, 0.5},
};

// What is raced on one device and on several.
static const Subject scaling_subject = {"wrn", 1, 64};

// Starts a contestant of one process: hvdlab or convolutions-only, or another framework.
static bool start(Contestant *c, const char *name, const char *python, Subject s,
                  const char *const *environment)
{
    char width[16], batch[16], threads[16];
    snprintf(width, sizeof width, "%d", s.width);
    snprintf(batch, sizeof batch, "%d", s.batch);
    snprintf(threads, sizeof threads, "%d", device_threads());
    if (python) {
        const char *command[] = {
            python, "tests/bench/peer.py", name, s.model, width, batch, threads, NULL};
        return contestant_start(c, name, command, environment);
    }
    const char *command[] = {"/proc/self/exe", "--serve", name, s.model, width, batch, NULL};
    return contestant_start(c, name, command, environment);
}

// This program's file, as mpirun can start it.
static const char *own_path(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length > 0);
    path[length] = '\0';
    return path;
}

// Starts hvdlab on `ranks` ranks, each on one of `devices` devices.
static bool start_ranks(Contestant *c, int ranks, int devices, Subject s)
{
    char width[16], batch[16], count[16], device_count[16];
    snprintf(width, sizeof width, "%d", s.width);
    snprintf(batch, sizeof batch, "%d", s.batch);
    snprintf(count, sizeof count, "%d", ranks);
    snprintf(device_count, sizeof device_count, "%d", devices);
    const char *command[] = {"common/scripts/mpi.sh",
                             "run",
                             count,
                             own_path(),
                             "--serve",
                             "hvdlab",
                             s.model,
                             width,
                             batch,
                             NULL};
    const char *environment[] = {"HVDLAB_DEVICES", device_count, NULL};
    return contestant_start(c, "hvdlab", command, environment);
}

static void add_result(cJSON *results, Subject s, const Contestant *c, int threads, int ranks,
                       double images_per_second)
{
    cJSON *result = cJSON_CreateObject();
    cJSON_AddStringToObject(result, "name", "train_step");
    cJSON_AddStringToObject(result, "framework", c->name);
    cJSON_AddStringToObject(result, "model", s.model);
    cJSON_AddNumberToObject(result, "width", s.width);
    cJSON_AddNumberToObject(result, "batch", s.batch);
    cJSON_AddStringToObject(result, "precision", "fp32");
    cJSON_AddStringToObject(result, "device", device_kind());
    cJSON_AddNumberToObject(result, "threads", threads);
    cJSON_AddNumberToObject(result, "ranks", ranks);
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
            printf("   %5.2f x", speed_ratio(&contestants[0], c, rounds));
        printf("\n");
        add_result(results, s, c, device_threads(), 1, s.batch / step);
    }
}

static void bench_subject(cJSON *results, Subject s, const char *python, int rounds, double time)
{
    static const char *const peers[] = {"pytorch", "pytorch-channels-last", "keras"};
    Contestant contestants[MAX_CONTESTANTS] = {0};
    int count = 0;
    if (!start(&contestants[count++], "hvdlab", NULL, s, NULL))
        die("the benchmark has nothing to compare with");
    count += start(&contestants[count], "convolutions-only", NULL, s, NULL);
    for (int i = 0; python && i < 3; i++)
        count += start(&contestants[count], peers[i], python, s, NULL);
    if (strcmp(s.model, "wrn") == 0)
        printf("Wide ResNet 16-%d, batch %d\n", s.width, s.batch);
    else
        printf("LeNet, batch %d\n", s.batch);
    race(contestants, count, rounds, time);
    report(results, s, contestants, count, rounds);
    fflush(stdout);
    for (int i = 0; i < count; i++)
        contestant_stop(&contestants[i]);
}

// ---- Ranks.

// How many ranks are raced on that many devices: 1, 2, 4, ... and all of them.
static int rank_counts(int devices, int counts[MAX_CONTESTANTS])
{
    int count = 0;
    for (int ranks = 1; ranks < devices && count < MAX_CONTESTANTS - 2; ranks *= 2)
        counts[count++] = ranks;
    counts[count++] = devices;
    return count;
}

// Races 1, 2, ... ranks, each on one core, and one process on all cores. Adds to the results, and
// writes "ranks images/s efficiency" lines to `data`, where it is not NULL.
static void bench_scaling(cJSON *results, int rounds, double round_time, FILE *data)
{
    Subject s = scaling_subject;
    Contestant contestants[MAX_CONTESTANTS] = {0};
    int cores = device_threads(), ranks[MAX_CONTESTANTS], count = rank_counts(cores, ranks);
    for (int i = 0; i < count; i++)
        if (!start_ranks(&contestants[i], ranks[i], cores, s))
            die("bench: %d ranks cannot be started", ranks[i]);
    Contestant *all_cores = &contestants[count];
    if (!start(all_cores, "hvdlab", NULL, s, NULL))
        die("bench: hvdlab cannot be started");
    printf("Wide ResNet 16-%d, batch %d per rank, each rank on one of %d cores\n", s.width, s.batch,
           cores);
    printf("  %-22s %10s %10s %10s\n", "", "images/s", "per rank", "efficiency");
    race(contestants, count + 1, rounds, round_time);
    for (int i = 0; i < count; i++) {
        const Contestant *c = &contestants[i];
        double speed = ranks[i] * s.batch / median(c->seconds, rounds);
        double efficiency = speed_ratio(c, &contestants[0], rounds);
        printf("  %2d rank%-15s %10.1f %10.1f %8.1f %%\n", ranks[i], ranks[i] > 1 ? "s" : "", speed,
               speed / ranks[i], 100 * efficiency);
        add_result(results, s, c, 1, ranks[i], speed);
        if (data)
            fprintf(data, "%d %.1f %.4f\n", ranks[i], speed, efficiency);
    }
    printf("  %-22s %10.1f\n", "1 process, all cores",
           s.batch / median(all_cores->seconds, rounds));
    for (int i = 0; i <= count; i++)
        contestant_stop(&contestants[i]);
}

// What one device does, and what all do together.
static void compare_devices(int rounds, double round_time)
{
    Subject s = scaling_subject;
    Contestant one = {0}, all = {0};
    int cores = device_threads();
    char devices[16];
    snprintf(devices, sizeof devices, "%d", cores);
    const char *environment[] = {"HVDLAB_DEVICES", devices, NULL};
    if (!start(&one, "hvdlab", NULL, s, environment) || !start(&all, "hvdlab", NULL, s, NULL))
        die("bench: hvdlab cannot be started");
    Contestant both[] = {one, all};
    race(both, 2, rounds, round_time);
    printf("Training a Wide ResNet 16-%d, batch %d, one process\n", s.width, s.batch);
    printf("  %-22s %10s\n", "device", "images/s");
    printf("  %s, 1 of %d cores%*s %10.1f\n", device_kind(), cores, cores > 9 ? 4 : 5, "",
           s.batch / median(both[0].seconds, rounds));
    printf("  %s, all %d cores%*s %10.1f   %.2f x\n", device_kind(), cores, cores > 9 ? 5 : 6, "",
           s.batch / median(both[1].seconds, rounds), speed_ratio(&both[1], &both[0], rounds));
    contestant_stop(&both[0]);
    contestant_stop(&both[1]);
}

// ---- The all-reduce.

// What each rank's link must carry for an all-reduce, over the buffer's size (as NVIDIA's
// nccl-tests define bus bandwidth).
static double bus_factor(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static void add_allreduce(cJSON *results, const char *framework, int ranks, size_t bytes,
                          double microseconds)
{
    double gb_per_s = (double)bytes / microseconds / 1e3;
    cJSON *result = cJSON_CreateObject();
    cJSON_AddStringToObject(result, "name", "allreduce");
    cJSON_AddStringToObject(result, "framework", framework);
    cJSON_AddNumberToObject(result, "ranks", ranks);
    cJSON_AddNumberToObject(result, "bytes", (double)bytes);
    cJSON_AddNumberToObject(result, "microseconds", microseconds);
    cJSON_AddNumberToObject(result, "algorithm_gb_per_second", gb_per_s);
    cJSON_AddNumberToObject(result, "bus_gb_per_second", gb_per_s * bus_factor(ranks));
    cJSON_AddItemToArray(results, result);
}

static void bench_allreduce(cJSON *results, int count)
{
    char *command =
        format_text("common/scripts/mpi.sh run %d '%s' --serve-allreduce", count, own_path());
    fflush(stdout);
    FILE *ranks = popen(command, "r");
    free(command);
    if (!ranks)
        die("bench: the all-reduce cannot be started");
    printf("\nAll-reduce of floats over %d ranks: microseconds, and GB/s of the average\n", count);
    printf("  %10s %10s %10s %10s %8s %8s %8s %6s\n", "bytes", "MPI sum", "hvd sum", "hvd avg",
           "avg/MPI", "algbw", "busbw", "wrong");
    size_t bytes, wrong;
    for (double mpi, sum, average;
         fscanf(ranks, "%zu %lf %lf %lf %zu", &bytes, &mpi, &sum, &average, &wrong) == 5;) {
        double bandwidth = (double)bytes / average / 1e3;
        printf("  %10zu %10.1f %10.1f %10.1f %8.2f %8.2f %8.2f %6zu\n", bytes, mpi, sum, average,
               average / mpi, bandwidth, bandwidth * bus_factor(count), wrong);
        add_allreduce(results, "mpi", count, bytes, mpi);
        add_allreduce(results, "hvdlab", count, bytes, average);
    }
    if (pclose(ranks) != 0)
        die("bench: the all-reduce failed");
}

// ---- The machine, the file, the command line.

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

static void bench_all(bool quick, const char *python, const char *out)
{
    FILE *file = fopen(out, "we"); // before the race, lest its figures be lost
    if (!file)
        die("cannot write %s", out);
    cJSON *document = cJSON_CreateObject();
    cJSON_AddItemToObject(document, "machine", machine());
    cJSON *results = cJSON_AddArrayToObject(document, "results");
    int rounds = quick ? QUICK_ROUNDS : MAX_ROUNDS;
    printf("Training steps on %d threads. Medians of %d rounds; \"x\" is hvdlab's speed over the "
           "other's in the same round.\n\n",
           device_threads(), rounds);
    printf("  %-22s %10s %9s %8s\n", "", "images/s", "ms", "MiB");
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (!quick || subjects[i].quick)
            bench_subject(results, subjects[i].subject, python, rounds, subjects[i].round_time);
    printf("\n");
    bench_scaling(results, rounds, 1.0, NULL);
    for (int ranks = 2; !quick && ranks <= device_threads() && ranks <= 8; ranks *= 2)
        bench_allreduce(results, ranks);
    save(document, file, out);
    cJSON_Delete(document);
}

static void scaling_only(const char *folder, bool quick)
{
    char *path = format_text("%s/scaling.dat", folder);
    FILE *data = fopen(path, "we");
    if (!data)
        die("cannot write %s", path);
    cJSON *unused = cJSON_CreateArray();
    bench_scaling(unused, QUICK_ROUNDS, quick ? 0.1 : 1.3, data);
    cJSON_Delete(unused);
    if (fclose(data) != 0)
        die("cannot write %s", path);
    free(path);
}

static _Noreturn void usage(void)
{
    die("usage: bench [--quick] ([--peer PYTHON] --out FILE | --scaling FOLDER | --compare)");
}

int main(int argc, char **argv)
{
    static const struct option flags[] = {
        {"quick", no_argument, NULL, 'q'},           {"peer", required_argument, NULL, 'p'},
        {"out", required_argument, NULL, 'o'},       {"scaling", required_argument, NULL, 'r'},
        {"compare", no_argument, NULL, 'c'},         {"serve", no_argument, NULL, 's'},
        {"serve-allreduce", no_argument, NULL, 'a'}, {NULL, 0, NULL, 0}};
    bool quick = false, compare = false;
    const char *python = NULL, *out = NULL, *folder = NULL;
    for (int flag; (flag = getopt_long(argc, argv, "+", flags, NULL)) != -1;) {
        if (flag == 's' && argc - optind == 4) {
            char **words = argv + optind;
            return serve(words[0], (Subject){words[1], atoi(words[2]), atoi(words[3])});
        }
        if (flag == 'a')
            return allreduce_serve();
        quick |= flag == 'q';
        compare |= flag == 'c';
        python = flag == 'p' ? optarg : python;
        out = flag == 'o' ? optarg : out;
        folder = flag == 'r' ? optarg : folder;
        if (!strchr("qcpor", flag))
            usage();
    }
    if (optind != argc || !!out + !!folder + compare != 1)
        usage();
    unsetenv("HVDLAB_DEVICES"); // the race divides the machine itself
    unsetenv("HVD_RANKS_PER_NODE");
    signal(SIGPIPE, SIG_IGN); // a contestant that dies is told by its answers
    if (compare)
        compare_devices(QUICK_ROUNDS, quick ? 0.1 : 1.0);
    else if (folder)
        scaling_only(folder, quick);
    else
        bench_all(quick, python, out);
    return 0;
}
