// What this rank is doing, for the watch of other ranks (comm/stall.h): the call that it is in, or
// where it computes, or that it has left. Of nested calls the outermost counts: hvd_allreduce, not
// the MPI_Allreduce inside it. The main thread writes it, in a few nanoseconds a call; any thread
// may read it.

#ifndef HVDLAB_ACTIVITY_H
#define HVDLAB_ACTIVITY_H

#include <stdbool.h>
#include <stdint.h>

#define NO_VALUES INT64_MIN

typedef struct {
    const char *call; // "hvd_allreduce", "MPI_Recv"; a text that stays
    int64_t number;   // of the calls that all ranks make alike, which one, from 1; 0: not counted
    int64_t count;    // how many values travel, also where that is below 0; NO_VALUES: none do
    int peer;         // the rank of the job that it waits for; -1: no single one
} Activity;

// Begins and ends a call, on the main thread; they nest. Calls on other threads are not seen.
void activity_begin(Activity activity);
void activity_end(void);

// True inside a call.
bool activity_inside(void);

// Where the main thread computes: "training", the epoch and the step from 0 (-1: none).
// `place` is a text that stays; NULL: nowhere in particular.
void activity_place(const char *place, int epoch, int64_t step);

// The rank makes no further call: main has returned (or exit was called) with a status, hvd is shut
// down, or the program has ended MPI. The first one counts.
typedef enum { HERE, LEFT_MAIN, LEFT_HVD, LEFT_MPI } Leaving;
void activity_leave(Leaving how, int status);

// All of it at one moment.
typedef struct {
    Activity activity; // .call NULL: in no call
    const char *place;
    int epoch;
    int64_t step;
    Leaving left;
    int status;
    uint64_t moves;        // changes whenever a call begins or ends
    int64_t last_of_hvd;   // the largest number of a call of hvd's so far
    int64_t last_of_comms; // and of MPI's, which count for each communicator
} Doing;
Doing activity_now(void);

#endif
