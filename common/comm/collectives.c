// The collectives of the job and of groups. Values in a GPU's memory are copied to the host first.

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include "comm/agreement.h"
#include "comm/transport.h"
#include "comm/transport_choice.h"
#include "observe/trace.h"
#include "comm/world.h"
#include "base/error.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/share.h"
#include "base/format.h"

// ---- The job.

// This process's rank in the job, cached: a program may ask for it for every element of an array.
static Place place;

void hvd_init(void)
{
    world_start();
    place = launcher_place();
    trace("init", NUMBER("rank", world_rank()), NUMBER("size", world_size()),
          NUMBER("local_rank", place.local_rank), NUMBER("local_size", place.local_size));
}

void hvd_shutdown(void)
{
    trace_call();
    hvd_transport_stop();
    world_stop();
}

// A program may ask these in a loop: the trace gets an event of the first call.
static int query(const char *caller, int answer, bool *told)
{
    world_need(caller);
    if (!*told)
        trace_call_by(caller);
    *told = true;
    return answer;
}

int hvd_rank(void)
{
    static bool told;
    return query(__func__, world_rank(), &told);
}

int hvd_size(void)
{
    static bool told;
    return query(__func__, world_size(), &told);
}

int hvd_local_rank(void)
{
    static bool told;
    return query(__func__, place.local_rank, &told);
}

int hvd_local_size(void)
{
    static bool told;
    return query(__func__, place.local_size, &told);
}

// ---- What callers can do wrong.

static void check_values(const char *caller, const void *values, size_t count)
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

// ---- What the ranks agree on.

static const char *const op_names[] = {"HVD_AVERAGE", "HVD_SUM", "HVD_MIN", "HVD_MAX"};

static Term op_term(HvdOp op)
{
    return text_term("ask", "for ", op_names[op], NULL);
}

static const Term no_term = {.verb = NULL};

// Sums and averages, in which ranks that have joined take part. Returns how many others there are.
static int agree_on_reduction(const char *caller, size_t count, HvdOp op, MPI_Comm comm)
{
    bool adds = op == HVD_SUM || op == HVD_AVERAGE;
    return agree(
        &(Collective){.name = caller,
                      .channel = "values",
                      .terms = {count_term(count), op_term(op), CHOICE_TERM(HVD_HIERARCHICAL)},
                      .sum = {.open = adds, .channel = WORLD_VALUES, .count = count}},
        comm);
}

// A call in which a rank that has joined can't take part.
static void agree_on(const char *caller, Term first, Term second, MPI_Comm comm)
{
    agree(&(Collective){.name = caller, .channel = "values", .terms = {first, second}}, comm);
}

// ---- Each collective, for the job or a group.

static MPI_Comm job(const char *caller, WorldChannel channel)
{
    world_called(caller);
    return world_comm(channel);
}

static MPI_Comm members(const char *caller, HvdGroup group)
{
    world_called(caller);
    if (group.size < 1)
        die("%s: this worker is not in the group", caller);
    return group.comm;
}

static void allreduce(const char *caller, float *values, size_t count, HvdOp op, MPI_Comm comm)
{
    check_values(caller, values, count);
    check_op(caller, op);
    int size, working = agree_on_reduction(caller, count, op, comm);
    MPI_Comm_size(comm, &size);
    if (size > 1) {
        float *host = hvd_host_values(values, count);
        if (op == HVD_AVERAGE && working < size)
            hvd_mpi_average_of_working(host, count, working, comm);
        else
            hvd_mpi_allreduce(host, count, op, comm);
        hvd_return_values(values, host, count);
    }
    agreed_call_ends();
}

void hvd_allreduce(float *values, size_t count, HvdOp op)
{
    allreduce(__func__, values, count, op, job(__func__, WORLD_VALUES));
}

void hvd_group_allreduce(HvdGroup group, float *values, size_t count, HvdOp op)
{
    allreduce(__func__, values, count, op, members(__func__, group));
}

// Values have `bytes` bytes each; `all_counts`: the count of each rank, or NULL.
static void *gather(const void *own, size_t count, MPI_Datatype type, size_t bytes, size_t *total,
                    size_t *all_counts, MPI_Comm comm)
{
    int size, rank;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    int *counts = allocate((size_t)size, sizeof *counts);
    int *offsets = allocate((size_t)size, sizeof *offsets);
    counts[rank] = hvd_mpi_count(count);
    if (size > 1)
        MPI_Allgather(MPI_IN_PLACE, 1, MPI_INT, counts, 1, MPI_INT, comm);
    *total = 0;
    for (int i = 0; i < size; i++) {
        offsets[i] = hvd_mpi_count(*total);
        *total += (size_t)counts[i];
        if (all_counts)
            all_counts[i] = (size_t)counts[i];
    }
    void *all = allocate(*total, bytes);
    if (size > 1)
        MPI_Allgatherv(own, (int)count, type, all, counts, offsets, type, comm);
    else if (count > 0)
        memcpy(all, own, count * bytes);
    free(counts);
    free(offsets);
    return all;
}

static float *gather_floats(const float *values, size_t count, size_t *total, MPI_Comm comm)
{
    float *own = hvd_host_values((float *)(uintptr_t)values, count); // only to be read
    float *all = gather(own, count, MPI_FLOAT, sizeof *all, total, NULL, comm);
    if (own != values)
        free(own);
    return all;
}

static void begin_gather(const char *caller, const void *values, size_t count, const size_t *total,
                         MPI_Comm comm)
{
    check_values(caller, values, count);
    if (!total)
        die("%s: it needs a place for the total count, not NULL", caller);
    agree_on(caller, no_term, no_term, comm);
}

static float *allgather(const char *caller, const float *values, size_t count, size_t *total,
                        MPI_Comm comm)
{
    begin_gather(caller, values, count, total, comm);
    float *all = gather_floats(values, count, total, comm);
    agreed_call_ends();
    return all;
}

float *hvd_allgather(const float *values, size_t count, size_t *total)
{
    return allgather(__func__, values, count, total, job(__func__, WORLD_VALUES));
}

float *hvd_group_allgather(HvdGroup group, const float *values, size_t count, size_t *total)
{
    return allgather(__func__, values, count, total, members(__func__, group));
}

static int *allgather_ints(const char *caller, const int *values, size_t count, size_t *total,
                           size_t *counts, MPI_Comm comm)
{
    begin_gather(caller, values, count, total, comm);
    int *all = gather(values, count, MPI_INT, sizeof *all, total, counts, comm);
    agreed_call_ends();
    return all;
}

int *hvd_allgather_ints(const int *values, size_t count, size_t *total, size_t *counts)
{
    return allgather_ints(__func__, values, count, total, counts, job(__func__, WORLD_VALUES));
}

int *hvd_group_allgather_ints(HvdGroup group, const int *values, size_t count, size_t *total,
                              size_t *counts)
{
    return allgather_ints(__func__, values, count, total, counts, members(__func__, group));
}

static void begin_broadcast(const char *caller, const void *values, size_t count, int root,
                            MPI_Comm comm)
{
    check_values(caller, values, count);
    agree(&(Collective){.name = caller,
                        .channel = "variables",
                        .terms = {count_term(count), hvd_root_term(root)}},
          comm);
    hvd_check_root(caller, root, comm);
}

static void broadcast(const char *caller, float *values, size_t count, int root, MPI_Comm comm)
{
    begin_broadcast(caller, values, count, root, comm);
    int size;
    MPI_Comm_size(comm, &size);
    if (size > 1) {
        float *host = hvd_host_values(values, count);
        MPI_Bcast(host, hvd_mpi_count(count), MPI_FLOAT, root, comm);
        hvd_return_values(values, host, count);
    }
    agreed_call_ends();
}

void hvd_broadcast(float *values, size_t count, int root)
{
    broadcast(__func__, values, count, root, job(__func__, WORLD_VARIABLES));
}

void hvd_group_broadcast(HvdGroup group, float *values, size_t count, int root)
{
    broadcast(__func__, values, count, root, members(__func__, group));
}

static void barrier(const char *caller, MPI_Comm comm)
{
    agree_on(caller, no_term, no_term, comm);
    MPI_Barrier(comm);
    agreed_call_ends();
}

void hvd_barrier(void)
{
    barrier(__func__, job(__func__, WORLD_VALUES));
}

void hvd_group_barrier(HvdGroup group)
{
    barrier(__func__, members(__func__, group));
}

// ---- Of the whole job alone.

void hvd_allreduce_ints(int *values, size_t count, HvdOp op)
{
    static const MPI_Op ops[] = {[HVD_SUM] = MPI_SUM, [HVD_MIN] = MPI_MIN, [HVD_MAX] = MPI_MAX};
    MPI_Comm comm = job(__func__, WORLD_VALUES);
    check_values(__func__, values, count);
    check_op(__func__, op);
    if (op == HVD_AVERAGE)
        die("%s: an average of whole numbers is none; ask for HVD_SUM, HVD_MIN or HVD_MAX",
            __func__);
    agree_on(__func__, count_term(count), op_term(op), comm);
    if (world_size() > 1)
        MPI_Allreduce(MPI_IN_PLACE, values, hvd_mpi_count(count), MPI_INT, ops[op], comm);
    agreed_call_ends();
}

size_t hvd_reduce_scatter(const float *values, size_t count, float *own, HvdOp op)
{
    MPI_Comm comm = job(__func__, WORLD_VALUES);
    check_values(__func__, values, count);
    check_op(__func__, op);
    size_t length = share_of(count, world_rank(), world_size()).count;
    check_values(__func__, own, length);
    agree_on(__func__, count_term(count), op_term(op), comm);
    hvd_mpi_reduce_scatter(values, count, own, op, comm);
    agreed_call_ends();
    return length;
}

SparseGradient hvd_allreduce_sparse(const SparseGradient *own, HvdOp op)
{
    MPI_Comm comm = job(__func__, WORLD_VALUES);
    if (!own || own->count < 0 || own->dimension < 1)
        die("%s: there is no gradient", __func__);
    if (op != HVD_AVERAGE && op != HVD_SUM)
        die("%s: rows can be averaged or added up: HVD_AVERAGE, HVD_SUM", __func__);
    check_values(__func__, own->rows, (size_t)own->count);
    check_values(__func__, own->values, (size_t)own->count);
    // The numbers of rows may differ.
    Term row = number_term("give", "rows of ", own->dimension, " values");
    agree_on(__func__, row, op_term(op), comm);
    SparseGradient all = {.dimension = own->dimension};
    size_t count = (size_t)own->count, rows, values;
    all.rows = gather(own->rows, count, MPI_INT, sizeof(int), &rows, NULL, comm);
    all.values = gather_floats(own->values, count * (size_t)own->dimension, &values, comm);
    all.count = hvd_mpi_count(rows);
    for (size_t i = 0; op == HVD_AVERAGE && i < values; i++)
        all.values[i] /= (float)world_size();
    agreed_call_ends();
    return all;
}

void hvd_broadcast_bytes(void *bytes, size_t count, int root)
{
    MPI_Comm comm = job(__func__, WORLD_VARIABLES);
    begin_broadcast(__func__, bytes, count, root, comm);
    if (world_size() > 1)
        MPI_Bcast(bytes, hvd_mpi_count(count), MPI_BYTE, root, comm);
    agreed_call_ends();
}

static void add_zeros(const Sum *sum)
{
    MPI_Comm comm = world_comm(sum->channel);
    size_t bytes = sum->doubles ? sizeof(double) : sizeof(float);
    void *zeros = allocate(sum->count, bytes);
    if (sum->doubles)
        MPI_Allreduce(MPI_IN_PLACE, zeros, hvd_mpi_count(sum->count), MPI_DOUBLE, MPI_SUM, comm);
    else
        hvd_mpi_allreduce(zeros, sum->count, HVD_SUM, comm);
    free(zeros);
}

int hvd_join(void)
{
    world_called(__func__);
    int last = 0;
    Sum sum;
    while (world_size() > 1 && agree_as_joined(&sum, &last)) {
        add_zeros(&sum);
        agreed_call_ends();
    }
    agreed_call_ends();
    return last;
}

// ---- Groups: how they are made.

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
    MPI_Comm world = job(__func__, WORLD_VALUES), comm;
    agree_on(__func__, no_term, no_term, world);
    MPI_Comm_split(world, color < 0 ? MPI_UNDEFINED : color, world_rank(), &comm);
    agreed_call_ends();
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

static void agree_on_list(const char *caller, const int *ranks, int count, MPI_Comm comm)
{
    char *list = format_text("%d", ranks[0]);
    for (int i = 1; i < count; i++)
        text_add(&list, ", %d", ranks[i]);
    agree_on(caller, text_term("name", "the list ", list, NULL), no_term, comm);
    free(list);
}

HvdGroup hvd_group_of_ranks(const int *ranks, int count)
{
    MPI_Comm world = job(__func__, WORLD_VALUES), comm;
    check_ranks(__func__, ranks, count);
    agree_on_list(__func__, ranks, count, world);
    MPI_Group all, some;
    MPI_Comm_group(world, &all);
    MPI_Group_incl(all, count, ranks, &some);
    MPI_Comm_create(world, some, &comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    agreed_call_ends();
    return group_of(comm);
}

void hvd_group_free(HvdGroup *group)
{
    if (!group)
        die("%s: there is no group (NULL)", __func__);
    // The world's communicator is never freed here; after hvd_shutdown no other exists.
    bool own = group->size > 0 && world_started() && group->comm != world_comm(WORLD_VALUES);
    if (own)
        MPI_Comm_free(&group->comm);
    *group = (HvdGroup){.comm = MPI_COMM_NULL, .rank = -1};
}
