// Training steps on a GPU, what they consist of, and how near they come to the roofline: the share
// of it that is reached says what there is left to gain. (fp32 may come out above 100 %: Winograd's
// algorithm multiplies less than is counted.) And the time in which whole trainings reach an
// accuracy.

#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "run/device.h"
#ifdef HVDLAB_CUDA
#include "cuda/kernels.h"
#endif

static const Workload usual[] = {{.model = "wrn", .width = 10, .batch = 128},
                                 {.model = "wrn", .width = 10, .batch = 512}};

// What is the same for all workloads.
typedef struct {
    const char *python;
    cJSON *results;
    int rounds;
    double round_time;             // seconds that a runner runs in each round
    Peak peak[PRECISION_BF16 + 1]; // zeros: not measured yet
} Series;

// ---- Steps.

static void need_gpu(void)
{
#ifndef HVDLAB_CUDA
    die("this was built without CUDA; make info says what is missing");
#else
    if (!device_is_gpu())
        die("no GPU is visible; see make info, nvidia-smi and CUDA_VISIBLE_DEVICES");
    int made_for = kernels_made_for();
    if (made_for < 80)
        die("the kernels were compiled for GPUs of capability %d.%d, where bfloat16 is emulated: a "
            "benchmark would "
            "say nothing; build again on this machine, or with CUDA_ARCH=90, say",
            made_for / 10, made_for % 10);
#endif
}

static Peak peak_for(Series *series, Precision precision, Runner *hvdlab)
{
    if (series->peak[precision].flops <= 0)
        series->peak[precision] = runner_peak(hvdlab);
    return series->peak[precision];
}

static void report_roofline(cJSON *results, const Workload *w, Cost cost, Peak peak, double step)
{
    double arithmetic = cost.flops / peak.flops, bytes = cost.bytes / peak.bytes;
    double roofline = roofline_seconds(cost, peak);
    printf("    arithmetic: %.4g Gflop at %.4g Tflop/s, at least %.3f ms\n", 1e-9 * cost.flops,
           1e-12 * peak.flops, 1e3 * arithmetic);
    printf("    bytes: %.4g GB at %.4g GB/s, at least %.3f ms\n", 1e-9 * cost.bytes,
           1e-9 * peak.bytes, 1e3 * bytes);
    printf("    the larger, %.3f ms, of the %.3f ms that hvdlab's step took: %.1f %% reached\n\n",
           1e3 * roofline, 1e3 * step, 100 * roofline / step);
    cJSON *result = add_result(results, "roofline", "hvdlab", w);
    cJSON_AddNumberToObject(result, "flops", cost.flops);
    cJSON_AddNumberToObject(result, "bytes", cost.bytes);
    cJSON_AddNumberToObject(result, "matrix_flops_per_second", peak.flops);
    cJSON_AddNumberToObject(result, "copy_bytes_per_second", peak.bytes);
    cJSON_AddNumberToObject(result, "arithmetic_milliseconds", 1e3 * arithmetic);
    cJSON_AddNumberToObject(result, "bytes_milliseconds", 1e3 * bytes);
    cJSON_AddNumberToObject(result, "step_milliseconds", 1e3 * step);
    cJSON_AddNumberToObject(result, "share_reached", roofline / step);
}

// Enough steps for a second, so that single ones that are slow do not count for much.
static int profiled_steps(double step)
{
    int steps = (int)(1 / step);
    return steps < 1 ? 1 : steps > 20 ? 20 : steps;
}

static void bench_workload(Series *series, const Workload *w)
{
    static const char *const peers[] = {"pytorch", "pytorch-compile"};
    Runner runners[MAX_RUNNERS] = {0};
    int count = 0;
    print_workload(w);
    printf(", %s\n", precision_names[w->precision]);
    if (!runner_start(&runners[count++], "hvdlab", NULL, w, NULL))
        return; // the GPU is too small, or too old for the precision: it has said so
    for (int i = 0; series->python && i < 2; i++)
        count += runner_start(&runners[count], peers[i], series->python, w, NULL);
    time_in_turns(runners, count, series->rounds, series->round_time);
    report_runners(series->results, w, runners, count, series->rounds);
    double step = median(runners[0].seconds, series->rounds);
    Peak peak = peak_for(series, w->precision, &runners[0]);
    Cost cost[WORK_KINDS];
    workload_cost(w, cost);
    report_profile(series->results, w, &runners[0], profiled_steps(step), cost, peak);
    report_roofline(series->results, w, total_cost(cost), peak, step);
    for (int i = 0; i < count; i++)
        runner_stop(&runners[i]);
}

// ---- Time to an accuracy: from the start of the trainer's process until it has stopped at the
// accuracy that it was to reach, as the lab has it but for batches of 512. HVDLAB_FLAGS are for it.

enum { BATCH = 512 };
#define TARGET 0.85

// What the trainer's lines tell.
typedef struct {
    double seconds;     // from its start to the end of its last epoch
    double first_epoch; // the first one's seconds
    double accuracy;    // of the last validation
    int epochs;
    bool reached;
} Training;

static void read_line(Training *t, const char *line, double begin)
{
    const char *accuracy = strstr(line, " - val_accuracy: ");
    if (accuracy && sscanf(accuracy, " - val_accuracy: %lf", &t->accuracy) == 1) {
        t->epochs++;
        t->seconds = seconds_now() - begin;
    }
    sscanf(line, "Cumulative training time after epoch 1: %lf", &t->first_epoch);
    t->reached |= strncmp(line, "Early stopping after", strlen("Early stopping after")) == 0;
}

// False where it can't be run; standard error says why.
static bool train(const char *trainer, Precision precision, Training *t)
{
    char *command =
        format_text("'%s' --device gpu --precision %s --batch-size %d --val-batch-size %d "
                    "--epochs 40 --target-accuracy %g --patience 2",
                    trainer, precision_names[precision], BATCH, BATCH, TARGET);
    fflush(stdout);
    double begin = seconds_now();
    FILE *lines = popen(command, "r");
    free(command);
    char line[512];
    while (lines && fgets(line, sizeof line, lines))
        read_line(t, line, begin);
    return lines && pclose(lines) == 0 && t->epochs > 0;
}

static void report_training(cJSON *results, const Workload *w, const Training *t)
{
    printf("  %-10s %9.2f %7d %12.2f %12.4f%s\n", precision_names[w->precision], t->seconds,
           t->epochs, t->first_epoch, t->accuracy, t->reached ? "" : "   not reached");
    cJSON *result = add_result(results, "time_to_accuracy", "hvdlab", w);
    cJSON_AddNumberToObject(result, "target_accuracy", TARGET);
    cJSON_AddBoolToObject(result, "reached", t->reached);
    cJSON_AddNumberToObject(result, "seconds", t->seconds);
    cJSON_AddNumberToObject(result, "epochs", t->epochs);
    cJSON_AddNumberToObject(result, "first_epoch_seconds", t->first_epoch);
    cJSON_AddNumberToObject(result, "val_accuracy", t->accuracy);
    if (getenv("HVDLAB_FLAGS"))
        cJSON_AddStringToObject(result, "flags", getenv("HVDLAB_FLAGS"));
}

static void time_to_accuracy(cJSON *results, const char *trainer)
{
    printf(
        "Time to a validation accuracy above %g, twice in a row, from the start of %s; batch %d\n",
        TARGET, trainer, BATCH);
    printf("  %-10s %9s %7s %12s %12s\n", "", "seconds", "epochs", "first epoch", "val_accuracy");
    for (Precision p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        Workload w = {"wrn", 10, BATCH, DEVICE_GPU, p};
        Training training = {0};
        if (train(trainer, p, &training))
            report_training(results, &w, &training);
        else
            printf("  %-10s is left out: the trainer failed\n", precision_names[p]);
    }
}

// ---- All of it.

void bench_gpu(const BenchOptions *o)
{
    need_gpu();
    Report report = report_open(o->out);
    Series series = {.python = o->python,
                     .results = report.results,
                     .rounds = o->quick ? 5 : MAX_ROUNDS,
                     .round_time = o->quick ? 0.2 : 1.0};
    const Workload *workloads = o->workload_count ? o->workloads : usual;
    int count = o->workload_count ? o->workload_count : (int)(sizeof usual / sizeof *usual);
    print_heading(gpu_facts().name, series.rounds);
    for (int i = 0; i < count; i++)
        for (Precision p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
            Workload w = workloads[i];
            w.device = DEVICE_GPU;
            w.precision = p;
            bench_workload(&series, &w);
        }
    if (o->trainer)
        time_to_accuracy(series.results, o->trainer);
    report_save(&report);
}
