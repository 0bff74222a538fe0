// What the library does before main, and what it does at exit. Nothing else runs there: this file
// has the only constructor, the only function that runs before other libraries' constructors, and
// registers the only exit handlers. No other file includes it; it also sets the hooks by which
// lower layers call higher ones.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/json.h"
#include "base/layout.h"
#include "base/output.h"
#include "comm/hooks.h"
#include "comm/hvd_run.h"
#include "comm/mpi_settings.h"
#include "comm/timeline_file.h"
#include "comm/transport_choice.h"
#include "comm/world.h"
#include "data/hooks.h"
#include "hvd/rank_table.h"
#include "hvd/watch_training.h"
#include "lessons/hooks.h"
#include "lessons/stale_program.h"
#include "observe/hooks.h"
#include "observe/trace.h"
#include "run/args.h"
#include "run/device.h"
#include "run/hooks.h"
#include "watch/arranged.h"
#include "watch/images.h"
#include "watch/mpi_messages.h"
#include "watch/simulated_layout.h"

// Ends the parts that involve other ranks. Registered after the start of a library with an exit
// handler of its own (MPI, CUDA), so that it is called before that handler.
static void leave_job(int status, void *unused)
{
    (void)unused;
    transport_end(status); // NCCL, which is ended among the ranks that MPI connects
    world_end(status);     // MPI; before that the ranks' parts of the timeline are gathered
}

static void register_end_of_job(void)
{
    on_exit(leave_job, NULL);
}

// Registered first, so it is called last: after the program's own handlers, which may print.
static void end_process(int status, void *unused)
{
    (void)unused;
    args_end(status);      // a warning, before the files that it might have to be in are closed
    timeline_finish();     // may lose its file, which output_finish tells
    trace_finish(status);  // the event "end": nothing is traced after it
    output_finish(status); // lost output: exit status 1
}

// In a child that this process forks: the job, the timeline and the advice at exit are its
// parent's. What it prints is its own, and trace_write and the stall watch know their process.
static void forget_in_child(void)
{
    world_forget();
    timeline_forget();
    args_forget();
}

static void join_job(void)
{
    timeline_join(); // sets the ranks' clocks against each other
    register_end_of_job();
}

// What only traces and checks need (watch/): nothing below knows of it.
static void watch(void)
{
    event_written = arranged_by_event;
    images_were_loaded = watch_loaded;
    images_were_drawn = watch_drawn;
    sweep_array = watch_sweep;
}

// Before other libraries' constructors: the launcher's cores for a process that Open MPI has bound
// to some of them. device_use() divides the launcher's cores anyway. But OpenMP counts the cores
// when it is loaded: with more threads than cores its threads sleep at each barrier. The address
// sanitizer is not ready yet.
__attribute__((no_sanitize_address, no_sanitize_thread)) static void unbind(int argc, char **argv,
                                                                            char **environment)
{
    (void)argc, (void)argv;
    const char rank[] = "OMPI_COMM_WORLD_RANK=";
    while (*environment && strncmp(*environment, rank, sizeof rank - 1) != 0)
        environment++;
    cpu_set_t own, launcher, both;
    if (!*environment || sched_getaffinity(0, sizeof own, &own) != 0 ||
        sched_getaffinity(getppid(), sizeof launcher, &launcher) != 0)
        return;
    CPU_AND(&both, &own, &launcher);
    if (CPU_EQUAL(&both, &own))
        syscall(SYS_sched_setaffinity, 0, sizeof launcher, &launcher); // not a traced call
}

__attribute__((section(".preinit_array"), used)) static void (*const before_all)(int, char **,
                                                                                 char **) = unbind;

// A write beyond the limit of a file's size (ulimit -f) is an error like a full disk's, where the
// program has no handler of its own. In a check it ends a program that writes without end.
static void outlive_size_limit(void)
{
    struct sigaction now;
    if (!is_arranged() && sigaction(SIGXFSZ, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGXFSZ, SIG_IGN);
}

__attribute__((constructor)) static void start(void)
{
    watch();        // before any event
    output_begin(); // holds the standard streams, which any message needs
    on_exit(end_process, NULL);
    pthread_atfork(NULL, NULL, forget_in_child);
    own_mpi_find();        // before MPI starts, or mpirun is looked for
    launcher_check();      // exits where the launcher's variables make no sense
    stale_program_check(); // a warning: the student's file was changed since
    json_use_memory();     // what reads and writes JSON: checkpoints, traces
    arranged_read();       // a check's kill, for instance: before the program can avoid it
    outlive_size_limit();
    trace_hide_setting(); // before the program can read its environment
    device_prepare();     // OpenMP reads its environment when it is loaded, or first used
    simulate_launcher();  // HVD_LAYOUT: before anybody asks for a local rank
    world_need_memory();  // exits where MPI could not start
    args_read = timeline_start;
    after_mpi_start = join_job;
    after_nccl_start = register_end_of_job;
    rank_table_watch(); // --show-ranks, --show-memory
    training_watch();   // workers that train different models
    hvd_run_work();     // a worker of hvd_run: its function, then exit
}
