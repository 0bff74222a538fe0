// An all-reduce around a ring, tried on arrays of many sizes; then a small network, trained
// with it on Fashion-MNIST.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// Replaces values[0 ... count - 1], on every worker, by their sum over all workers.
static void ring(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    // TODO: ring: cut the array into a chunk for each rank, whatever the count. Let each rank send to
    // the next rank, and receive from the one before it, a chunk at a time: first so that the chunks
    // are added up on their way, then so that the sums come to every rank.
}

// The same for an array of any length.
static void allreduce(float *values, size_t count, MPI_Comm comm)
{
    allreduce_in_pieces(values, count, comm, ring);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    // Alone: are the sums right, and how long do they take?
    sweep_allreduce("ring", allreduce, (size_t)args.max_count);

    // In the trainer: from here on the distributed optimizer adds the gradients up by it.
    hvd_use_allreduce(allreduce);
    train_lenet(&args);
    return 0;
}
