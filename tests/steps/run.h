// One run of a program under mpirun, as a lab's lab.conf wants it: on simulated machines, traced
// and watched, and ended where it hangs.

#ifndef HVDLAB_STEPS_RUN_H
#define HVDLAB_STEPS_RUN_H

#include "events.h"
#include "lab.h"
#include "output.h"
#include "storage.h"
#include "usage.h"

typedef struct {
    RunPlan plan;   // what was asked for; its texts are the lab's
    int ranks;      // that were started; of parameter servers, too, whose numbers are the last
    int status;     // mpirun's, or 128 + the signal that ended it
    bool hung;      // it had to be ended
    bool silent;    // ... since nothing moved any more
    bool flooded;   // ... since it printed without end
    bool swollen;   // ... since its traces grew without end
    bool greedy;    // ... since it took too much memory or disk, or too many processes
    Usage usage;    // the most that was seen of each
    RankSet forged; // whose traces hold lines of another than the library
    bool killed;    // as the plan says, and ended by that (run_read knows)
    double seconds; // that it took
    bool abandoned; // mpirun went on without processes
    char *work;     // the folder in which it ran, with what it left there
    char *trace;    // the folder of its traces
    char *text;     // what the ranks and mpirun printed

    // Known where run_read has read all of this, which only a reader does.
    int files;     // `work`, open
    Traces traces; // what the ranks did
    Output output; // what they printed
} Run;

// All runs of a check that are over, in the order of lab.conf.
typedef struct {
    Run *items;
    int count;
    bool all;            // those of lab.conf: none of them ended too early
    uint64_t stamp_seed; // that an answer sheet must have; 0: any
} Runs;

static inline const Run *runs_end(const Runs *runs)
{
    return runs->items + runs->count;
}

// How many events of this name each rank has at least.
int run_min_events(const Run *run, const char *name);

// NULL where there is none of that name.
const Run *run_named(const Runs *runs, const char *name);

// The number that follows a flag of the run, "--epochs ", say; NaN where it has none.
double run_flag(const Run *run, const char *flag);

// True where the run is asked for epochs, and has no servers: then every rank trains, by fit().
bool run_trains(const RunPlan *plan);

// True where one process, which is no rank, is on the run's devices.
bool run_is_one_process(const RunPlan *plan);

// The simulated node of a rank, and what hvd says of the rank there.
int run_node(const Run *run, int rank);
int run_local_rank(const Run *run, int rank);
int run_local_size(const Run *run, int rank);
int run_nodes(const Run *run);
bool same_host(const Run *run, int a, int b);
RankSet first_on_hosts(const Run *run, RankSet ranks); // of these ranks the first on each host
bool same_local_rank(const Run *run, int a, int b);

// The ranks that called a function of MPI's or of the library's. What the library calls itself, on
// communicators of its own, does not count; what the program's own all-reduce calls on them does.
RankSet ranks_that_called(const Run *run, const char *function);

// How many processes the ranks have started at least: without them, the launcher, and what is
// around it.
int run_own_processes(const RunPlan *plan, const Usage *usage);

#define MAX_RUN_MEMORY    3e9                   // bytes, of all processes of a run together
#define MAX_RUN_PROCESSES 32                    // that the ranks start
#define DISK_SLACK        1e6                   // bytes: with less room than this the disk is full
#define MAX_RUN_DISK      ((double)MAX_STORAGE) // of files

// How much slower than alone a run is because of what else this machine does; from 1 to 4. What the
// check itself keeps busy does not count.
double crowding(void);

// When a run counts as hung.
typedef struct {
    double deadline; // by seconds_now()
    double patience; // 1; on a slow machine more: times the silence that is allowed
} Limits;

// HVDLAB_CHECK_DEVICE=gpu in the environment takes the runs to GPUs, which ranks may share. They
// are on the CPU otherwise, GPUs or not: each rank has a device of its own.
#define CHECK_DEVICE "HVDLAB_CHECK_DEVICE"
bool runs_on_gpu(void);

// Runs `program`, an absolute name, in folders below `folder`, which must be empty; `files` (NULL:
// none) is a folder whose contents it finds where it begins. It is over a little after the deadline
// at the latest.
Run run_program(const char *program, const char *folder, const char *files, const RunPlan *plan,
                Limits limits);
void run_free(Run *run);

// Ends this program where mpirun starts no processes, or they can't communicate: that is not the
// student's doing, and as many ranks of another program tell. To be called after a run with that
// folder and plan in which no rank has communicated.
void run_need_mpirun(const char *folder, const RunPlan *plan, double patience);

// For readers (reader.h): reads what the run left in its folders, which are open. Whether it failed
// before a rank has communicated.
void run_read(Run *run, int trace, int work);
bool run_failed_at_once(const Run *run);

#endif
