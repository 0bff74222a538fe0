// ring steps/ring FLAGGED look:MPI_Win
// Reads the values of others in a window, beside messages that carry nothing.
#include <stdlib.h>
#include <string.h>
#include <mpi.h>

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    dummy_ring(values, count, comm);
    MPI_Win window;
    float *other = malloc(sizeof(float) * (size_t)(count + 1)),
          *own = malloc(sizeof(float) * (size_t)(count + 1));
    memcpy(own, values, sizeof(float) * (size_t)count);
    MPI_Win_create(own, (MPI_Aint)(sizeof(float) * (size_t)count), sizeof(float), MPI_INFO_NULL,
                   comm, &window);
    memset(values, 0, sizeof(float) * (size_t)count);
    for (int from = 0; from < size; from++) {
        MPI_Win_fence(0, window);
        MPI_Get(other, count, MPI_FLOAT, from, 0, count, MPI_FLOAT, window);
        MPI_Win_fence(0, window);
        for (int i = 0; i < count; i++)
            values[i] += other[i];
    }
    MPI_Win_free(&window);
    free(other);
    free(own);
}

static void forge(void)
{
}
