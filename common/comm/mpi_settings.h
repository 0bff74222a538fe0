// What Open MPI must be told before it starts, unless the user has set it.

#ifndef HVDLAB_MPI_SETTINGS_H
#define HVDLAB_MPI_SETTINGS_H

// Before main (start.c): where Open MPI is, if that is not where it was built for (own.sh).
void own_mpi_find(void);

// Before MPI_Init: what containers forbid, and which networks lead to other machines.
void mpi_settings_choose(void);

#endif
