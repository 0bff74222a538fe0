// A table of the workers by host.

#ifndef HVDLAB_PLACEMENT_H
#define HVDLAB_PLACEMENT_H

#include "comm/comm.h"

#pragma GCC visibility push(default) // a step may call what follows

// Has the root print a table with a line for each worker: its rank, the name of its host, and what
// it says itself: its number among the workers of that host, how many these are, and a communicator
// of theirs (MPI_COMM_NULL: none), whose members are listed by their ranks in the job, in the order
// of the communicator. Nothing of it is checked. Collective.
void show_placement(int local_rank, int local_size, MPI_Comm local);

#pragma GCC visibility pop

#endif
