// One rank beside several: training steps, and the all-reduce.

#include "bench.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "hvd/hvd.h"
#include "run/device.h"

// How many ranks are timed on that many devices: 1, 2, 4, ... and all of them.
static int rank_counts(int devices, int counts[MAX_RUNNERS])
{
    int count = 0;
    for (int ranks = 1; ranks < devices && count < MAX_RUNNERS - 2; ranks *= 2)
        counts[count++] = ranks;
    counts[count++] = devices;
    return count;
}

void bench_scaling(cJSON *results, int rounds, double round_time, FILE *data)
{
    const Workload *w = &(Workload){"wrn", 1, 64, DEVICE_CPU, device_precision()};
    Runner runners[MAX_RUNNERS] = {0};
    int cores = device_threads(), ranks[MAX_RUNNERS], count = rank_counts(cores, ranks);
    for (int i = 0; i < count; i++)
        runner_start_ranks(&runners[i], "hvdlab", ranks[i], cores, w);
    Runner *all_cores = &runners[count];
    runner_start_hvdlab(all_cores, w, NULL);
    print_workload(w);
    printf(" per rank, each rank on one of %d cores\n", cores);
    printf("  %-22s %10s %10s %10s\n", "", "images/s", "per rank", "efficiency");
    time_in_turns(runners, count + 1, rounds, round_time);
    for (int i = 0; i < count; i++) {
        const Runner *r = &runners[i];
        double speed = add_training_step(results, w, r, 1, ranks[i], rounds);
        double efficiency = speed_ratio(r, &runners[0], rounds);
        printf("  %2d rank%-15s %10.1f %10.1f %8.1f %%\n", ranks[i], ranks[i] > 1 ? "s" : "", speed,
               speed / ranks[i], 100 * efficiency);
        if (data)
            fprintf(data, "%d %.1f %.4f\n", ranks[i], speed, efficiency);
    }
    printf("  %-22s %10.1f\n", "1 process, all cores",
           w->batch / median(all_cores->seconds, rounds));
    printf("  (Each number is a median over rounds; the efficiency compares within each round.)\n");
    for (int i = 0; i <= count; i++)
        runner_stop(&runners[i]);
}

// ---- Ranks, and devices of one process.

static void compare_mirrored(const Workload *w, int devices, int rounds, double round_time)
{
    Runner both[2] = {{0}};
    runner_start_ranks(&both[0], "hvdlab", devices, devices, w);
    runner_start_mirrored(&both[1], devices, w);
    time_in_turns(both, 2, rounds, round_time);
    double images = (double)devices * w->batch;
    printf("| ");
    print_workload(w);
    printf(" for each | %d | %.0f | %.0f | %.2f |\n", devices,
           images / median(both[0].seconds, rounds), images / median(both[1].seconds, rounds),
           speed_ratio(&both[1], &both[0], rounds));
    runner_stop(&both[0]);
    runner_stop(&both[1]);
}

void bench_mirrored(int rounds, double round_time)
{
    const Workload kinds[] = {{"lenet", 1, 128, DEVICE_CPU, device_precision()},
                              {"wrn", 1, 64, DEVICE_CPU, device_precision()}};
    printf("| model, batch | N | images/s of N ranks | images/s mirrored on N devices | mirrored / "
           "ranks |\n| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int devices = 1; devices <= device_threads() && devices <= 8; devices *= 2)
            compare_mirrored(&kinds[i], devices, rounds, round_time);
}

// ---- The all-reduce, as it is started.

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

void bench_allreduce(cJSON *results, int count)
{
    char *command =
        format_text("common/scripts/mpi.sh run %d '%s' --run-allreduce", count, own_path());
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

// ---- The all-reduce, on its ranks: MPI_Allreduce and hvd_allreduce, taking turns on the same
// buffer. A line for each size on the root:
//     BYTES MPI-MICROSECONDS SUM-MICROSECONDS AVERAGE-MICROSECONDS WRONG
// medians, the slowest rank's each time; WRONG is how many values were not what they must be.

enum { MIN_BYTES = 1 << 12, MAX_BYTES = 1 << 26, KINDS = 3, MAX_REPEATS = 201 };

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void call(int kind, float *values, size_t count)
{
    if (kind == 0)
        PMPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        hvd_allreduce(values, count, kind == 1 ? HVD_SUM : HVD_AVERAGE);
}

// Seconds, the slowest rank's.
static double time_call(int kind, float *values, size_t count)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = seconds_now();
    call(kind, values, count);
    double seconds = seconds_now() - begin;
    PMPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

// Values whose sum and average are whole numbers.
static size_t wrong_values(float *values, size_t count)
{
    size_t wrong = 0;
    int size = hvd_size();
    for (HvdOp op = HVD_AVERAGE; op <= HVD_SUM; op++) {
        for (size_t i = 0; i < count; i++)
            values[i] = (float)(size * (hvd_rank() + (int)(i % 8)));
        hvd_allreduce(values, count, op);
        for (size_t i = 0; i < count; i++) {
            int average = size * (size - 1) / 2 + size * (int)(i % 8);
            float right = (float)(op == HVD_SUM ? size * average : average);
            wrong += !(fabsf(values[i] - right) <= 1e-6f * right);
        }
    }
    return wrong;
}

static void sweep(float *values, size_t bytes)
{
    double seconds[KINDS][MAX_REPEATS];
    size_t count = bytes / sizeof *values;
    int rounds = bytes <= 1 << 20 ? MAX_REPEATS : bytes <= 1 << 24 ? 41 : 11;
    size_t wrong = wrong_values(values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = 0; // sums of sums must stay finite
    for (int round = 0; round < rounds; round++)
        for (int kind = 0; kind < KINDS; kind++)
            seconds[kind][round] = time_call(kind, values, count);
    for (int kind = 0; kind < KINDS; kind++)
        qsort(seconds[kind], (size_t)rounds, sizeof(double), compare_doubles);
    if (hvd_rank() == 0)
        printf("%zu %.1f %.1f %.1f %zu\n", bytes, 1e6 * seconds[0][rounds / 2],
               1e6 * seconds[1][rounds / 2], 1e6 * seconds[2][rounds / 2], wrong);
    fflush(stdout);
}

int allreduce_main(void)
{
    hvd_init();
    float *values = allocate(MAX_BYTES, 1);
    for (size_t bytes = MIN_BYTES; bytes <= MAX_BYTES; bytes *= 4)
        sweep(values, bytes);
    free(values);
    return 0;
}
