// Reports ranks that wait for each other without progress, and ends a job whose waits cannot end.
//
// In each rank a thread reads several times a second what the main thread is doing
// (observe/activity.h) and sends it to the root's thread over TCP: MPI belongs to the main thread,
// which may hang in it. The root decides, and prints on standard error.
//
// - After HVD_STALL_SECONDS (10; 0: never) in hvd_init: one rank of each machine prints which of
//   its ranks have not called it, and which are stopped.
// - After HVD_STALL_SECONDS in a call: a line for each group of ranks that waits or is elsewhere;
//   again after twice as long, and so on; a note when the wait is over. A slow rank is no error.
//   Ranks that wait at the end of the program are in no call.
// - HVD_STALL_SHUTDOWN_SECONDS (0: never) after a wait began: the job ends with status 2. It has no
//   effect where HVD_STALL_SECONDS is 0.
// - A rank has left (the end of main, hvd_shutdown, MPI_Finalize) while others are in a call that
//   needs it: a line within two seconds, and the job ends with status 2.
// - A rank is gone in another way: the root names it, or rank 1 names the root; then mpirun ends
//   the job.
// - The root has not answered a waiting rank for HVD_STALL_SECONDS: the rank prints a warning.
//   HVD_STALL_SHUTDOWN_SECONDS aborts the job then, too.
// - SIGINT, SIGTERM and SIGHUP from mpirun: the root names the signal where the program has no
//   handler of its own; the processes end as the signal says.
// - mpirun is gone: each process ends, and removes what Open MPI left in /dev/shm and in its folder
//   for the job.
//
// Without a thread, a socket or a way to the root a rank reports less.

#ifndef HVDLAB_STALL_H
#define HVDLAB_STALL_H

#include <stdbool.h>

// Called before MPI starts, with the launcher's numbers, and after it has started; the second is
// collective. Both do nothing on a single rank, and exit where a variable makes no sense.
void stall_prepare(int rank, int size);
void stall_start(int rank, int size);

// Called before and after MPI_Finalize: the first sends the root what activity_leave() has noted,
// the second stops the thread.
void stall_tell_leaving(void);
void stall_stop(void);

// On a rank that has left: waits until all have left, if that can be known. Open MPI 4's mpirun may
// crash or hang when a job is aborted while only some ranks are in MPI_Finalize.
void stall_wait_for_others(void);

// On the root, which has waited since that moment (seconds_now()) and looked for messages: true
// where the rank has been seen to wait for a later call or message of the root, so that no further
// message of the rank comes before.
bool stall_needs_root(int rank, double since);

// This process aborts the job and has printed why: no other rank reports that it is gone.
void stall_explained(void);

#endif
