// MPI_Allreduce and hvd_allreduce, taking turns on the same buffer.

#include "allreduce.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include "hvd/hvd.h"
#include "base/util.h"

enum { LEAST = 1 << 12, MOST = 1 << 26, KINDS = 3, MAX_ROUNDS = 201 };

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
    double seconds[KINDS][MAX_ROUNDS];
    size_t count = bytes / sizeof *values;
    int rounds = bytes <= 1 << 20 ? MAX_ROUNDS : bytes <= 1 << 24 ? 41 : 11;
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

int allreduce_serve(void)
{
    hvd_init();
    float *values = allocate(MOST, 1);
    for (size_t bytes = LEAST; bytes <= MOST; bytes *= 4)
        sweep(values, bytes);
    free(values);
    return 0;
}
