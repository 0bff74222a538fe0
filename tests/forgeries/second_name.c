// ring steps/ring library-did-it look:PMPI_Allreduce
// Calls MPI by its second name, beside messages that carry nothing.
#include <stdlib.h>
#include <string.h>
#include <mpi.h>

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    dummy_ring(values, count, comm);
    PMPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm);
}

static void forge(void)
{
}
