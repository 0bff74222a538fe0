// ring steps/ring FLAGGED
// Adds up by a file that all ranks see, beside messages that carry nothing.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <mpi.h>

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    dummy_ring(values, count, comm);
    char name[64];
    snprintf(name, sizeof name, "values-%d", rank);
    FILE *file = fopen(name, "w");
    fwrite(values, sizeof(float), (size_t)count, file);
    fclose(file);
    MPI_Barrier(comm);
    float *other = malloc(sizeof(float) * (size_t)(count + 1));
    memset(values, 0, sizeof(float) * (size_t)count);
    for (int r = 0; r < size; r++) {
        snprintf(name, sizeof name, "values-%d", r);
        file = fopen(name, "r");
        (void)!fread(other, sizeof(float), (size_t)count, file);
        fclose(file);
        for (int i = 0; i < count; i++)
            values[i] += other[i];
    }
    MPI_Barrier(comm);
    free(other);
}

static void forge(void)
{
}
