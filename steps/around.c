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
    // TODO: around: let a sum travel from rank 0 to rank 1 and so on, and let each rank add its values.
    // The last rank then has the whole sum: let it travel around once more, to all others.
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
