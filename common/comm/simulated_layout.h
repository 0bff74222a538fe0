// One machine that looks like several nodes (base/layout.h).

#ifndef HVDLAB_SIMULATED_LAYOUT_H
#define HVDLAB_SIMULATED_LAYOUT_H

#include <mpi.h>

// Before main (start.c): replaces the launcher's variables for local ranks and sizes.
void simulate_launcher(void);

// The ranks of a communicator that are on this machine, a simulated one counting as such, by `key`:
// MPI_Comm_split_type without the event that a program's own call leaves. The caller frees it.
MPI_Comm ranks_of_machine(MPI_Comm comm, int key);

#endif
