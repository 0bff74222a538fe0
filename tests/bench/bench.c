// Times training steps: of the kit, of the same network's convolutions alone, and of other
// frameworks; of the kit on one rank and on several; and the all-reduce beside MPI's own.
//
//     bench [FLAG]... --out FILE          on the CPU: prints tables, writes FILE
//     bench [FLAG]... --gpu --out FILE    on a GPU, likewise
//     bench [--quick] --scaling FOLDER    ranks on the CPU only; writes FOLDER/scaling.dat
//     bench [--quick] --ranks             where ranks on the CPU lose time
//     bench [--quick] --mirrored          ranks beside one process on as many devices
//     bench [FLAG]... --compare           a GPU beside the CPU, else all cores beside one
//     bench [FLAG]... --profile           what a training step consists of
//     bench [FLAG]... --saving FOLDER     what a checkpoint takes there
//     bench [FLAG]... --layers            3x3 convolutions one by one, beside oneDNN's
//     bench --run FRAMEWORK MODEL WIDTH BATCH DEVICE PRECISION
//                                         a runner (runner.h): hvdlab, mirrored,
//                                         convolutions-only, ...
//     bench --run-allreduce               under mpirun: the all-reduce
//
//     --quick             measure for a shorter time
//     --peer PYTHON       with --out: time the frameworks of that Python, too
//     --isa ISA           all as on an older processor: SSE41, AVX2, AVX512_CORE, AVX512_CORE_BF16
//     --precision NAME    all in bf16, or in fp32, as they are without on a CPU; not with --gpu,
//                         which times each, nor with --layers
//     --trainer PROGRAM   with --gpu: time how long it takes to reach an accuracy
//     --workload MODEL:WIDTH:BATCH    with --out, --compare, --profile, --ranks, --saving: train
//                         this instead of the usual, such as wrn:10:512; --out takes several

#include "bench.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/format.h"
#include "run/device.h"

enum { QUICK_ROUNDS = 5, PROFILED_STEPS = 5 };

static const struct {
    Workload workload;
    bool quick;        // also with --quick
    double round_time; // seconds that a runner runs in each round
} workloads[] = {
    {{.model = "wrn", .width = 1, .batch = 64}, true, 0.5},
    {{.model = "wrn", .width = 10, .batch = 32}, true, 1.5},
    {{.model = "lenet", .width = 1, .batch = 128}, false, 0.5},
};

// As it is trained on the device that there is.
static Workload on_device(const Workload *workload)
{
    Workload w = *workload;
    w.device = device_is_gpu() ? DEVICE_GPU : DEVICE_CPU;
    w.precision = device_precision();
    return w;
}

static void bench_workload(cJSON *results, const Workload *workload, const char *python, int rounds,
                           double time)
{
    Workload w = on_device(workload);
    static const char *const peers[] = {"pytorch", "pytorch-channels-last", "keras"};
    Runner runners[MAX_RUNNERS] = {0};
    int count = 0;
    runner_start_hvdlab(&runners[count++], &w, NULL);
    count += runner_start(&runners[count], "convolutions-only", NULL, &w, NULL);
    for (int i = 0; python && i < 3; i++)
        count += runner_start(&runners[count], peers[i], python, &w, NULL);
    print_workload(&w);
    printf("\n");
    time_in_turns(runners, count, rounds, time);
    report_runners(results, &w, runners, count, rounds);
    fflush(stdout);
    for (int i = 0; i < count; i++)
        runner_stop(&runners[i]);
}

// ---- One device beside another.

// Times both and frees them; the measurements stay.
static void time_both(Runner both[2], double round_time)
{
    time_in_turns(both, 2, QUICK_ROUNDS, round_time);
    runner_stop(&both[0]);
    runner_stop(&both[1]);
}

// What one core does, and what all do together.
static void compare_cores(const Workload *w, double round_time)
{
    Runner both[2] = {{0}};
    int cores = device_threads();
    char devices[16];
    snprintf(devices, sizeof devices, "%d", cores);
    const char *environment[] = {"HVDLAB_DEVICES", devices, NULL};
    runner_start_hvdlab(&both[0], w, environment);
    runner_start_hvdlab(&both[1], w, NULL);
    time_both(both, round_time);
    printf("Training a ");
    print_workload(w);
    printf(", one process\n");
    printf("  %-22s %10s\n", "device", "images/s");
    printf("  %s, 1 of %d cores%*s %10.1f\n", device_kind(), cores, cores > 9 ? 4 : 5, "",
           w->batch / median(both[0].seconds, QUICK_ROUNDS));
    printf("  %s, all %d cores%*s %10.1f   %.2f x\n", device_kind(), cores, cores > 9 ? 5 : 6, "",
           w->batch / median(both[1].seconds, QUICK_ROUNDS),
           speed_ratio(&both[1], &both[0], QUICK_ROUNDS));
}

static void print_device(const char *device, const Workload *w, const Runner *r)
{
    char *label = format_text("%s, batch %d, %s", device, w->batch, precision_names[w->precision]);
    printf("  %-34s %10.1f", label, w->batch / median(r->seconds, QUICK_ROUNDS));
    free(label);
}

// The GPU beside all cores, each with a batch that suits it.
static void compare_gpu(const Workload *model, int cpu_batch, int gpu_batch, double round_time)
{
    Workload cpu = *model, gpu = *model;
    cpu.device = DEVICE_CPU;
    cpu.precision = PRECISION_FP32;
    cpu.batch = cpu_batch;
    gpu.device = DEVICE_GPU;
    gpu.precision = device_precision();
    gpu.batch = gpu_batch;
    Runner both[2] = {{0}};
    runner_start_hvdlab(&both[0], &cpu, NULL);
    runner_start_hvdlab(&both[1], &gpu, NULL);
    time_both(both, round_time);
    double faster = speed_ratio(&both[1], &both[0], QUICK_ROUNDS) * gpu_batch / cpu_batch;
    char *cores = format_text("cpu, all %d cores", device_threads());
    printf("Training a ");
    print_model(model);
    printf(", one process\n");
    printf("  %-34s %10s\n", "device", "images/s");
    print_device(cores, &cpu, &both[0]);
    printf("\n");
    print_device("gpu", &gpu, &both[1]);
    printf("   %.2f x\n", faster);
    free(cores);
}

// `workload`: NULL: the usual.
static void compare(bool quick, const Workload *workload)
{
    double round_time = quick ? 0.1 : 1.0;
    Workload w = on_device(workload ? workload : &workloads[0].workload);
    if (!device_is_gpu()) {
        compare_cores(&w, round_time);
        return;
    }
    compare_gpu(&w, w.batch, w.batch, round_time);
    // The lab's own network. A batch of 512 would keep a CPU busy for a minute, and in images/s it
    // is no quicker with it.
    if (!workload && !quick)
        compare_gpu(&(Workload){.model = "wrn", .width = 10}, 32, 512, round_time);
}

// ---- The other modes.

// The usual ones, and what ranks do; or only those that were asked for.
static void bench_cpu(const BenchOptions *o)
{
    int rounds = o->quick ? QUICK_ROUNDS : MAX_ROUNDS, asked = o->workload_count;
    char *where =
        format_text("%d threads, %s", device_threads(), precision_names[device_precision()]);
    Report report = report_open(o->out);
    print_heading(where, rounds);
    free(where);
    for (int i = 0; i < asked; i++)
        bench_workload(report.results, &o->workloads[i], o->python, rounds, o->quick ? 0.2 : 1.5);
    for (size_t i = 0; !asked && i < sizeof workloads / sizeof *workloads; i++)
        if (!o->quick || workloads[i].quick)
            bench_workload(report.results, &workloads[i].workload, o->python, rounds,
                           workloads[i].round_time);
    if (!asked) {
        printf("\n");
        bench_scaling(report.results, rounds, 1.0, NULL);
    }
    for (int ranks = 2; !asked && !o->quick && ranks <= device_threads() && ranks <= 8; ranks *= 2)
        bench_allreduce(report.results, ranks);
    report_save(&report);
}

static void scaling(const char *folder, bool quick)
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

static void profile(const Workload *workload)
{
    Workload w = on_device(workload);
    Runner hvdlab = {0};
    runner_start_hvdlab(&hvdlab, &w, NULL);
    Cost cost[WORK_KINDS];
    workload_cost(&w, cost);
    print_workload(&w);
    printf(", %s on a %s\n", precision_names[w.precision], device_names[w.device]);
    cJSON *unused = cJSON_CreateArray();
    Peak peak = runner_peak(&hvdlab);
    report_profile(unused, &w, &hvdlab, PROFILED_STEPS, cost, peak);
    printf("    roofline: at least so many ms, at %.4g Gflop/s and %.4g GB/s, whichever takes "
           "longer\n",
           1e-9 * peak.flops, 1e-9 * peak.bytes);
    cJSON_Delete(unused);
    runner_stop(&hvdlab);
}

// ---- The command line.

typedef struct {
    BenchOptions bench;
    bool gpu, compare, profile, ranks, mirrored, layers;
    const char *folder; // of --scaling
    const char *saving; // its folder
} Options;

static _Noreturn void usage(void)
{
    die("usage: bench [--quick] [--peer PYTHON] [--isa ISA] [--precision PRECISION] [--gpu] "
        "[--trainer PROGRAM] [--workload MODEL:WIDTH:BATCH]... (--out FILE | --scaling FOLDER | "
        "--compare | "
        "--ranks | --mirrored | --profile | --layers | --saving FOLDER)");
}

static int run_words(char **words)
{
    Workload w = {.model = words[1],
                  .width = atoi(words[2]),
                  .batch = atoi(words[3]),
                  .device = (DeviceKind)find_name(words[4], device_names, DEVICE_GPU + 1),
                  .precision = (Precision)find_name(words[5], precision_names, PRECISION_BF16 + 1)};
    return runner_main(words[0], &w);
}

// The device says whether it can.
static void read_precision(const char *word)
{
    bool bf16 = strcmp(word, "bf16") == 0;
    if (!bf16 && strcmp(word, "fp32") != 0)
        die("--precision is fp32 or bf16, not %s", word);
    settings()->precision = bf16 ? PRECISION_BF16 : PRECISION_FP32;
}

static void add_workload(BenchOptions *b, const char *text)
{
    if (b->workload_count == MAX_WORKLOADS)
        die("--workload: at most %d of them", MAX_WORKLOADS);
    b->workloads[b->workload_count++] = parse_workload(text);
}

static void read_flag(Options *o, int flag)
{
    o->gpu |= flag == 'g';
    o->compare |= flag == 'c';
    o->profile |= flag == 'f';
    o->mirrored |= flag == 'm';
    o->ranks |= flag == 'n';
    o->folder = flag == 's' ? optarg : o->folder;
    o->layers |= flag == 'l';
    o->saving = flag == 'k' ? optarg : o->saving;
    o->bench.quick |= flag == 'q';
    o->bench.python = flag == 'p' ? optarg : o->bench.python;
    o->bench.out = flag == 'o' ? optarg : o->bench.out;
    o->bench.trainer = flag == 't' ? optarg : o->bench.trainer;
    if (flag == 'i')
        limit_instruction_set(optarg);
    if (flag == 'x')
        read_precision(optarg);
    if (flag == 'w')
        add_workload(&o->bench, optarg);
    if (flag == '?')
        usage();
}

static void run(const Options *o)
{
    const BenchOptions *b = &o->bench;
    const Workload *workload = b->workload_count ? &b->workloads[0] : NULL;
    if (o->compare)
        compare(b->quick, workload);
    else if (o->profile)
        profile(workload ? workload : &workloads[0].workload);
    else if (o->gpu)
        bench_gpu(b);
    else if (o->layers)
        bench_layers(b->quick);
    else if (o->saving)
        bench_saving(workload ? workload : &workloads[1].workload, o->saving);
    else {
        settings()->device = DEVICE_CPU;
        if (o->folder)
            scaling(o->folder, b->quick);
        else if (o->mirrored)
            bench_mirrored(b->quick ? QUICK_ROUNDS : MAX_ROUNDS, b->quick ? 0.2 : 1.5);
        else if (o->ranks)
            bench_ranks(workload ? workload : &workloads[0].workload,
                        b->quick ? QUICK_ROUNDS : MAX_ROUNDS, b->quick ? 0.2 : 1.5);
        else
            bench_cpu(b);
    }
}

int main(int argc, char **argv)
{
    static const struct option flags[] = {{"quick", no_argument, NULL, 'q'},
                                          {"peer", required_argument, NULL, 'p'},
                                          {"isa", required_argument, NULL, 'i'},
                                          {"precision", required_argument, NULL, 'x'},
                                          {"out", required_argument, NULL, 'o'},
                                          {"scaling", required_argument, NULL, 's'},
                                          {"layers", no_argument, NULL, 'l'},
                                          {"saving", required_argument, NULL, 'k'},
                                          {"compare", no_argument, NULL, 'c'},
                                          {"profile", no_argument, NULL, 'f'},
                                          {"mirrored", no_argument, NULL, 'm'},
                                          {"ranks", no_argument, NULL, 'n'},
                                          {"gpu", no_argument, NULL, 'g'},
                                          {"trainer", required_argument, NULL, 't'},
                                          {"workload", required_argument, NULL, 'w'},
                                          {"run", no_argument, NULL, 'r'},
                                          {"run-allreduce", no_argument, NULL, 'a'},
                                          {NULL, 0, NULL, 0}};
    Options options = {0};
    for (int flag; (flag = getopt_long(argc, argv, "+", flags, NULL)) != -1;) {
        if (flag == 'r' && argc - optind == 6)
            return run_words(argv + optind);
        if (flag == 'a')
            return allreduce_main();
        read_flag(&options, flag == 'r' ? '?' : flag);
    }
    int modes = !!options.bench.out + !!options.folder + !!options.saving + options.compare +
                options.profile + options.ranks + options.mirrored + options.layers;
    bool own_precision = options.gpu || options.layers;
    if (optind != argc || modes != 1 || (options.gpu && !options.bench.out) ||
        (own_precision && settings()->precision != PRECISION_DEFAULT))
        usage();
    unsetenv("HVDLAB_DEVICES"); // the machine is divided here
    unsetenv("HVD_RANKS_PER_NODE");
    signal(SIGPIPE, SIG_IGN); // a runner that dies is told by its answers
    run(&options);
    return 0;
}
