// Processes of this machine, as /proc shows them (proc(5)). Nothing here allocates memory or takes
// a lock, so that a thread may call it whatever the others are doing.

#ifndef HVDLAB_BASE_PROCESS_H
#define HVDLAB_BASE_PROCESS_H

#include <stdbool.h>
#include <unistd.h>

typedef struct {
    char name[64];
    char state; // 'T' or 't': stopped; 'Z': dead, and its parent has not waited for it
    int parent;
    double seconds;           // of processor time, of its own threads
    unsigned long long began; // ticks of the system's clock from its start
} ProcessStatus;

// False where there is no such process.
bool process_status(int process, ProcessStatus *status);

// The machine's own name, whatever HVD_LAYOUT simulates; "" where /proc does not show it.
typedef struct {
    char text[65];
} MachineName;
MachineName machine_name(void);

// The beginning of a file, at most size - 1 bytes, with a zero behind it; returns how many, 0 where it
// can't be read.
size_t file_beginning(const char *path, char *text, size_t size);

// All processes that can be seen, at most `max` of them. Returns how many.
enum { MAX_PROCESSES = 16384 };
int process_list(int *processes, int max);

// The children of a process, at most `max` of them. Returns how many.
int process_children(int parent, int *children, int max);

// True where one of the process's first 256 threads has this name (pthread_setname_np(3)).
bool process_has_thread(int process, const char *name);

// True on the thread that runs main. Asks the system once in each thread.
static inline bool is_main_thread(void)
{
    static _Thread_local enum { UNKNOWN, MAIN, OTHER } thread;
    if (thread == UNKNOWN)
        thread = gettid() == getpid() ? MAIN : OTHER;
    return thread == MAIN;
}

#endif
