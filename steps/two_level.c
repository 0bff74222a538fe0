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
    // TODO: two_level: as it stands, all workers are in one all-reduce, and values may go from host to
    // host more than once. Let the first worker of each host get the sum of its host's workers, let
    // the first workers alone make an all-reduce of these sums, and let all others get the result.
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm);
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
