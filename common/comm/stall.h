// Names who waits for whom, in a job of several ranks, and ends one where ranks would wait for
// ever.
//
// A thread in each rank looks a few times a second at what the main thread is doing
// (observe/activity.h) and tells the root's, over sockets (comm/channel.h): MPI belongs to the main
// thread, which may hang in it. The root judges and speaks, on standard error.
//
// - After HVD_STALL_SECONDS (10; 0: never) in hvd_init: who waits there for ranks that have not
//   come to it, and which of this machine's are stopped.
// - After HVD_STALL_SECONDS in a call: a line for each group of ranks, who waits
//   where and who is elsewhere; again after twice as long, and so on; and a note when it is over. A
//   slow rank is no error. Ranks that wait at the end of the program are in no call.
// - HVD_STALL_SHUTDOWN_SECONDS (0: never) after such waiting began, the job ends, with status 2.
// - A rank that has left (main's end, hvd_shutdown, MPI_Finalize) while others are in a call that
//   it would have to make: a line within a second or two, and the job ends, with status 2. One that
//   is gone otherwise is named, and mpirun ends the job; that the root is gone, rank 1 says.
// - SIGINT, SIGTERM and SIGHUP, as mpirun hands them on, are named by the root, where the program
//   has no handler of its own; they end the process as they would.
// - Where mpirun is gone, each process ends and removes what Open MPI left in /dev/shm and in its
//   folder for the job.
//
// Where there is no thread or no socket to be had, or a rank cannot reach the root, less is said.

#ifndef HVDLAB_STALL_H
#define HVDLAB_STALL_H

// Before MPI begins, by the launcher's word, and after it has begun; the second is collective.
// Nothing on a single rank. Ends the program with one line where a variable makes no sense.
void stall_prepare(int rank, int size);
void stall_start(int rank, int size);

// Before and after MPI is ended in order: the first tells the root at once what this rank has
// written down by activity_leave(), the second stops the thread.
void stall_tell_leaving(void);
void stall_stop(void);

// On a rank that has left: returns when all ranks have, or where that can't be known. Open MPI 4's
// mpirun may crash, or hang, where a job is ended while some ranks are in MPI_Finalize and others
// are not.
void stall_wait_for_others(void);

// This process ends the job, and has said why: nobody needs to say that it is gone.
void stall_explained(void);

#endif
