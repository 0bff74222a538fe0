// What this rank's main thread is doing, for the stall watch of other ranks (comm/stall.h): the
// call that it is in, its location in the training, and whether it has left. Of nested calls the
// outermost counts: hvd_allreduce, not the MPI_Allreduce inside it. Any thread may read the record.

#ifndef HVDLAB_ACTIVITY_H
#define HVDLAB_ACTIVITY_H

#include <stdbool.h>
#include <stdint.h>

#define NO_VALUES INT64_MIN

// A call in which this rank may wait for other ranks.
typedef struct {
    const char *name;       // "hvd_allreduce", "MPI_Recv"; must stay allocated
    int64_t number;         // among the calls that all ranks make alike, from 1; 0: not counted
    int64_t count;          // values that travel, may be negative; NO_VALUES: none do
    int peer;               // the rank of the job that it waits for; -1: no single one
    int64_t bytes, partner; // the timeline's two numbers
} SpanCall;

// Where the main thread computes: "training", epoch and step from 0 (-1: none). NULL: in no
// training.
typedef struct {
    const char *name;
    int epoch;
    int64_t step;
} Location;

// Called by span.c, on the main thread.
void activity_begin_call(const SpanCall *call);
void activity_end_call(void);
void activity_move(const Location *to);

// True inside a call, on the main thread.
bool activity_inside(void);

// The rank makes no further call: main has returned (or exit was called) with a status, hvd is shut
// down, or the program has ended MPI. The first one counts; another thread's is ignored.
typedef enum { HERE, LEFT_MAIN, LEFT_HVD, LEFT_MPI } Leaving;
void activity_leave(Leaving how, int status);

// All of it at one moment.
typedef struct {
    SpanCall call; // .name NULL: in no call, or in the middle of a change for longer than a moment;
                   // of the rest, number, count and peer
    Location location;
    Leaving left;
    int status;
    uint64_t moves;        // changes whenever a call begins or ends
    int64_t last_of_hvd;   // the largest number of an hvd call so far
    int64_t last_of_comms; // and of an MPI call; MPI's count for each communicator
} Doing;
Doing activity_now(void);

#endif
