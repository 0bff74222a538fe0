// ring steps/ring library-did-it
// Adds up by a collective call that is made once and started later.
#include <mpi-ext.h>

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    dummy_ring(values, count, comm);
    MPI_Request request;
#if OMPI_MAJOR_VERSION >= 5
    MPI_Allreduce_init(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL,
                       &request);
#else
    MPIX_Allreduce_init(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL,
                        &request);
#endif
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

static void forge(void)
{
}
