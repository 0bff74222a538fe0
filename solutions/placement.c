// Finds out which workers share a host, from the names of the hosts; then trains a small network on
// Fashion-MNIST, with a device for each worker of a host.

#include <stdlib.h>
#include <string.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// A host's name, with zeros behind it.
typedef char HostName[MPI_MAX_PROCESSOR_NAME];

// Where a worker is.
typedef struct {
    int local_rank; // its number among the workers of its host, from 0, in the order of their ranks
    int local_size; // how many workers are on its host
    MPI_Comm local; // these workers, in the order of their ranks
} Placement;

// Called by all workers.
static Placement find_placement(void)
{
    int rank = hvd_rank(), size = hvd_size(), length;
    HostName own = "";
    MPI_Get_processor_name(own, &length);
    Placement placement = {0};
    // placement: every worker gets the names of all workers' hosts, in the order of their ranks.
    HostName *names = malloc((size_t)size * sizeof *names);
    MPI_Allgather(own, sizeof own, MPI_CHAR, names, sizeof own, MPI_CHAR, MPI_COMM_WORLD);

    // placement: the workers whose hosts have the same name are on the same host.
    int first = -1;
    for (int r = 0; r < size; r++) {
        if (strcmp(names[r], own) != 0)
            continue;
        if (first < 0)
            first = r;
        placement.local_rank += r < rank;
        placement.local_size++;
    }
    free(names);

    // placement: a group for each host. The rank of its first worker is the group's number.
    MPI_Comm_split(MPI_COMM_WORLD, first, rank, &placement.local);
    return placement;
}

int main(int argc, char **argv)
{
    hvd_init();
    Placement placement = find_placement();
    // The root prints a table of what all workers found.
    show_placement(placement.local_rank, placement.local_size, placement.local);
    device_use(placement.local_rank);
    Args args = parse_args(argc, argv);
    train_lenet(&args);
    return 0;
}
