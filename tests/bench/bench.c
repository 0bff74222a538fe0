// Times training steps: of the kit, of the same network's convolutions alone, and of other
// frameworks; of the kit on one rank and on several; and the all-reduce beside MPI's own.
//
//     bench [FLAG]... --out FILE          on the CPU: prints tables, writes FILE
//     bench [FLAG]... --gpu --out FILE    on a GPU, likewise
//     bench [--quick] --scaling FOLDER    ranks on the CPU only; writes FOLDER/scaling.dat
//     bench [FLAG]... --compare           one device beside another
//     bench [FLAG]... --profile           what a training step consists of
//     bench --serve NAME MODEL WIDTH BATCH DEVICE PRECISION
//                                         a contestant: hvdlab or convolutions-only
//     bench --serve-allreduce             under mpirun: the all-reduce
//
//     --quick             measure for a shorter time
//     --peer PYTHON       with --out: race the frameworks of that Python, too
//     --trainer PROGRAM   with --gpu: time how long it takes to reach an accuracy
//     --subject MODEL:WIDTH:BATCH    with --gpu, --compare or --profile: train this instead of the
//                         usual, such as wrn:10:512; --gpu takes several

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "allreduce.h"
#include "compare.h"
#include "contestants.h"
#include "sys/device.h"
#include "gpu.h"
#include "profile.h"
#include "record.h"
#include "serve.h"
#include "base/util.h"

enum { QUICK_ROUNDS = 5, PROFILED_STEPS = 5 };

static const struct {
    Subject subject;
    bool quick;        // also with --quick
    double round_time; // seconds that a contestant works in each round
} subjects[] = {
    {{"wrn", 1, 64, DEVICE_CPU, PRECISION_FP32}, true, 0.5},
    {{"wrn", 10, 32, DEVICE_CPU, PRECISION_FP32}, true, 1.5},
    {{"lenet", 1, 128, DEVICE_CPU, PRECISION_FP32}, false, 0.5},
};

// What is raced on one device and on several.
static const Subject scaling_subject = {"wrn", 1, 64, DEVICE_CPU, PRECISION_FP32};

static void bench_subject(cJSON *results, const Subject *s, const char *python, int rounds,
                          double time)
{
    static const char *const peers[] = {"pytorch", "pytorch-channels-last", "keras"};
    Contestant contestants[MAX_CONTESTANTS] = {0};
    int count = 0;
    if (!start_contestant(&contestants[count++], "hvdlab", NULL, s, NULL))
        die("the benchmark has nothing to compare with");
    count += start_contestant(&contestants[count], "convolutions-only", NULL, s, NULL);
    for (int i = 0; python && i < 3; i++)
        count += start_contestant(&contestants[count], peers[i], python, s, NULL);
    print_subject(s);
    printf("\n");
    race(contestants, count, rounds, time);
    report_race(results, s, contestants, count, rounds);
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
    const Subject *s = &scaling_subject;
    Contestant contestants[MAX_CONTESTANTS] = {0};
    int cores = device_threads(), ranks[MAX_CONTESTANTS], count = rank_counts(cores, ranks);
    for (int i = 0; i < count; i++)
        if (!start_ranks(&contestants[i], ranks[i], cores, s))
            die("bench: %d ranks cannot be started", ranks[i]);
    Contestant *all_cores = &contestants[count];
    if (!start_contestant(all_cores, "hvdlab", NULL, s, NULL))
        die("bench: hvdlab cannot be started");
    printf("Wide ResNet 16-%d, batch %d per rank, each rank on one of %d cores\n", s->width,
           s->batch, cores);
    printf("  %-22s %10s %10s %10s\n", "", "images/s", "per rank", "efficiency");
    race(contestants, count + 1, rounds, round_time);
    for (int i = 0; i < count; i++) {
        const Contestant *c = &contestants[i];
        double speed = ranks[i] * s->batch / median(c->seconds, rounds);
        double efficiency = speed_ratio(c, &contestants[0], rounds);
        printf("  %2d rank%-15s %10.1f %10.1f %8.1f %%\n", ranks[i], ranks[i] > 1 ? "s" : "", speed,
               speed / ranks[i], 100 * efficiency);
        add_training_step(results, s, c, 1, ranks[i], speed);
        if (data)
            fprintf(data, "%d %.1f %.4f\n", ranks[i], speed, efficiency);
    }
    printf("  %-22s %10.1f\n", "1 process, all cores",
           s->batch / median(all_cores->seconds, rounds));
    for (int i = 0; i <= count; i++)
        contestant_stop(&contestants[i]);
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

// ---- What is run alone, or all together.

static void bench_all(bool quick, const char *python, const char *out)
{
    Record record = record_open(out);
    int rounds = quick ? QUICK_ROUNDS : MAX_ROUNDS;
    printf("Training steps on %d threads. Medians of %d rounds; \"x\" is hvdlab's speed over the "
           "other's in the same round.\n\n",
           device_threads(), rounds);
    printf("  %-22s %10s %9s %8s\n", "", "images/s", "ms", "MiB");
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (!quick || subjects[i].quick)
            bench_subject(record.results, &subjects[i].subject, python, rounds,
                          subjects[i].round_time);
    printf("\n");
    bench_scaling(record.results, rounds, 1.0, NULL);
    for (int ranks = 2; !quick && ranks <= device_threads() && ranks <= 8; ranks *= 2)
        bench_allreduce(record.results, ranks);
    record_save(&record);
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

// On the device that there is, in its own precision.
static void profile_only(Subject s)
{
    s.device = device_is_gpu() ? DEVICE_GPU : DEVICE_CPU;
    s.precision = device_precision();
    Contestant hvdlab = {0};
    if (!start_contestant(&hvdlab, "hvdlab", NULL, &s, NULL))
        die("bench: hvdlab cannot be started");
    Demand demand[WORK_KINDS];
    subject_demand(&s, demand);
    print_subject(&s);
    printf(", %s on a %s\n", precision_names[s.precision], device_names[s.device]);
    cJSON *unused = cJSON_CreateArray();
    profile_step(unused, &s, &hvdlab, PROFILED_STEPS, demand, (Rates){0, 0});
    cJSON_Delete(unused);
    contestant_stop(&hvdlab);
}

// ---- The command line.

typedef struct {
    GpuBench gpu; // --out, --quick, --peer and --subject are not for the GPU alone
    bool on_gpu, compare, profile;
    const char *folder;
} Options;

static _Noreturn void usage(void)
{
    die("usage: bench [--quick] [--peer PYTHON] [--gpu] [--trainer PROGRAM] "
        "[--subject MODEL:WIDTH:BATCH]... (--out FILE | --scaling FOLDER | --compare | --profile)");
}

static int serve_words(char **words)
{
    Subject s = {.model = words[1],
                 .width = atoi(words[2]),
                 .batch = atoi(words[3]),
                 .device = (DeviceKind)find_name(words[4], device_names, DEVICE_GPU + 1),
                 .precision = (Precision)find_name(words[5], precision_names, PRECISION_BF16 + 1)};
    return serve(words[0], &s);
}

static void add_subject(GpuBench *b, const char *text)
{
    if (b->subject_count == MAX_SUBJECTS)
        die("--subject: at most %d of them", MAX_SUBJECTS);
    b->subjects[b->subject_count++] = parse_subject(text);
}

static void read_flag(Options *o, int flag)
{
    o->gpu.quick |= flag == 'q';
    o->on_gpu |= flag == 'g';
    o->compare |= flag == 'c';
    o->profile |= flag == 'f';
    o->gpu.python = flag == 'p' ? optarg : o->gpu.python;
    o->gpu.out = flag == 'o' ? optarg : o->gpu.out;
    o->gpu.trainer = flag == 't' ? optarg : o->gpu.trainer;
    o->folder = flag == 'r' ? optarg : o->folder;
    if (flag == 'u')
        add_subject(&o->gpu, optarg);
    if (flag == '?')
        usage();
}

static void run(const Options *o)
{
    const GpuBench *b = &o->gpu;
    const Subject *subject = b->subject_count ? &b->subjects[0] : NULL;
    if (o->compare)
        compare_devices(b->quick, subject);
    else if (o->profile)
        profile_only(subject ? *subject : subjects[0].subject);
    else if (o->on_gpu)
        bench_gpu(b);
    else {
        settings()->device = DEVICE_CPU;
        if (o->folder)
            scaling_only(o->folder, b->quick);
        else
            bench_all(b->quick, b->python, b->out);
    }
}

int main(int argc, char **argv)
{
    static const struct option flags[] = {{"quick", no_argument, NULL, 'q'},
                                          {"peer", required_argument, NULL, 'p'},
                                          {"out", required_argument, NULL, 'o'},
                                          {"scaling", required_argument, NULL, 'r'},
                                          {"compare", no_argument, NULL, 'c'},
                                          {"profile", no_argument, NULL, 'f'},
                                          {"gpu", no_argument, NULL, 'g'},
                                          {"trainer", required_argument, NULL, 't'},
                                          {"subject", required_argument, NULL, 'u'},
                                          {"serve", no_argument, NULL, 's'},
                                          {"serve-allreduce", no_argument, NULL, 'a'},
                                          {NULL, 0, NULL, 0}};
    Options options = {0};
    for (int flag; (flag = getopt_long(argc, argv, "+", flags, NULL)) != -1;) {
        if (flag == 's' && argc - optind == 6)
            return serve_words(argv + optind);
        if (flag == 'a')
            return allreduce_serve();
        read_flag(&options, flag == 's' ? '?' : flag);
    }
    int modes = !!options.gpu.out + !!options.folder + options.compare + options.profile;
    if (optind != argc || modes != 1 || (options.on_gpu && !options.gpu.out))
        usage();
    unsetenv("HVDLAB_DEVICES"); // the race divides the machine itself
    unsetenv("HVD_RANKS_PER_NODE");
    signal(SIGPIPE, SIG_IGN); // a contestant that dies is told by its answers
    run(&options);
    return 0;
}
