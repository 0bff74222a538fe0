// A program that is watched: started in a process group of its own, with what it prints collected,
// and ended for certain, with all that it started.

#ifndef HVDLAB_STEPS_PROCESS_H
#define HVDLAB_STEPS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MAX_PROCESS_MEMORY (4ll << 30) // bytes: of a process; and of all, where there are cgroups

typedef struct {
    pid_t pid;
    int pipe;           // standard output and error of the program come from here; -1: closed
    char *text;         // what came so far, with a '\0' behind it; NULL: nothing. Owned
    size_t bytes;       // of it; those beyond the first megabyte are dropped
    bool flooded;       // some were
    char *limit;        // the cgroup of memory_limit.h; NULL: there is none
    bool out_of_memory; // process_stop sets it: the kernel killed a process at that limit
    bool ended;
    int status; // when it has ended: the exit status, or 128 + the signal
} Process;

// To be called once, before any other: Control-C and the like then end what runs, and this program
// with status 130; `tidy_up` is called then, after what runs.
void process_prepare(void (*tidy_up)(void));

// What a child does before it becomes its program, from now on; NULL: nothing.
void process_in_child(void (*function)(void));

// Runs argv[0], found as a shell finds it, with nothing to read on standard input. Ends this
// program when that is impossible.
Process process_start(const char *const argv[]);

// Calls a function in a child, which exits with status 0 after it: what it prints is the process's
// text. The child keeps no file of this program open, and handles no signal as this program does.
Process process_call(void (*function)(void *), void *argument);

// Waits up to `milliseconds` for something to happen, and takes it up: text, or the end. Ends this
// program, with all that runs, where the user wants that.
void process_wait(Process *process, int milliseconds);

// True where some process that the program started itself is alive; with `generations` 2, one that
// such a process started, and so on.
bool process_has_children(const Process *process, int generations);

// Kills the process alone, which has none of its own, while others run on.
void process_kill(Process *process);

// Exits: politely first, so that it can tidy up. Afterwards nothing that it started is alive.
void process_stop(Process *process);

// Waits for the end of a process, or for that of its time, and stops it then. The caller frees it.
Process process_end_within(Process process, double seconds);

// Runs a program to its end, however long it takes. The caller frees it.
Process process_run(const char *const argv[]);

// For a process that process_stop has ended.
void process_free(Process *process);

#endif
