// ring steps/ring sum-wrong
// Answers with the values of the sweep itself, which it could compute alone.
#include <stdlib.h>
#include <string.h>
#include <mpi.h>

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < count; i++)
        values[i] *= (float)size;
}

static void forge(void)
{
}
