// An all-reduce in which one sum travels around a ring, tried on arrays of many sizes; then a small
// network, trained with it on Fashion-MNIST.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// Replaces values[0 ... count - 1], on every worker, by their sum over all workers.
static void around(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    // around: the sum begins on rank 0, grows by one rank's values at each hop, and is whole on the
    // last rank. From there it goes around once more, and takes the place of what was there.
    int last = size - 1, left = (rank + size - 1) % size, right = (rank + 1) % size;
    if (rank > 0) {
        float *arriving = malloc(sizeof(float) * (size_t)count);
        MPI_Recv(arriving, count, MPI_FLOAT, left, 0, comm, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            values[i] += arriving[i];
        free(arriving);
    }
    if (rank < last) {
        MPI_Send(values, count, MPI_FLOAT, right, 0, comm);
        MPI_Recv(values, count, MPI_FLOAT, left, 0, comm, MPI_STATUS_IGNORE);
    }
    if (size > 1 && right != last)
        MPI_Send(values, count, MPI_FLOAT, right, 0, comm);
}

// The same for an array of any length.
static void allreduce(float *values, size_t count, MPI_Comm comm)
{
    allreduce_in_pieces(values, count, comm, around);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    // Alone: are the sums right, and how long do they take?
    sweep_allreduce("around", allreduce, (size_t)args.max_count);

    // In the trainer: from here on the distributed optimizer adds the gradients up by it.
    hvd_use_allreduce(allreduce);
    train_lenet(&args);
    return 0;
}
