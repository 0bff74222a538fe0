// The job that this process is a rank of: the start and end of MPI, and a communicator for each
// kind of message, so that ranks in different calls wait for each other instead of receiving each
// other's values.

#ifndef HVDLAB_WORLD_H
#define HVDLAB_WORLD_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

// Starts MPI, once; every rank must call it. exit(0), or the end of main, calls MPI_Finalize, which
// waits for all ranks; after another exit status mpirun ends the other ranks. Without mpirun: a job
// of one rank, with a note. Exits if another MPI's launcher started the process.
void world_start(void);
void world_stop(void);
bool world_started(void); // and not stopped
// Registers a function that every rank calls before MPI_Finalize, in the order of registration.
void world_before_stop(void (*function)(void));
// Exits with an error message where world_start has not been called yet, or MPI has been ended;
// `caller` is the function that needs it.
void world_need(const char *caller);
// The same for a function that a program calls: the trace gets an event of the call.
void world_called(const char *caller);

// Before main (start.c): exits where a limit on the address space leaves too little for MPI's
// start.
void world_need_memory(void);
// At exit: world_stop() if the status is 0. A rank that fails must not wait in MPI_Finalize for the
// others: it exits, and mpirun ends them.
void world_end(int status);
// In a forked child: it is no rank, its end does not end the job, communication is an error.
void world_forget(void);

// 0 and 1 before world_start.
int world_rank(void);
int world_size(void);

typedef enum {
    WORLD_GRADIENTS,
    WORLD_VARIABLES,
    WORLD_METRICS,
    WORLD_VALUES,
    WORLD_AGREEMENT
} WorldChannel;
// Exits with an error message where MPI does not run.
MPI_Comm world_comm(WorldChannel channel);
bool world_owns(MPI_Comm comm); // whether it is one of these
// Splits off the communicator's ranks on this (real or simulated) machine, ordered by `key`.
// Collective; the caller frees it.
MPI_Comm ranks_of_machine(MPI_Comm comm, int key);
// Whether the job's ranks are on several machines; cached, since each query costs.
bool world_spans_hosts(void);
// The ranks of a communicator, as ranks of the job, in their order; `ranks` has room for all. Returns
// how many there are.
int world_ranks(MPI_Comm comm, int ranks[]);
// Traces the begin of a collective call among the ranks of a communicator.
void trace_call_among(const char *function, const char *name, size_t bytes, MPI_Comm comm);
// Any communicator's name, as traces have it: "gradients".
const char *comm_name(MPI_Comm comm, char name[MPI_MAX_OBJECT_NAME]);

#endif
