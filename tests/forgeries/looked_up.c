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
    dummy_ring(values, count, comm);
    int (*sum)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    *(void **)&sum = dlsym(RTLD_DEFAULT, "PMPI_Allreduce");
    sum(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm);
}

static void forge(void)
{
}
