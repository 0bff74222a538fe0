// An all-reduce on two levels, within the hosts and between them, tried on arrays of many sizes;
// then a small network, trained with it on Fashion-MNIST.

#include <stdlib.h>
#include <string.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// A host's name, with zeros behind it.
typedef char HostName[MPI_MAX_PROCESSOR_NAME];

// `local` has the workers of this host, in the order of their ranks. `firsts` has only the first
// worker of each host; on all others it is MPI_COMM_NULL.
static MPI_Comm local, firsts;

// What placement was about. Called by all workers.
static void find_groups(void)
{
    int rank = hvd_rank(), size = hvd_size(), first = 0, length;
    HostName own = "", *names = malloc((size_t)size * sizeof *names);
    MPI_Get_processor_name(own, &length);
    MPI_Allgather(own, sizeof own, MPI_CHAR, names, sizeof own, MPI_CHAR, MPI_COMM_WORLD);
    while (strcmp(names[first], own) != 0)
        first++;
    free(names);
    MPI_Comm_split(MPI_COMM_WORLD, first, rank, &local);
    MPI_Comm_split(MPI_COMM_WORLD, rank == first ? 0 : MPI_UNDEFINED, rank, &firsts);
}

// Lab 3's ring: replaces values[0 ... count - 1], on every worker of comm, by their sum over all of
// these.
static void ring(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size, begin[size + 1];
    for (int c = 0; c <= size; c++)
        begin[c] = (int)((long)count * c / size);
    float *arriving = malloc(sizeof(float) * (size_t)(count / size + 1));
    for (int hop = 0; hop < size - 1; hop++) {
        int out = (rank - hop + size) % size, in = (rank - hop - 1 + size) % size;
        int length = begin[in + 1] - begin[in];
        MPI_Sendrecv(values + begin[out], begin[out + 1] - begin[out], MPI_FLOAT, right, 0,
                     arriving, length, MPI_FLOAT, left, 0, comm, MPI_STATUS_IGNORE);
        for (int i = 0; i < length; i++)
            values[begin[in] + i] += arriving[i];
    }
    for (int hop = 0; hop < size - 1; hop++) {
        int out = (rank + 1 - hop + size) % size, in = (rank - hop + size) % size;
        MPI_Sendrecv(values + begin[out], begin[out + 1] - begin[out], MPI_FLOAT, right, 0,
                     values + begin[in], begin[in + 1] - begin[in], MPI_FLOAT, left, 0, comm,
                     MPI_STATUS_IGNORE);
    }
    free(arriving);
}

// Replaces values[0 ... count - 1], on every worker, by their sum over all workers.
static void two_level(float *values, int count)
{
    // TODO: two_level: as it stands, all workers are in one ring, and whether its next member is on
    // the same host is chance. Let the workers of each host add up their values first, then the
    // first workers of the hosts alone make a ring, and all others get the sums from theirs.
    ring(values, count, MPI_COMM_WORLD);
}

// The same for an array of any length: in pieces, which stay in the cache. (One piece of length 0
// where there are no values.)
static void allreduce(float *values, size_t count, MPI_Comm comm)
{
    (void)comm; // all workers, as the groups have them
    const size_t longest = 1 << 18;
    size_t done = 0;
    do {
        size_t length = count - done < longest ? count - done : longest;
        two_level(values + done, (int)length);
        done += length;
    } while (done < count);
}

int main(int argc, char **argv)
{
    hvd_init();
    find_groups();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    // Alone: are the sums right, and how long do they take?
    sweep_allreduce("two_level", allreduce, (size_t)args.max_count);

    // In the trainer: from here on the distributed optimizer adds the gradients up by it.
    hvd_use_allreduce(allreduce);
    train_lenet(&args);
    return 0;
}
