// What the watched functions of MPI share: mpi_calls.c has the collective ones, mpi_messages.c
// messages and requests.

#ifndef HVDLAB_MPI_CALLS_INSIDE_H
#define HVDLAB_MPI_CALLS_INSIDE_H

#include <mpi.h>
#include <stdbool.h>
#include "observe/span.h"

double bytes_of(int count, MPI_Datatype type);

// A communicator's rank as a rank of MPI_COMM_WORLD; -1: any, or none. MPI itself refuses an
// invalid rank.
int world_rank_of(int rank, MPI_Comm comm);

// `partner`, the root or the other rank, by the communicator.
SpanCall call_of(const char *function, int64_t count, double bytes, int partner, MPI_Comm comm);

// A call in which this rank may wait: for all ranks of the communicator, or for `peer`, one of them
// or MPI's name for none or any.
void begin_waiting(SpanCall call, MPI_Comm comm, bool collective, int peer);

// Another call: it starts an operation in the background, or ends this rank's part in the job.
void begin_passing(SpanCall call);

// An operation goes on in the background: its number, from 1. `receives`: a message is received.
int keep_request(MPI_Request handle, bool receives);

// Turns (a, b) into a, b.
#define UNPACK(...) __VA_ARGS__

#endif
