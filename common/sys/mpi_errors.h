// What MPI refuses, in a line of ours. Open MPI's own report travels by mpirun, and where several
// ranks report at once it may be lost, and mpirun may hang.

#ifndef HVDLAB_MPI_ERRORS_H
#define HVDLAB_MPI_ERRORS_H

// After MPI has begun: an error in a call ends the program with one line, status 2, on
// MPI_COMM_WORLD and the communicators that are made from it later. A program that has chosen a
// handler of its own keeps it.
void mpi_errors_end_the_job(void);

#endif
