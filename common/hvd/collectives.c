// The collectives, of the whole job and of groups of its ranks. Values lie in the host's memory;
// those that lie in a GPU's travel as a copy in the host's.

#include "hvd/hvd.h"

#include <stdlib.h>
#include <string.h>
#include "hvd/hvd_transport.h"
#include "sys/trace.h"
#include "sys/world.h"
#include "base/util.h"

// ---- What callers can do wrong.

static void check_values(const char *caller, const float *values, size_t count)
{
    if (!values && count > 0)
        die("%s: the values are NULL", caller);
}

static void check_op(const char *caller, HvdOp op)
{
    if ((int)op < (int)HVD_AVERAGE || op > HVD_MAX)
        die("%s: there is no operation %d; they are HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX", caller,
            (int)op);
}

static void check_member(const char *caller, HvdGroup group)
{
    world_need(caller);
    if (group.size < 1)
        die("%s: this worker is not in the group", caller);
}

void hvd_check_root(const char *caller, int root, MPI_Comm comm)
{
    int size, lowest_highest[2] = {-root, root};
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(MPI_IN_PLACE, lowest_highest, 2, MPI_INT, MPI_MAX, comm);
    int lowest = -lowest_highest[0], highest = lowest_highest[1];
    if (lowest != highest)
        die("%s: the ranks name different roots, from %d to %d; all must name the same", caller,
            lowest, highest);
    if (root < 0 || root >= size)
        die("%s: there is no rank %d among %d to be the root", caller, root, size);
}

// ---- Over the ranks of a communicator.

static void allreduce(float *values, size_t count, HvdOp op, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    if (size == 1)
        return;
    float *host = hvd_host_values(values, count);
    mpi_allreduce(host, count, op, comm);
    hvd_return_values(values, host, count);
}

static float *allgather(const float *values, size_t count, size_t *total, MPI_Comm comm)
{
    int size, rank;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    int *counts = allocate((size_t)size, sizeof *counts);
    int *offsets = allocate((size_t)size, sizeof *offsets);
    counts[rank] = mpi_count(count);
    MPI_Allgather(MPI_IN_PLACE, 1, MPI_INT, counts, 1, MPI_INT, comm);
    *total = 0;
    for (int i = 0; i < size; i++) {
        offsets[i] = mpi_count(*total);
        *total += (size_t)counts[i];
    }
    float *all = allocate(*total, sizeof *all);
    float *own = hvd_host_values((float *)(uintptr_t)values, count); // only to be read
    MPI_Allgatherv(own, (int)count, MPI_FLOAT, all, counts, offsets, MPI_FLOAT, comm);
    if (own != values)
        free(own);
    free(counts);
    free(offsets);
    return all;
}

static void broadcast(const char *caller, float *values, size_t count, int root, MPI_Comm comm)
{
    hvd_check_root(caller, root, comm);
    float *host = hvd_host_values(values, count);
    MPI_Bcast(host, mpi_count(count), MPI_FLOAT, root, comm);
    hvd_return_values(values, host, count);
}

// ---- Of the whole job.

void hvd_allreduce(float *values, size_t count, HvdOp op)
{
    world_need(__func__);
    trace_call();
    check_values(__func__, values, count);
    check_op(__func__, op);
    allreduce(values, count, op, world_comm(WORLD_VALUES));
}

float *hvd_allgather(const float *values, size_t count, size_t *total)
{
    world_need(__func__);
    trace_call();
    check_values(__func__, values, count);
    if (!total)
        die("%s: it needs a place for the total count, not NULL", __func__);
    return allgather(values, count, total, world_comm(WORLD_VALUES));
}

void hvd_broadcast(float *values, size_t count, int root)
{
    world_need(__func__);
    trace_call();
    check_values(__func__, values, count);
    broadcast(__func__, values, count, root, world_comm(WORLD_VARIABLES));
}

void hvd_barrier(void)
{
    world_need(__func__);
    trace_call();
    MPI_Barrier(world_comm(WORLD_VALUES));
}

// ---- Groups.

HvdGroup hvd_world(void)
{
    world_need(__func__);
    return (HvdGroup){world_comm(WORLD_VALUES), world_rank(), world_size()};
}

static HvdGroup group_of(MPI_Comm comm)
{
    HvdGroup group = {.comm = comm, .rank = -1};
    if (comm == MPI_COMM_NULL)
        return group;
    MPI_Comm_rank(comm, &group.rank);
    MPI_Comm_size(comm, &group.size);
    MPI_Comm_set_name(comm, "group");
    return group;
}

HvdGroup hvd_group_split(int color)
{
    world_need(__func__);
    trace_call();
    MPI_Comm comm;
    MPI_Comm_split(world_comm(WORLD_VALUES), color < 0 ? MPI_UNDEFINED : color, world_rank(),
                   &comm);
    return group_of(comm);
}

static void check_ranks(const char *caller, const int *ranks, int count)
{
    if (!ranks || count < 1)
        die("%s: a group needs a list of at least one rank", caller);
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= world_size())
            die("%s: there is no rank %d among %d", caller, ranks[i], world_size());
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                die("%s: rank %d is in the list twice", caller, ranks[i]);
    }
}

// A sum of ranks and places that another list would hardly have.
static double list_number(const int *ranks, int count)
{
    uint64_t hash = (uint64_t)count;
    for (int i = 0; i < count; i++)
        hash = (hash ^ (uint64_t)ranks[i]) * 0x9e3779b97f4a7c15u;
    return (double)(hash >> 11); // a double holds it
}

HvdGroup hvd_group_of_ranks(const int *ranks, int count)
{
    world_need(__func__);
    trace_call();
    check_ranks(__func__, ranks, count);
    MPI_Comm world = world_comm(WORLD_VALUES), comm;
    if (!is_same_everywhere(list_number(ranks, count), world))
        die("%s: the workers name different ranks, or in another order; all must name the same",
            __func__);
    MPI_Group all, some;
    MPI_Comm_group(world, &all);
    MPI_Group_incl(all, count, ranks, &some);
    MPI_Comm_create(world, some, &comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return group_of(comm);
}

void hvd_group_allreduce(HvdGroup group, float *values, size_t count, HvdOp op)
{
    check_member(__func__, group);
    trace_call();
    check_values(__func__, values, count);
    check_op(__func__, op);
    allreduce(values, count, op, group.comm);
}

float *hvd_group_allgather(HvdGroup group, const float *values, size_t count, size_t *total)
{
    check_member(__func__, group);
    trace_call();
    check_values(__func__, values, count);
    if (!total)
        die("%s: it needs a place for the total count, not NULL", __func__);
    return allgather(values, count, total, group.comm);
}

void hvd_group_broadcast(HvdGroup group, float *values, size_t count, int root)
{
    check_member(__func__, group);
    trace_call();
    check_values(__func__, values, count);
    broadcast(__func__, values, count, root, group.comm);
}

void hvd_group_barrier(HvdGroup group)
{
    check_member(__func__, group);
    trace_call();
    MPI_Barrier(group.comm);
}

void hvd_group_free(HvdGroup *group)
{
    if (!group)
        die("%s: there is no group (NULL)", __func__);
    // The world's communicator stays; and after hvd_shutdown there is none left.
    bool own = group->size > 0 && world_started() && group->comm != world_comm(WORLD_VALUES);
    if (own && group->comm != MPI_COMM_NULL)
        MPI_Comm_free(&group->comm);
    *group = (HvdGroup){.comm = MPI_COMM_NULL, .rank = -1};
}
