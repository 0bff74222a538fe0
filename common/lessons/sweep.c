// Tests and times an all-reduce on arrays of many sizes. The sweep's own messages use PMPI, so that
// traces show only the all-reduce's calls.

#include "lessons/sweep.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <hwloc.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "backend/backend.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/launcher.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/setting.h"
#include "base/format.h"
#include "comm/agreement.h"
#include "comm/transport.h"
#include "comm/hierarchical.h"
#include "lessons/hooks.h"
#include "observe/span.h"
#include "run/args.h"
#include "run/device.h"
#include "observe/trace.h"
#include "comm/world.h"

void (*sweep_array)(const void *array, size_t before);

// The number of repetitions of a size: until TIME seconds have passed, within these limits.
#define TIME 0.2
enum { MIN_REPEATS = 3, MAX_REPEATS = 101 };

enum { GUARDS = 64 }; // floats before and after the array; those after it must not change
enum { SAMPLES = 8 }; // wrong sums that the trace shows

// ---- Values.

// A value between 1 and 2, or -2 and -1: a missing or doubled value changes the sum. No two trials,
// ranks or indices share a value, so that a leftover is not taken for a result.
float sweep_value(int trial, int rank, size_t place)
{
    Rng rng = {(uint64_t)trial << 48 ^ (uint64_t)rank << 32 ^ place};
    uint64_t bits = rng_next(&rng);
    float magnitude = 1 + (float)(bits >> 41) / (float)(1 << 23);
    return bits & 1 ? magnitude : -magnitude;
}

static void fill(Sweep *sweep, size_t count)
{
    for (size_t i = 0; i < count + GUARDS; i++)
        sweep->values[i] = sweep_value(sweep->trials, world_rank(), i);
}

static bool is_sum(const Sweep *sweep, size_t i)
{
    double sum = 0, magnitudes = 0;
    for (int rank = 0; rank < world_size(); rank++) {
        double value = (double)sweep_value(sweep->trials, rank, i);
        sum += value;
        magnitudes += fabs(value);
    }
    double error = fabs((double)sweep->values[i] - sum);
    return error <= world_size() * (double)FLT_EPSILON * magnitudes; // not where it is no number
}

static size_t count_wrong_sums(const Sweep *sweep, size_t count)
{
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += !is_sum(sweep, i);
    return wrong;
}

// Beyond the array's end.
static size_t count_changed(const Sweep *sweep, size_t count)
{
    size_t changed = 0;
    for (size_t i = count; i < count + GUARDS; i++)
        changed += sweep->values[i] != sweep_value(sweep->trials, world_rank(), i);
    return changed;
}

// "3:1.5 8:-0.25", some of the wrong sums with their indices, the first one among them; the caller
// frees it.
static char *wrong_samples(const Sweep *sweep, size_t count, size_t wrong)
{
    char *text = format_text("%s", "");
    for (size_t i = 0, found = 0, taken = 0; i < count && taken < SAMPLES; i++) {
        if (is_sum(sweep, i))
            continue;
        if (found++ < taken * wrong / SAMPLES)
            continue;
        char number[32];
        print_number(number, sizeof number, "%.9g", (double)sweep->values[i]);
        text_add(&text, "%s%zu:%s", taken++ ? " " : "", i, number);
    }
    return text;
}

// Copies to and from the all-reduce's memory.

static void hand_over(const Sweep *sweep, size_t count)
{
    Device *device = sweep->gpu_values ? device_current() : NULL;
    if (device)
        backend_of(device)->write(device, sweep->gpu_values, sweep->values,
                                  (count + GUARDS) * sizeof *sweep->values);
}

static void take_back(const Sweep *sweep, size_t count)
{
    Device *device = sweep->gpu_values ? device_current() : NULL;
    if (device)
        backend_of(device)->read(device, sweep->values, sweep->gpu_values,
                                 (count + GUARDS) * sizeof *sweep->values);
}

// ---- Ranks that keep step.

// A file for the results, which are printed, too; "": none.
static const char *results_file(void)
{
    const char *path = setting_text(HVD_SWEEP);
    return path ? path : "";
}

// A barrier of all ranks before a size, and after each call; it makes `numbers` the maximum over
// all ranks.
static void meet(const Sweep *sweep, size_t size, double *numbers, int count)
{
    agree(
        &(Collective){
            .name = "sweep_allreduce",
            .channel = "trials",
            .terms = {count_term(size), text_term("sweep", "", sweep->name, NULL),
                      number_term("want", "at most ", (int64_t)sweep->largest, " values"),
                      text_term("call", "",
                                sweep->allreduce ? "a function of the program's" : "MPI_Allreduce",
                                NULL),
                      text_term("find", "HVD_SWEEP=", results_file(), PASS_ON(HVD_SWEEP))}},
        world_comm(WORLD_VALUES));
    PMPI_Allreduce(MPI_IN_PLACE, numbers, count, MPI_DOUBLE, MPI_MAX, world_comm(WORLD_AGREEMENT));
    agreed_call_ends();
}

static void call(const Sweep *sweep, size_t count)
{
    if (sweep->allreduce) {
        float *values = sweep->gpu_values ? sweep->gpu_values : sweep->values;
        sweep->allreduce(values, count, sweep->comm);
        return;
    }
    span_begin_call(&(SpanCall){.name = "MPI_Allreduce",
                                .count = (int64_t)count,
                                .peer = -1,
                                .bytes = (int64_t)(count * sizeof(float)),
                                .partner = -1});
    PMPI_Allreduce(MPI_IN_PLACE, sweep->values, hvd_mpi_count(count), MPI_FLOAT, MPI_SUM,
                   sweep->comm);
    span_end();
}

// ---- One size.

static size_t try_once(Sweep *sweep, size_t count)
{
    sweep->trials++;
    fill(sweep, count);
    hand_over(sweep, count);
    meet(sweep, count, NULL, 0);
    trace("sweep_begin", TEXT("name", sweep->name), NUMBER("count", count));
    call(sweep, count);
    take_back(sweep, count);
    size_t wrong = count_wrong_sums(sweep, count), behind = count_changed(sweep, count);
    if (trace_on()) {
        char bits[17], *samples = wrong_samples(sweep, count, wrong);
        snprintf(bits, sizeof bits, "%016" PRIx64,
                 hash_bytes(FNV_START, sweep->values, count * sizeof *sweep->values));
        trace("sweep_end", TEXT("name", sweep->name), NUMBER("count", count),
              NUMBER("wrong", wrong + behind), NUMBER("behind", behind), TEXT("samples", samples),
              TEXT("bits", bits));
        free(samples);
    }
    double most = (double)(wrong + behind);
    meet(sweep, count, &most, 1);
    return (size_t)most;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median time of several calls, each that of the slowest rank. With --pace there is a pause
// before each, as a training has. The values are zeros: repeated sums must stay finite.
static double time_calls(Sweep *sweep, size_t count)
{
    double seconds[MAX_REPEATS], since_begin = 0, begin = seconds_now();
    for (size_t i = 0; i < count; i++)
        sweep->values[i] = 0;
    hand_over(sweep, count);
    int repeats = 0;
    while (repeats < MIN_REPEATS || (repeats < MAX_REPEATS && since_begin < TIME)) {
        sleep_seconds((double)settings()->pace / 1000);
        PMPI_Barrier(world_comm(WORLD_AGREEMENT));
        double before = seconds_now();
        call(sweep, count);
        double now = seconds_now();
        double of_ranks[] = {now - before, trace_on() ? INFINITY : now - begin};
        meet(sweep, count, of_ranks, 2);
        seconds[repeats++] = of_ranks[0];
        since_begin = of_ranks[1];
    }
    qsort(seconds, (size_t)repeats, sizeof *seconds, compare_doubles);
    return seconds[repeats / 2];
}

SweepRow sweep_try(Sweep *sweep, size_t count, bool timed)
{
    SweepRow row = {.count = count, .wrong = try_once(sweep, count)};
    if (timed && row.wrong == 0)
        row.seconds = time_calls(sweep, count);
    return row;
}

void sweep_begin(Sweep *sweep, const char *name, HvdAllreduce allreduce, size_t largest)
{
    *sweep = (Sweep){.name = name, .allreduce = allreduce, .largest = largest};
    meet(sweep, 0, NULL, 0);
    PMPI_Comm_dup(world_comm(WORLD_VALUES), &sweep->comm);
    PMPI_Comm_set_name(sweep->comm, "sweep");
    sweep->values = (float *)allocate(largest + 2 * GUARDS, sizeof *sweep->values) + GUARDS;
    sweep_array(sweep->values, GUARDS * sizeof *sweep->values);
    if (!allreduce)
        need_room((largest + 2 * GUARDS) * sizeof *sweep->values, "MPI_Allreduce");
}

void sweep_end(Sweep *sweep)
{
    sweep_array(NULL, 0);
    free(sweep->values - GUARDS);
    PMPI_Comm_free(&sweep->comm);
}

// ---- The table.

double sweep_algorithm_bandwidth(const SweepRow *row)
{
    double bytes = (double)row->count * sizeof(float);
    return row->seconds > 0 ? 1e-9 * bytes / row->seconds : 0;
}

double sweep_bus_bandwidth(const SweepRow *row, int ranks)
{
    return sweep_algorithm_bandwidth(row) * 2 * (ranks - 1) / ranks;
}

// The number of processors that this machine's ranks share.
static int processors(void)
{
    char *list = device_share(launcher_process(), 1, 0);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (!set || hwloc_bitmap_list_sscanf(set, list) != 0)
        die("out of memory: there is none for a set of processors");
    int count = hwloc_bitmap_weight(set);
    hwloc_bitmap_free(set);
    free(list);
    return count;
}

// Simulated machines count as one.
static bool ranks_take_turns(void)
{
    int ranks = simulates_nodes() ? world_size() : launcher_place().local_size;
    return ranks > processors();
}

static void print_heading(const char *name)
{
    int size = world_size();
    printf("\n%s, %d worker%s%s\n", name, size, size == 1 ? "" : "s",
           ranks_take_turns() ? ", which take turns: there are more than processors" : "");
    printf("%10s %11s %11s %9s %9s %8s\n", "count", "bytes", "us", "alg GB/s", "bus GB/s", "wrong");
}

static void print_row(const SweepRow *row)
{
    printf("%10zu %11zu ", row->count, row->count * sizeof(float));
    if (row->seconds > 0)
        printf("%11.1f %9.3f %9.3f", 1e6 * row->seconds, sweep_algorithm_bandwidth(row),
               sweep_bus_bandwidth(row, world_size()));
    else
        printf("%11s %9s %9s", "-", "-", "-");
    printf(" %8zu\n", row->wrong);
    fflush(stdout);
}

// A value that was not measured is null; the others have at most six decimals.
static void add_measured(cJSON *line, const char *name, const SweepRow *row, double figure)
{
    if (row->seconds > 0)
        cJSON_AddNumberToObject(line, name, round(1e6 * figure) / 1e6);
    else
        cJSON_AddNullToObject(line, name);
}

static char *line_of(const Sweep *sweep, const SweepRow *row)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "collective", sweep->name);
    cJSON_AddNumberToObject(line, "ranks", world_size());
    cJSON_AddBoolToObject(line, "oversubscribed", ranks_take_turns());
    cJSON_AddNumberToObject(line, "bytes", (double)(row->count * sizeof(float)));
    add_measured(line, "microseconds", row, 1e6 * row->seconds);
    add_measured(line, "algorithm_gb_per_second", row, sweep_algorithm_bandwidth(row));
    add_measured(line, "bus_gb_per_second", row, sweep_bus_bandwidth(row, world_size()));
    cJSON_AddNumberToObject(line, "wrong", (double)row->wrong);
    char *text = json_print(line, false), *whole = format_text("%s\n", text);
    cJSON_Delete(line);
    free(text);
    return whole;
}

// "" only checks whether it is possible.
static void append_to_results(const char *line)
{
    const char *path = results_file();
    if (!*path)
        return;
    FILE *file = fopen(path, "ae");
    bool written = file && fputs(line, file) >= 0;
    if (!file || fclose(file) != 0 || !written)
        die("HVD_SWEEP=%s: the file cannot be written", path);
}

static void report(const Sweep *sweep, const SweepRow *row)
{
    if (world_rank() != 0)
        return;
    print_row(row);
    char *line = line_of(sweep, row);
    append_to_results(line);
    free(line);
}

static void try_small_counts(Sweep *sweep)
{
    static const size_t counts[] = {0, 1, 2, 3, 4, 5, 7, 10, 101, 1001};
    for (size_t i = 0; i < sizeof counts / sizeof *counts && counts[i] <= sweep->largest; i++) {
        SweepRow row = sweep_try(sweep, counts[i], false);
        if (row.wrong > 0)
            report(sweep, &row);
    }
}

// The largest power of 4 below `largest` is followed by `largest` itself.
static size_t next_count(size_t count, size_t largest)
{
    return count < largest && 4 * count > largest ? largest : 4 * count;
}

static void try_counts(Sweep *sweep)
{
    if (world_rank() == 0) {
        append_to_results("");
        print_heading(sweep->name);
    }
    try_small_counts(sweep);
    for (size_t count = 1; count <= sweep->largest; count = next_count(count, sweep->largest)) {
        SweepRow row = sweep_try(sweep, count, true);
        report(sweep, &row);
    }
}

// ---- What is swept.

void sweep_run(const char *name, HvdAllreduce allreduce, size_t largest)
{
    Sweep sweep;
    sweep_begin(&sweep, name, allreduce, largest);
    try_counts(&sweep);
    sweep_end(&sweep);
}

static void check_sweep(const char *caller, const char *name, size_t largest)
{
    world_need(caller);
    if (!name)
        die("%s: it needs a name for what it prints, not NULL", caller);
    if (largest > SWEEP_LARGEST)
        die("%s: %zu floats are more than it tries (%zu)", caller, largest, SWEEP_LARGEST);
}

static double seconds_of(const char *name, HvdAllreduce allreduce, size_t count)
{
    Sweep sweep;
    sweep_begin(&sweep, name, allreduce, count);
    double seconds = time_calls(&sweep, count);
    sweep_end(&sweep);
    return seconds;
}

void sweep_compare(const char *name, HvdAllreduce allreduce, size_t count)
{
    enum { TIMES = 3 };
    check_sweep(__func__, name, count);
    if (world_size() == 1)
        return;
    double ratios[TIMES];
    trace_pause(true);
    for (int i = 0; i < TIMES; i++) {
        double own = seconds_of(name, allreduce, count);
        ratios[i] = seconds_of("MPI_Allreduce", NULL, count) / own;
    }
    trace_pause(false);
    qsort(ratios, TIMES, sizeof *ratios, compare_doubles);
    if (world_rank() == 0)
        printf("%s: %.2f times the bandwidth of MPI_Allreduce, with %zu floats\n", name,
               ratios[TIMES / 2], count);
}

void sweep_allreduce(const char *name, HvdAllreduce allreduce, size_t largest)
{
    check_sweep(__func__, name, largest);
    trace_call();
    sweep_run(name, allreduce, largest);
    if (*results_file())
        exit(EXIT_SUCCESS);
}

static void sum_hierarchically(float *values, size_t count, MPI_Comm comm)
{
    hierarchical_allreduce(values, count, (Reduction){MPI_FLOAT, MPI_SUM, 1}, comm);
}

void sweep_hierarchical(size_t largest)
{
    if (hierarchical_pays(SIZE_MAX, world_comm(WORLD_VALUES)))
        sweep_run("two_levels", sum_hierarchically, largest);
}

#ifdef HVDLAB_CUDA

static void sum_by_nccl(float *values, size_t count, MPI_Comm comm)
{
    (void)comm;
    hvd_nccl_sum(values, count);
}

static bool ranks_have_own_gpus(MPI_Comm comm)
{
    int shared[2], gpu = device_is_gpu();
    PMPI_Allreduce(MPI_IN_PLACE, &gpu, 1, MPI_INT, MPI_MIN, comm);
    return gpu && !hvd_ranks_share_gpu(comm, shared);
}

void sweep_nccl(size_t largest)
{
    MPI_Comm comm = world_comm(WORLD_GRADIENTS);
    if (!ranks_have_own_gpus(comm))
        return;
    const char *problem = hvd_nccl_start(comm);
    if (problem) {
        note_on_root("NCCL does not start: %s; its all-reduce is left out", problem);
        return;
    }
    Sweep sweep;
    Device *device = device_current();
    sweep_begin(&sweep, "nccl", sum_by_nccl, largest);
    sweep.gpu_values = backend_of(device)->allocate(device, (largest + GUARDS) * sizeof(float));
    try_counts(&sweep);
    backend_of(device)->release(device, sweep.gpu_values);
    sweep_end(&sweep);
    hvd_nccl_stop();
}

#else

void sweep_nccl(size_t largest)
{
    (void)largest; // there is no GPU without CUDA
}

#endif
