// One run of a program under mpirun: RANKS ranks (or fewer) on two pretend machines, traced and
// watched, and ended where it hangs.

#ifndef HVDLAB_STEPS_RUN_H
#define HVDLAB_STEPS_RUN_H

#include "events.h"
#include "output.h"

typedef struct {
    int ranks;            // that were started
    int status;           // mpirun's, or 128 + the signal that ended it
    bool hung;            // it had to be ended
    bool silent;          // ... since nothing moved any more
    double seconds;       // that it took
    Events events[RANKS]; // what the ranks did
    Output output;        // what they printed
} Run;

// When a run counts as hung.
typedef struct {
    double deadline; // by seconds_now()
    double patience; // 1; on a slow machine more: times the silence that is allowed
} Limits;

// HVDLAB_CHECK_DEVICE=gpu in the environment takes the runs to GPUs, which ranks may share. They
// are on the CPU otherwise, GPUs or not: there is a device for each rank, and nobody else is on it.
#define CHECK_DEVICE "HVDLAB_CHECK_DEVICE"
bool runs_on_gpu(void);

// Runs `program` with the flags that every graded run has, and with `more_flags`. The traces and
// logs go to `folder`, which must be empty. It is over a little after the deadline at the latest.
// Ends this program where mpirun doesn't work at all.
Run run_program(const char *program, const char *folder, int ranks, const char *more_flags,
                Limits limits);
void run_free(Run *run);

#endif
