// Calls of comm/ to a layer above it; start.c sets them.

#ifndef HVDLAB_COMM_HOOKS_H
#define HVDLAB_COMM_HOOKS_H

// Called when a library has started that ends itself at exit.
extern void (*after_mpi_start)(void); // on all ranks, so it may call MPI
extern void (*after_nccl_start)(void);

#endif
