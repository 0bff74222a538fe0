// The benchmark's results: tables on standard output, and JSON.

#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "cpu/onednn.h"
#include "run/device.h"

// ---- Older processors.

static const char *instruction_set; // that --isa names

void limit_instruction_set(const char *isa)
{
    // oneDNN's words for it, which are the same in 2.x and 3.x; PyTorch's own code's; and MKL's.
    static const struct {
        const char *isa, *pytorch, *mkl;
    } known[] = {{"SSE41", "default", "SSE4_2"},
                 {"AVX2", "avx2", "AVX2"},
                 {"AVX512_CORE", "avx512", "AVX512"},
                 {"AVX512_CORE_BF16", "avx512", "AVX512_E3"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(isa, known[i].isa) == 0) {
            setenv("DNNL_MAX_CPU_ISA", isa, 1); // the kit's own code, too, and older oneDNNs
            setenv("ONEDNN_MAX_CPU_ISA", isa, 1);
            setenv("ATEN_CPU_CAPABILITY", known[i].pytorch, 1);
            setenv("MKL_ENABLE_INSTRUCTIONS", known[i].mkl, 1);
            instruction_set = isa;
            return;
        }
    die("the instruction set is SSE41, AVX2, AVX512_CORE or AVX512_CORE_BF16, not %s", isa);
}

// ---- The file.

static void add_gpu(cJSON *machine)
{
    GpuFacts facts = gpu_facts();
    if (!*facts.name)
        return;
    cJSON_AddStringToObject(machine, "gpu", facts.name);
    cJSON_AddStringToObject(machine, "driver", facts.driver);
    cJSON_AddStringToObject(machine, "cuda", facts.cuda);
    cJSON_AddStringToObject(machine, "cudnn", facts.cudnn);
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
    add_gpu(machine);
    free(version);
    return machine;
}

Report report_open(const char *path)
{
    need_own_file(path, "\"onednn\":");
    Report record = {.path = path, .file = fopen(path, "we")};
    if (!record.file)
        die("cannot write %s", path);
    record.document = cJSON_CreateObject();
    cJSON_AddItemToObject(record.document, "machine", machine());
    record.results = cJSON_AddArrayToObject(record.document, "results");
    return record;
}

void report_save(Report *record)
{
    char *text = cJSON_Print(record->document);
    if (fprintf(record->file, "%s\n", text) < 0 || fclose(record->file) != 0)
        die("cannot write %s", record->path);
    free(text);
    cJSON_Delete(record->document);
    printf("\nWritten to %s.\n", record->path);
}

cJSON *add_result(cJSON *results, const char *name, const char *framework, const Workload *workload)
{
    cJSON *result = cJSON_CreateObject();
    cJSON_AddStringToObject(result, "name", name);
    cJSON_AddStringToObject(result, "framework", framework);
    cJSON_AddStringToObject(result, "model", workload->model);
    cJSON_AddNumberToObject(result, "width", workload->width);
    cJSON_AddNumberToObject(result, "batch", workload->batch);
    cJSON_AddStringToObject(result, "precision", precision_names[workload->precision]);
    cJSON_AddStringToObject(result, "device", device_names[workload->device]);
    cJSON_AddItemToArray(results, result);
    return result;
}

double add_training_step(cJSON *results, const Workload *workload, const Runner *runner,
                         int threads, int ranks, int rounds)
{
    double images_per_second = ranks * workload->batch / median(runner->seconds, rounds);
    cJSON *result = add_result(results, "train_step", runner->name, workload);
    cJSON_AddNumberToObject(result, "threads", threads);
    cJSON_AddNumberToObject(result, "ranks", ranks);
    cJSON_AddNumberToObject(result, "images_per_second", images_per_second);
    cJSON_AddNumberToObject(result, "spread", spread(runner->seconds, rounds));
    cJSON_AddNumberToObject(result, "peak_rss_mib", runner->peak_rss_mib);
    if (instruction_set)
        cJSON_AddStringToObject(result, "isa", instruction_set);
    return images_per_second;
}

// ---- Tables.

void print_heading(const char *where, int rounds)
{
    printf(
        "Training steps on %s. Medians of %d rounds; \"x\" is hvdlab's speed over the other's in "
        "the same round. The spread is the slowest round's time less the fastest's, over the "
        "median: above 10 %% the machine was busy with something else.\n\n",
        where, rounds);
    printf("  %-22s %10s %9s %8s %8s\n", "", "images/s", "ms", "spread", "MiB");
}

void report_runners(cJSON *results, const Workload *w, const Runner *runners, int count, int rounds)
{
    for (int i = 0; i < count; i++) {
        const Runner *r = &runners[i];
        double speed = add_training_step(results, w, r, device_threads(), 1, rounds);
        printf("  %-22s %10.1f %9.1f %6.0f %% %8.0f", r->name, speed, 1e3 * w->batch / speed,
               100 * spread(r->seconds, rounds), r->peak_rss_mib);
        if (i > 0)
            printf("   %5.2f x", speed_ratio(&runners[0], r, rounds));
        printf("\n");
    }
}

static void add_row(cJSON *results, const Workload *workload, int kind, Timing timing, Cost cost)
{
    cJSON *row = add_result(results, "kind_of_work", "hvdlab", workload);
    cJSON_AddStringToObject(row, "kind", work_name(kind));
    cJSON_AddNumberToObject(row, "calls", timing.calls);
    cJSON_AddNumberToObject(row, "milliseconds", 1e3 * timing.seconds);
    cJSON_AddNumberToObject(row, "gflop", 1e-9 * cost.flops);
    cJSON_AddNumberToObject(row, "megabytes", 1e-6 * cost.bytes);
}

// A roofline of 0: not known.
static void print_row(const char *name, Timing timing, double share, Cost cost, double roofline)
{
    printf("    %-22s %6.0f %10.3f %6.1f %% %12.3f %12.3f", name, timing.calls,
           1e3 * timing.seconds, 100 * share, 1e-9 * cost.flops, 1e-6 * cost.bytes);
    if (roofline > 0)
        printf(" %10.3f", 1e3 * roofline);
    printf("\n");
}

void report_profile(cJSON *results, const Workload *workload, Runner *hvdlab, int steps,
                    const Cost cost[WORK_KINDS], Peak peak)
{
    Timing timings[WORK_KINDS], all = {0, 0};
    runner_profile(hvdlab, steps, timings);
    for (int kind = 0; kind < WORK_KINDS; kind++) {
        all.calls += timings[kind].calls;
        all.seconds += timings[kind].seconds;
    }
    printf("    %-22s %6s %10s %8s %12s %12s%s\n", "in a step of hvdlab's", "calls", "ms", "share",
           "Gflop", "MB", peak.flops > 0 ? "   roofline" : "");
    double sum = 0;
    for (int kind = 0; kind < WORK_KINDS; kind++) {
        if (timings[kind].calls <= 0)
            continue;
        double roofline = peak.flops > 0 ? roofline_seconds(cost[kind], peak) : 0;
        print_row(work_name(kind), timings[kind], timings[kind].seconds / all.seconds, cost[kind],
                  roofline);
        add_row(results, workload, kind, timings[kind], cost[kind]);
        sum += roofline;
    }
    print_row("all of these", all, 1, total_cost(cost), sum);
}
