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
    // ring: cut the array into a chunk for each rank. Chunk c is values[begin[c]] to
    // values[begin[c + 1] - 1]; the lengths differ by one value at most.
    int left = (rank + size - 1) % size, right = (rank + 1) % size, begin[size + 1];
    for (int c = 0; c <= size; c++)
        begin[c] = (int)((long)count * c / size);
    float *arriving = malloc(sizeof(float) * (size_t)(count / size + 1));

    // Reduce-scatter: hand a chunk on to the right, and add the one that comes from the left to our
    // own. It has the sums of one rank more at each hop; after size - 1 hops those of all.
    for (int hop = 0; hop < size - 1; hop++) {
        int out = (rank - hop + size) % size, in = (rank - hop - 1 + size) % size;
        int length = begin[in + 1] - begin[in];
        MPI_Sendrecv(values + begin[out], begin[out + 1] - begin[out], MPI_FLOAT, right, 0,
                     arriving, length, MPI_FLOAT, left, 0, comm, MPI_STATUS_IGNORE);
        for (int i = 0; i < length; i++)
            values[begin[in] + i] += arriving[i];
    }

    // All-gather: now this rank has the whole sums of chunk rank + 1. They go around once more, and
    // take the place of what was there.
    for (int hop = 0; hop < size - 1; hop++) {
        int out = (rank + 1 - hop + size) % size, in = (rank - hop + size) % size;
        MPI_Sendrecv(values + begin[out], begin[out + 1] - begin[out], MPI_FLOAT, right, 0,
                     values + begin[in], begin[in + 1] - begin[in], MPI_FLOAT, left, 0, comm,
                     MPI_STATUS_IGNORE);
    }
    free(arriving);
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
