// ring steps/ring FLAGGED look:dlsym
// Looks MPI up by name, beside messages that carry nothing.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <mpi.h>

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    float *copy = malloc(sizeof(float) * (size_t)(count + size)),
          *waste = malloc(sizeof(float) * (size_t)(count + size));
    memcpy(copy, values, sizeof(float) * (size_t)count);
    for (int hop = 0; hop < 2 * (size - 1); hop++)
        MPI_Sendrecv(copy, (count + size - 1) / size, MPI_FLOAT, (rank + 1) % size, 0, waste,
                     count + size, MPI_FLOAT, (rank + size - 1) % size, 0, comm, MPI_STATUS_IGNORE);
    free(copy);
    free(waste);
    int (*sum)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    *(void **)&sum = dlsym(RTLD_DEFAULT, "PMPI_Allreduce");
    sum(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm);
}

static void forge(void)
{
}
