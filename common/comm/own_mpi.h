#ifndef HVDLAB_COMM_OWN_MPI_H
#define HVDLAB_COMM_OWN_MPI_H

// Tells Open MPI, before it starts, where it is, if that is not where it was built for (own.sh).
void own_mpi_find(void);

#endif
