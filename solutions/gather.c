// An all-reduce by way of the root, tried on arrays of many sizes; then a small network, trained
// with it on Fashion-MNIST.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// Replaces values[0 ... count - 1], on every worker, by their sum over all workers.
static void sum_at_root(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    // gather: the root adds the others' values to its own, and sends the sums to all of them.
    if (rank == 0) {
        float *arriving = malloc(sizeof(float) * (size_t)count);
        for (int other = 1; other < size; other++) {
            MPI_Recv(arriving, count, MPI_FLOAT, other, 0, comm, MPI_STATUS_IGNORE);
            for (int i = 0; i < count; i++)
                values[i] += arriving[i];
        }
        for (int other = 1; other < size; other++)
            MPI_Send(values, count, MPI_FLOAT, other, 0, comm);
        free(arriving);
    } else {
        MPI_Send(values, count, MPI_FLOAT, 0, 0, comm);
        MPI_Recv(values, count, MPI_FLOAT, 0, 0, comm, MPI_STATUS_IGNORE);
    }
}

// The same for an array of any length.
static void allreduce(float *values, size_t count, MPI_Comm comm)
{
    allreduce_in_pieces(values, count, comm, sum_at_root);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    // Alone: are the sums right, and how long do they take?
    sweep_allreduce("gather", allreduce, (size_t)args.max_count);

    // In the trainer: from here on the distributed optimizer adds the gradients up by it.
    hvd_use_allreduce(allreduce);
    train_lenet(&args);
    return 0;
}
