// How a job is ended from outside: signals, noted by a thread; a launcher that is gone, and the
// files that Open MPI then leaves. Also the system's state of a process of the job.

#ifndef HVDLAB_JOB_END_H
#define HVDLAB_JOB_END_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

// From now on SIGINT, SIGTERM and SIGHUP, where they would make the program exit, are noted
// instead, once, and `wake`, an eventfd, is written. Signals for which the program has a handler of
// its own, or that it ignores, stay as they are.
void catch_signals(int wake);
void release_signals(void);

// These signals, as a set.
void ending_signals(sigset_t *set);

// The one that came, 0: none; whether the launcher sent it; "SIGTERM"; and its end.
int job_signal(void);
bool job_signal_is_launchers(void);
// Another process sent it, to this process alone; false where the launcher is not known.
bool job_signal_is_foreign(void);
const char *signal_name(int number);
_Noreturn void die_by_signal(int number);

// Looks who the launcher is, on the main thread; only Open MPI's counts. Afterwards: whether it is
// gone, and where to write what it may not pass on any more: what mpirun itself writes to as
// standard error, if this process `speaks`, is on the same machine and can do so, else its own. A
// file is shared with mpirun where the system allows it (pidfd_getfd(2)), so that neither writes
// over what the other wrote; else it is written only when mpirun is gone.
void remember_launcher(bool speaks);
bool launcher_is_gone(void);
int launcher_stderr(void);

// Removes the memory that the ranks of this machine shared, as far as this process has it, and the
// folder that mpirun made for the job.
void remove_leftovers(void);

// A number of this machine, the same in all its processes that see each other.
uint64_t machine_number(void);

// True where a process is stopped, by SIGSTOP or a debugger.
bool process_is_stopped(int process);

// A rank that the same launcher has started on this machine: this process's neighbours and itself.
typedef struct {
    int rank, process;
} Neighbour;

// Those that can be seen, at most `max` and MAX_NEIGHBOURS; returns how many. Allocates nothing.
#define MAX_NEIGHBOURS 256
int find_neighbour_ranks(Neighbour *neighbours, int max);

#endif
