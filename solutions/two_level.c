// An all-reduce on two levels, within the hosts and between them, tried on arrays of many sizes;
// then a small network, trained with it on Fashion-MNIST.

#include "hvdlab.h"
#include "lessons/exercises.h"

// `local` has the workers of this host, in the order of their ranks. `firsts` has only the first
// worker of each host; on all others it is MPI_COMM_NULL.
static MPI_Comm local, firsts;

// Called by all workers. MPI, too, knows which of them share a host.
static void find_groups(void)
{
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, hvd_rank(), MPI_INFO_NULL, &local);
    MPI_Comm_split(MPI_COMM_WORLD, hvd_local_rank() == 0 ? 0 : MPI_UNDEFINED, hvd_rank(), &firsts);
}

// Replaces values[0 ... count - 1], on every worker, by their sum over all workers.
static void two_level(float *values, int count, MPI_Comm comm)
{
    (void)comm; // all workers, as the groups have them
    int local_rank;
    MPI_Comm_rank(local, &local_rank);

    // two_level: within each host its first worker gets the sum of all its workers.
    MPI_Reduce(local_rank == 0 ? MPI_IN_PLACE : values, values, count, MPI_FLOAT, MPI_SUM, 0,
               local);

    // two_level: between the hosts their first workers add up these sums.
    if (local_rank == 0)
        MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, firsts);

    // two_level: and within each host the others get the result.
    MPI_Bcast(values, count, MPI_FLOAT, 0, local);
}

// The same for an array of any length.
static void allreduce(float *values, size_t count, MPI_Comm comm)
{
    allreduce_in_pieces(values, count, comm, two_level);
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
