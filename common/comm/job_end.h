// mpirun's process: whether it is gone, and the files that Open MPI then leaves. Also the system's
// state of the job's processes on this machine. base/last_words.h says which process prints the
// last message.

#ifndef HVDLAB_JOB_END_H
#define HVDLAB_JOB_END_H

#include <stdbool.h>
#include <stdint.h>

// Looks who the launcher is, on the main thread; only Open MPI's counts. Afterwards: its process,
// 0 if it is not known; whether it is gone; and where to write when it is: what mpirun wrote to as
// standard error, if this process `speaks`, is on the same machine and may do so, else its own.
void remember_launcher(bool speaks);
int known_launcher(void);
bool launcher_is_gone(void);
int launcher_stderr(void);

// Removes the memory that the ranks of this machine shared, as far as this process has it, and the
// folder that mpirun made for the job.
void remove_leftovers(void);

// Numbers of this machine, the same in all its processes that see each other, and of its monotonic
// clock, which counts from the kernel's start (a time namespace has one of its own). 0: not known.
uint64_t machine_number(void);
uint64_t clock_number(void);

// True where a process is stopped, by SIGSTOP or a debugger.
bool process_is_stopped(int process);

// The ranks that the same launcher has started on this machine, this one included, as far as they
// can be seen: whether they are stopped, and have a thread of that name. Allocates nothing.
enum { MAX_NEIGHBOURS = 256 };
typedef struct {
    int rank;
    bool stopped, has_thread;
} Neighbour;
typedef struct {
    int count;
    Neighbour of[MAX_NEIGHBOURS];
} Neighbours;
void find_neighbours(const char *thread, Neighbours *all);

#endif
