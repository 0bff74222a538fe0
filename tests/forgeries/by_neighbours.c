// ring steps/ring FLAGGED look:MPI_Neighbor
// Has all values gathered by a neighbourhood, beside messages that carry nothing.
#include <stdlib.h>
#include <string.h>
#include <mpi.h>

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    dummy_ring(values, count, comm);
    MPI_Comm all;
    int *ranks = malloc(sizeof(int) * (size_t)size);
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    MPI_Dist_graph_create_adjacent(comm, size, ranks, MPI_UNWEIGHTED, size, ranks, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &all);
    float *other = malloc(sizeof(float) * (size_t)(count * size + 1));
    MPI_Neighbor_allgather(values, count, MPI_FLOAT, other, count, MPI_FLOAT, all);
    memset(values, 0, sizeof(float) * (size_t)count);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++)
            values[i] += other[r * count + i];
    MPI_Comm_free(&all);
    free(ranks);
    free(other);
}

static void forge(void)
{
}
