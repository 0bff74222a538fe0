// Starts and ends MPI.

#include "comm/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/memory.h"
#include "base/role.h"
#include "base/error.h"
#include "base/format.h"
#include "base/launcher.h"
#include "base/layout.h"
#include "comm/hooks.h"
#include "observe/activity.h"
#include "observe/trace.h"
#include "comm/mpi_errors.h"
#include "comm/mpi_settings.h"
#include "comm/stall.h"

void (*after_mpi_start)(void);

static const char *const channel_names[] = {"gradients", "variables", "metrics", "values",
                                            "agreement"};
enum { CHANNELS = sizeof channel_names / sizeof *channel_names, MAX_BEFORE_STOP = 8 };

static struct {
    bool started, stopped;
    bool forked; // this process is a child of the rank
    int rank, size;
    MPI_Comm comms[CHANNELS];
    void (*before_stop[MAX_BEFORE_STOP])(void);
    int before_stop_count;
} world = {.size = 1};

void world_end(int status)
{
    if (!world_started())
        return;
    activity_leave(LEFT_MAIN, status);
    if (status == EXIT_SUCCESS)
        world_stop();
    else
        stall_tell_leaving();
}

static void check_launcher(void)
{
    if (!launched())
        note_on_root("started without mpirun: this is the only worker");
    else if (launcher_size() == world.size)
        return;
    else if (launched_by_srun() && isatty(STDERR_FILENO))
        die("SLURM_STEP_ID is set, as srun sets it for %d processes, and Open MPI sees %d: in a "
            "shell that srun started unset SLURM_STEP_ID; else use mpirun or srun --mpi=pmix",
            launcher_size(), world.size);
    else if (launcher_rank() > 0)
        exit(STATUS_USER_MUST); // rank 0 prints the error
    else
        die("another MPI's launcher started %d processes, and Open MPI sees %d: use the mpirun of "
            "Open MPI (mpirun --version tells which one it is)",
            launcher_size(), world.size);
}

static bool mpi_has_ended(void)
{
    int finalized;
    MPI_Finalized(&finalized);
    return world.stopped || finalized;
}

static void abort_job(int status)
{
    if (mpi_has_ended())
        _exit(status);
    MPI_Abort(MPI_COMM_WORLD, status);
}

MPI_Comm ranks_of_machine(MPI_Comm comm, int key)
{
    MPI_Comm machine;
    if (simulates_nodes())
        PMPI_Comm_split(comm, launcher_place().node, key, &machine);
    else
        PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &machine);
    return machine;
}

// The ranks of this machine.
static void find_local_rank(void)
{
    MPI_Comm machine = ranks_of_machine(MPI_COMM_WORLD, world.rank);
    int local_rank, local_size;
    MPI_Comm_rank(machine, &local_rank);
    MPI_Comm_size(machine, &local_size);
    MPI_Comm_free(&machine);
    set_place(local_rank, local_size);
}

// A process with a role (server, worker) is no rank of an MPI job.
static void check_role(void)
{
    Role role = role_from_environment();
    if (role.kind && !launched())
        die("hvd_init: HVD_ROLE says that this is %s %d of a job that is started without mpirun, "
            "and has no ranks: leave hvd_init() out, or unset HVD_ROLE to start the program alone",
            role_name(role.kind), role.number);
}

void world_start(void)
{
    check_role();
    if (mpi_has_ended())
        die("hvd_init: MPI has been ended, by hvd_shutdown() or MPI_Finalize(), and cannot be "
            "started again");
    if (world.started)
        return;
    int initialized;
    MPI_Initialized(&initialized);
    if (!initialized) {
        int provided;
        mpi_settings_choose();
        stall_prepare(launcher_rank(), launcher_size());
        MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    }
    mpi_errors_end_the_job();
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    check_launcher();
    find_local_rank();
    for (int i = 0; i < CHANNELS; i++) {
        PMPI_Comm_dup(MPI_COMM_WORLD, &world.comms[i]); // no event: it is a part of hvd_init
        MPI_Comm_set_name(world.comms[i], channel_names[i]);
    }
    world.started = true;
    if (launched())
        set_abort_handler(abort_job);
    stall_start(world.rank, world.size);
    after_mpi_start();
}

void world_before_stop(void (*function)(void))
{
    CHECK(world.before_stop_count < MAX_BEFORE_STOP);
    world.before_stop[world.before_stop_count++] = function;
}

void world_forget(void)
{
    if (!world.started)
        return;
    world.forked = true;
    set_abort_handler(_exit);
}

void world_stop(void)
{
    if (!world_started())
        return;
    bool ended = mpi_has_ended();
    activity_leave(LEFT_HVD, 0);
    stall_tell_leaving();
    for (int i = 0; !ended && i < world.before_stop_count; i++)
        world.before_stop[i]();
    world.started = false;
    world.stopped = true;
    set_abort_handler(_exit);
    fflush(stdout);
    for (int i = 0; i < CHANNELS && !ended; i++)
        MPI_Comm_free(&world.comms[i]);
    if (!ended)
        MPI_Finalize();
    stall_stop();
}

bool world_started(void)
{
    return world.started && !world.forked;
}

void world_need(const char *caller)
{
    if (mpi_has_ended())
        die("%s: hvd_shutdown() or MPI_Finalize() has been called before; after it nothing of hvd "
            "can be used",
            caller);
    if (!world.started)
        die("%s: call hvd_init() first, at the beginning of main", caller);
}

void world_called(const char *caller)
{
    world_need(caller);
    trace_call_by(caller);
}

int world_rank(void)
{
    return world.rank;
}

int world_size(void)
{
    return world.size;
}

MPI_Comm world_comm(WorldChannel channel)
{
    world_need("the job");
    if (world.forked)
        die("this process was forked after hvd_init(), and is no worker of the job: only the one "
            "that called hvd_init() can communicate");
    return world.comms[channel];
}

bool world_owns(MPI_Comm comm)
{
    for (int i = 0; world_started() && i < CHANNELS; i++)
        if (world.comms[i] == comm)
            return true;
    return false;
}

bool world_spans_hosts(void)
{
    static int hosts; // 0: not known; 2: several
    if (hosts == 0)
        hosts = launcher_place().local_size < world.size ? 2 : 1;
    return hosts > 1;
}

int world_ranks(MPI_Comm comm, int ranks[])
{
    int size;
    PMPI_Comm_size(comm, &size);
    int *own = allocate((size_t)size, sizeof *own);
    for (int r = 0; r < size; r++)
        own[r] = r;
    MPI_Group group, job;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &job);
    PMPI_Group_translate_ranks(group, size, own, job, ranks);
    PMPI_Group_free(&group);
    PMPI_Group_free(&job);
    free(own);
    return size;
}

void trace_call_among(const char *function, const char *name, size_t bytes, MPI_Comm comm)
{
    int *ranks = allocate((size_t)world_size(), sizeof *ranks);
    char *text = numbers_text(ranks, world_ranks(comm, ranks));
    trace("collective_begin", TEXT("function", function), TEXT("name", name), TEXT("ranks", text),
          NUMBER("bytes", bytes), TEXT("op", ""), NUMBER("root", -1));
    free(text);
    free(ranks);
}

const char *comm_name(MPI_Comm comm, char name[MPI_MAX_OBJECT_NAME])
{
    int length = 0;
    name[0] = '\0';
    if (comm != MPI_COMM_NULL)
        PMPI_Comm_get_name(comm, name, &length);
    return name;
}

// ---- Room for MPI.

// With a low limit (ulimit -v) Open MPI exits with messages about its own components, or by a
// signal; so this check reports the limit first. Measured with Open MPI 4.1 on 2 and 4 ranks: the
// minimum with which it starts, and its peak.
#define MIN_ROOM ((size_t)48 << 20)
#define MAX_ROOM ((size_t)224 << 20)

void world_need_memory(void)
{
    if (!launched())
        return;
    need_room(MIN_ROOM, "the start of MPI");
    if (!has_room(MAX_ROOM))
        warn_on_root("the start of MPI takes up to %zu MiB of address space for a moment, and the "
                     "limit (ulimit -v) leaves less: if it fails, this is why",
                     MAX_ROOM >> 20);
}
