// The race on a GPU.
//
// Two floors stand under a step. Its arithmetic takes at least as long as matrix products of as
// many operations; its bytes take at least as long as a copy of as many. Both rates are measured on
// this GPU, and no program for the same graph is much quicker than the larger of the two: the share
// of it that is reached says what there is left to gain. (fp32 may come out above 100 %: Winograd's
// algorithm multiplies less than is counted here.)

#include "gpu.h"

#include <stdio.h>
#include "accuracy.h"
#include "sys/device.h"
#include "profile.h"
#include "rates.h"
#include "record.h"
#include "base/util.h"

static const Subject usual[] = {{.model = "wrn", .width = 10, .batch = 128},
                                {.model = "wrn", .width = 10, .batch = 512}};

// How long the contestants work in a round, and how many rounds there are.
typedef struct {
    const char *python;
    cJSON *results;
    int rounds;
    double round_time;
    Rates rates[PRECISION_BF16 + 1]; // zeros: not measured yet
} Referee;

static void need_gpu(void)
{
#ifndef HVDLAB_CUDA
    die("this was built without CUDA; make info says what is missing");
#else
    if (!device_is_gpu())
        die("no GPU is visible; see make info, nvidia-smi and CUDA_VISIBLE_DEVICES");
#endif
}

static Rates rates_for(Referee *r, Precision precision, Contestant *hvdlab)
{
    if (r->rates[precision].flops <= 0)
        r->rates[precision] = contestant_rates(hvdlab);
    return r->rates[precision];
}

static void report_floors(cJSON *results, const Subject *s, Demand demand, Rates rates, double step)
{
    double arithmetic = demand.flops / rates.flops, bytes = demand.bytes / rates.bytes;
    double floor = floor_seconds(demand, rates);
    printf("    arithmetic: %.4g Gflop at %.4g Tflop/s, at least %.3f ms\n", 1e-9 * demand.flops,
           1e-12 * rates.flops, 1e3 * arithmetic);
    printf("    bytes: %.4g GB at %.4g GB/s, at least %.3f ms\n", 1e-9 * demand.bytes,
           1e-9 * rates.bytes, 1e3 * bytes);
    printf("    the larger, %.3f ms, of the %.3f ms that hvdlab's step took: %.1f %% reached\n\n",
           1e3 * floor, 1e3 * step, 100 * floor / step);
    cJSON *result = add_result(results, "floors", "hvdlab", s);
    cJSON_AddNumberToObject(result, "flops", demand.flops);
    cJSON_AddNumberToObject(result, "bytes", demand.bytes);
    cJSON_AddNumberToObject(result, "matrix_flops_per_second", rates.flops);
    cJSON_AddNumberToObject(result, "copy_bytes_per_second", rates.bytes);
    cJSON_AddNumberToObject(result, "arithmetic_milliseconds", 1e3 * arithmetic);
    cJSON_AddNumberToObject(result, "bytes_milliseconds", 1e3 * bytes);
    cJSON_AddNumberToObject(result, "step_milliseconds", 1e3 * step);
    cJSON_AddNumberToObject(result, "share_reached", floor / step);
}

// Enough steps for a second, so that single ones that are slow do not count for much.
static int profiled_steps(double step)
{
    int steps = (int)(1 / step);
    return steps < 1 ? 1 : steps > 20 ? 20 : steps;
}

static void bench_subject(Referee *r, const Subject *s)
{
    static const char *const peers[] = {"pytorch", "pytorch-compile"};
    Contestant contestants[MAX_CONTESTANTS] = {0};
    int count = 0;
    print_subject(s);
    printf(", %s\n", precision_names[s->precision]);
    if (!start_contestant(&contestants[count++], "hvdlab", NULL, s, NULL))
        return; // the GPU is too small, or too old for the precision: it has said so
    for (int i = 0; r->python && i < 2; i++)
        count += start_contestant(&contestants[count], peers[i], r->python, s, NULL);
    race(contestants, count, r->rounds, r->round_time);
    report_race(r->results, s, contestants, count, r->rounds);
    double step = median(contestants[0].seconds, r->rounds);
    Rates rates = rates_for(r, s->precision, &contestants[0]);
    Demand demand[WORK_KINDS];
    subject_demand(s, demand);
    profile_step(r->results, s, &contestants[0], profiled_steps(step), demand, rates);
    report_floors(r->results, s, total_demand(demand), rates, step);
    for (int i = 0; i < count; i++)
        contestant_stop(&contestants[i]);
}

void bench_gpu(const GpuBench *b)
{
    need_gpu();
    Record record = record_open(b->out);
    Referee r = {.python = b->python,
                 .results = record.results,
                 .rounds = b->quick ? 5 : MAX_ROUNDS,
                 .round_time = b->quick ? 0.2 : 1.0};
    const Subject *subjects = b->subject_count ? b->subjects : usual;
    int count = b->subject_count ? b->subject_count : (int)(sizeof usual / sizeof *usual);
    printf(
        "Training steps on %s. Medians of %d rounds; \"x\" is hvdlab's speed over the other's in "
        "the same round.\n\n",
        gpu_facts().name, r.rounds);
    printf("  %-22s %10s %9s %8s\n", "", "images/s", "ms", "MiB");
    for (int i = 0; i < count; i++)
        for (Precision p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
            Subject s = subjects[i];
            s.device = DEVICE_GPU;
            s.precision = p;
            bench_subject(&r, &s);
        }
    if (b->trainer)
        time_to_accuracy(r.results, b->trainer);
    record_save(&record);
}
