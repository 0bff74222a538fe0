// Replaces Open MPI's error reports by one message. mpirun may lose them, or hang, if several ranks
// report at once.

#ifndef HVDLAB_MPI_ERRORS_H
#define HVDLAB_MPI_ERRORS_H

// After MPI has begun: an error in a call, on MPI_COMM_WORLD or a communicator that is made from it
// later, or on MPI_COMM_SELF, makes the program exit with an error message: status 2 where the
// program calls MPI in a wrong way, 1 for an error that the program did not cause. A program that
// has chosen a handler of its own for one of the two keeps it.
void mpi_errors_end_the_job(void);

#endif
