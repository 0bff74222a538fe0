// MPI's functions, watched through its profiling interface (MPI 3.1, chapter 14.2): MPI_Allreduce
// and the other collective calls are defined here, messages in mpi_messages.c. Each is a span
// (observe/span.h), writes the events that trace.h lists, and calls PMPI_Allreduce. The
// declarations are those of any MPI 3.1. All other functions that move data leave an event "call":
// mpi_others.awk makes them from mpi.h.

#include "watch/mpi_calls_inside.h"

#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"
#include "observe/span.h"
#include "comm/stall.h"
#include "observe/trace.h"
#include "comm/world.h"

// ---- What this rank is doing.

// The state that is cached with a communicator.
typedef struct {
    bool whole_job;
    int64_t calls; // that all of its ranks make alike
    int size;
    int ranks[]; // of the job
} CommFacts;

static bool finalized;

static int forget_facts(MPI_Comm comm, int key, void *facts, void *unused)
{
    (void)comm, (void)key, (void)unused;
    free(facts);
    return MPI_SUCCESS;
}

static CommFacts *find_facts(MPI_Comm comm)
{
    int size;
    PMPI_Comm_size(comm, &size);
    CommFacts *facts = allocate(1, sizeof *facts + (size_t)size * sizeof facts->ranks[0]);
    facts->size = world_ranks(comm, facts->ranks);
    facts->whole_job = size == world_size();
    return facts;
}

// NULL for an invalid communicator, and for an intercommunicator.
static CommFacts *facts_of(MPI_Comm comm)
{
    static int key = MPI_KEYVAL_INVALID;
    int found, two_groups;
    CommFacts *facts;
    if (comm == MPI_COMM_NULL || !world_started() || finalized)
        return NULL;
    if (key == MPI_KEYVAL_INVALID)
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget_facts, &key, NULL);
    if (PMPI_Comm_get_attr(comm, key, &facts, &found) != MPI_SUCCESS)
        return NULL;
    if (found)
        return facts;
    if (PMPI_Comm_test_inter(comm, &two_groups) != MPI_SUCCESS || two_groups)
        return NULL;
    facts = find_facts(comm);
    PMPI_Comm_set_attr(comm, key, facts);
    return facts;
}

// ---- Spans.

double bytes_of(int count, MPI_Datatype type)
{
    int element = 0;
    if (type != MPI_DATATYPE_NULL)
        PMPI_Type_size(type, &element);
    return (double)count * element;
}

int world_rank_of(int rank, MPI_Comm comm)
{
    if (rank == MPI_ANY_SOURCE || rank < 0 || comm == MPI_COMM_NULL)
        return -1;
    MPI_Group group, world;
    int size, result = -1;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_size(group, &size);
    if (rank < size)
        PMPI_Group_translate_ranks(group, 1, &rank, world, &result);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return result;
}

SpanCall call_of(const char *function, int64_t count, double bytes, int partner, MPI_Comm comm)
{
    bool shown = timeline_on();
    return (SpanCall){.name = function,
                      .count = count,
                      .peer = -1,
                      .bytes = shown ? (int64_t)bytes : -1,
                      .partner = shown ? world_rank_of(partner, comm) : -1};
}

void begin_waiting(SpanCall call, MPI_Comm comm, bool collective, int peer)
{
    CommFacts *facts = activity_inside() ? NULL : facts_of(comm);
    if (facts && collective && facts->whole_job)
        call.number = ++facts->calls;
    if (facts && peer >= 0 && peer < facts->size)
        call.peer = facts->ranks[peer];
    span_begin_call(&call);
}

void begin_passing(SpanCall call)
{
    span_begin(SPAN_CALL, call.name, call.bytes, call.partner);
}

// ---- Collective calls.

typedef struct {
    const char *function;
    MPI_Comm comm; // MPI_COMM_NULL: no communicator belongs to the call
    int count;     // elements that go out or come in
    MPI_Datatype type;
    MPI_Op op; // MPI_OP_NULL: none
    int root;  // -1: none
} MpiCall;

// "0,2,4", its members as ranks of the job; "" if it has none, or is an intercommunicator. The
// caller frees it.
static char *ranks_of(MPI_Comm comm)
{
    const CommFacts *facts = facts_of(comm);
    return facts ? numbers_text(facts->ranks, facts->size) : numbers_text(NULL, 0);
}

static const char *op_name(MPI_Op op)
{
    return op == MPI_SUM ? "sum" : op == MPI_MAX ? "max" : op == MPI_MIN ? "min" : "";
}

static void trace_mpi_call(const MpiCall *call)
{
    char name[MPI_MAX_OBJECT_NAME];
    char *ranks = ranks_of(call->comm);
    trace("collective_begin", TEXT("function", call->function),
          TEXT("name", comm_name(call->comm, name)), TEXT("ranks", ranks),
          NUMBER("bytes", bytes_of(call->count, call->type)), TEXT("op", op_name(call->op)),
          NUMBER("root", call->root));
    free(ranks);
}

static SpanCall collective_begins(const MpiCall *call)
{
    if (trace_on())
        trace_mpi_call(call);
    return call_of(call->function, call->type == MPI_DATATYPE_NULL ? NO_VALUES : call->count,
                   timeline_on() ? bytes_of(call->count, call->type) : 0, call->root, call->comm);
}

static int collective_ends(const char *function, const char *name, int result)
{
    span_end();
    trace_collective_end(function, name);
    return result;
}

int MPI_Finalize(void)
{
    const MpiCall call = {"MPI_Finalize", MPI_COMM_NULL, 0, MPI_DATATYPE_NULL, MPI_OP_NULL, -1};
    begin_passing(collective_begins(&call));
    activity_leave(LEFT_MPI, EXIT_SUCCESS);
    stall_tell_leaving();
    stall_wait_for_others();
    finalized = true;
    return collective_ends(call.function, "", PMPI_Finalize());
}

int MPI_Abort(MPI_Comm comm, int status)
{
    stall_explained(); // Open MPI says who has called it
    return PMPI_Abort(comm, status);
}

// ---- How many elements a call moves, by its arguments.

static int group_size(MPI_Comm comm)
{
    int size = 0, two_groups = 0;
    if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &two_groups) != MPI_SUCCESS)
        return 0;
    if (two_groups)
        PMPI_Comm_remote_size(comm, &size);
    else
        PMPI_Comm_size(comm, &size);
    return size;
}

static int sum_of(const int counts[], int length)
{
    int sum = 0;
    for (int r = 0; r < length && counts; r++)
        sum += counts[r];
    return sum;
}

static int all_of(const int counts[], MPI_Comm comm)
{
    return sum_of(counts, group_size(comm));
}

// What this rank brings, where it may be in place already: `counts` says what each rank brings.
static int own_of(const void *from, int n, const int counts[], MPI_Comm comm)
{
    int rank = 0;
    if (from != MPI_IN_PLACE)
        return n;
    if (group_size(comm) > 0)
        PMPI_Comm_rank(comm, &rank);
    return counts ? counts[rank] : 0;
}

static int bytes_of_all(const int counts[], const MPI_Datatype types[], int length)
{
    double bytes = 0;
    for (int r = 0; r < length && counts && types; r++)
        bytes += counts[r] > 0 ? bytes_of(counts[r], types[r]) : 0;
    return (int)bytes;
}

// This rank in the group that it sends to; -1: it is not in it.
static int rank_among_receivers(MPI_Comm comm)
{
    int rank = -1, two_groups = 0;
    if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &two_groups) != MPI_SUCCESS)
        return -1;
    if (!two_groups)
        PMPI_Comm_rank(comm, &rank);
    return rank;
}

// What this rank brings to the others, in an all-to-all.
static int to_others(const int counts[], MPI_Comm comm)
{
    int rank = rank_among_receivers(comm);
    return all_of(counts, comm) - (counts && rank >= 0 ? counts[rank] : 0);
}

static int bytes_to_others(const int counts[], const MPI_Datatype types[], MPI_Comm comm)
{
    int rank = rank_among_receivers(comm), all = bytes_of_all(counts, types, group_size(comm));
    return all - (counts && types && rank >= 0 ? bytes_of_all(&counts[rank], &types[rank], 1) : 0);
}

// The ranks that this one sends to in a neighbourhood collective (MPI 3.1, chapter 7.6).
static int neighbours(MPI_Comm comm)
{
    int kind = MPI_UNDEFINED, rank, in, out = 0, weighted;
    if (comm == MPI_COMM_NULL || PMPI_Topo_test(comm, &kind) != MPI_SUCCESS)
        return 0;
    PMPI_Comm_rank(comm, &rank);
    if (kind == MPI_CART)
        PMPI_Cartdim_get(comm, &out);
    else if (kind == MPI_GRAPH)
        PMPI_Graph_neighbors_count(comm, rank, &out);
    else if (kind == MPI_DIST_GRAPH)
        PMPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    return kind == MPI_CART ? 2 * out : out;
}

// ---- The calls.

// Defines MPI_NAME around PMPI_NAME: `parameters` as declared, `arguments` as passed on, then what
// an event says of the call, as in MpiCall.
#define WATCH(function_name, parameters, arguments, ...)                                           \
    int MPI_##function_name parameters                                                             \
    {                                                                                              \
        const MpiCall call = {"MPI_" #function_name, __VA_ARGS__};                                 \
        char comm_text[MPI_MAX_OBJECT_NAME] = "";                                                  \
        if (trace_on())                                                                            \
            comm_name(call.comm, comm_text);                                                       \
        begin_waiting(collective_begins(&call), call.comm, true, MPI_PROC_NULL);                   \
        int result = PMPI_##function_name arguments;                                               \
        return collective_ends(call.function, comm_text, result);                                  \
    }

static int background_begins(const MpiCall *call, const MPI_Request *request, int result)
{
    char name[MPI_MAX_OBJECT_NAME];
    span_end();
    int number = result == MPI_SUCCESS && trace_has_begun() ? keep_request(*request, false) : 0;
    if (trace_on())
        trace("collective_end", TEXT("function", call->function),
              TEXT("name", comm_name(call->comm, name)), NUMBER("request", number));
    return result;
}

// The same, and its form that goes on in the background.
#define WATCH_BOTH(name, background, parameters, arguments, ...)                                   \
    WATCH(name, parameters, arguments, __VA_ARGS__)                                                \
    int MPI_##background(UNPACK parameters, MPI_Request *request)                                  \
    {                                                                                              \
        const MpiCall call = {"MPI_" #background, __VA_ARGS__};                                    \
        begin_passing(collective_begins(&call));                                                   \
        return background_begins(&call, request, PMPI_##background(UNPACK arguments, request));    \
    }

#define NO_DATA 0, MPI_DATATYPE_NULL, MPI_OP_NULL, -1

// clang-format off
WATCH(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made), comm, NO_DATA)
WATCH_BOTH(Comm_dup, Comm_idup, (MPI_Comm comm, MPI_Comm *made), (comm, made), comm, NO_DATA)
WATCH_BOTH(Barrier, Ibarrier, (MPI_Comm comm), (comm), comm, NO_DATA)
WATCH_BOTH(Bcast, Ibcast, (void *data, int n, MPI_Datatype type, int root, MPI_Comm comm),
      (data, n, type, root, comm), comm, n, type, MPI_OP_NULL, root)

#define REDUCES const void *from, void *to, int n, MPI_Datatype type, MPI_Op op
WATCH_BOTH(Allreduce, Iallreduce, (REDUCES, MPI_Comm comm), (from, to, n, type, op, comm), comm, n, type, op, -1)
WATCH_BOTH(Reduce, Ireduce, (REDUCES, int root, MPI_Comm comm), (from, to, n, type, op, root, comm), comm, n, type, op, root)
WATCH_BOTH(Reduce_scatter_block, Ireduce_scatter_block, (REDUCES, MPI_Comm comm), (from, to, n, type, op, comm),
      comm, (int)((int64_t)n * group_size(comm)), type, op, -1)
WATCH_BOTH(Reduce_scatter, Ireduce_scatter, (const void *from, void *to, const int counts[], MPI_Datatype type, MPI_Op op,
      MPI_Comm comm), (from, to, counts, type, op, comm), comm, all_of(counts, comm), type, op, -1)
WATCH_BOTH(Scan, Iscan, (REDUCES, MPI_Comm comm), (from, to, n, type, op, comm), comm, n, type, op, -1)
WATCH_BOTH(Exscan, Iexscan, (REDUCES, MPI_Comm comm), (from, to, n, type, op, comm), comm, n, type, op, -1)

// Of an all-gather and an all-to-all the event has what comes from each rank; of the forms with a count for each rank,
// what this rank brings to an all-gather, and what it brings to the others in an all-to-all.
#define SENDS_ALIKE const void *from, int n, MPI_Datatype type
#define SENDS_EACH  const void *from, const int counts[], const int offsets[], MPI_Datatype type
#define GETS_ALIKE  void *to, int m, MPI_Datatype to_type
#define GETS_EACH   void *to, const int to_counts[], const int to_offsets[], MPI_Datatype to_type
#define EACH_TYPED  const void *from, const int counts[], const WIDTH offsets[], const MPI_Datatype types[], void *to, \
                    const int to_counts[], const WIDTH to_offsets[], const MPI_Datatype to_types[]
#define ALIKE_ALIKE from, n, type, to, m, to_type
#define ALIKE_EACH  from, n, type, to, to_counts, to_offsets, to_type
#define EACH_ALIKE  from, counts, offsets, type, to, m, to_type
#define EACH_EACH   from, counts, offsets, type, to, to_counts, to_offsets, to_type
#define TYPED_TYPED from, counts, offsets, types, to, to_counts, to_offsets, to_types
WATCH_BOTH(Allgather, Iallgather, (SENDS_ALIKE, GETS_ALIKE, MPI_Comm comm), (ALIKE_ALIKE, comm), comm, m, to_type, MPI_OP_NULL, -1)
WATCH_BOTH(Allgatherv, Iallgatherv, (SENDS_ALIKE, GETS_EACH, MPI_Comm comm), (ALIKE_EACH, comm),
      comm, own_of(from, n, to_counts, comm), from == MPI_IN_PLACE ? to_type : type, MPI_OP_NULL, -1)
WATCH_BOTH(Gather, Igather, (SENDS_ALIKE, GETS_ALIKE, int root, MPI_Comm comm), (ALIKE_ALIKE, root, comm),
      comm, from == MPI_IN_PLACE ? m : n, from == MPI_IN_PLACE ? to_type : type, MPI_OP_NULL, root)
WATCH_BOTH(Gatherv, Igatherv, (SENDS_ALIKE, GETS_EACH, int root, MPI_Comm comm), (ALIKE_EACH, root, comm),
      comm, own_of(from, n, to_counts, comm), from == MPI_IN_PLACE ? to_type : type, MPI_OP_NULL, root)
WATCH_BOTH(Scatter, Iscatter, (SENDS_ALIKE, GETS_ALIKE, int root, MPI_Comm comm), (ALIKE_ALIKE, root, comm),
      comm, to == MPI_IN_PLACE ? n : m, to == MPI_IN_PLACE ? type : to_type, MPI_OP_NULL, root)
WATCH_BOTH(Scatterv, Iscatterv, (SENDS_EACH, GETS_ALIKE, int root, MPI_Comm comm), (EACH_ALIKE, root, comm),
      comm, own_of(to, m, counts, comm), to == MPI_IN_PLACE ? type : to_type, MPI_OP_NULL, root)
WATCH_BOTH(Alltoall, Ialltoall, (SENDS_ALIKE, GETS_ALIKE, MPI_Comm comm), (ALIKE_ALIKE, comm), comm, m, to_type, MPI_OP_NULL, -1)
WATCH_BOTH(Alltoallv, Ialltoallv, (SENDS_EACH, GETS_EACH, MPI_Comm comm), (EACH_EACH, comm),
      comm, to_others(from == MPI_IN_PLACE ? to_counts : counts, comm), from == MPI_IN_PLACE ? to_type : type,
      MPI_OP_NULL, -1)
#define WIDTH int
WATCH_BOTH(Alltoallw, Ialltoallw, (EACH_TYPED, MPI_Comm comm), (TYPED_TYPED, comm),
      comm, bytes_to_others(from == MPI_IN_PLACE ? to_counts : counts, from == MPI_IN_PLACE ? to_types : types, comm),
      MPI_BYTE, MPI_OP_NULL, -1)
#undef WIDTH
#define WIDTH MPI_Aint
WATCH_BOTH(Neighbor_alltoallw, Ineighbor_alltoallw, (EACH_TYPED, MPI_Comm comm), (TYPED_TYPED, comm),
      comm, bytes_of_all(counts, types, neighbours(comm)), MPI_BYTE, MPI_OP_NULL, -1)
WATCH_BOTH(Neighbor_allgather, Ineighbor_allgather, (SENDS_ALIKE, GETS_ALIKE, MPI_Comm comm), (ALIKE_ALIKE, comm),
      comm, n, type, MPI_OP_NULL, -1)
WATCH_BOTH(Neighbor_allgatherv, Ineighbor_allgatherv, (SENDS_ALIKE, GETS_EACH, MPI_Comm comm), (ALIKE_EACH, comm),
      comm, n, type, MPI_OP_NULL, -1)
WATCH_BOTH(Neighbor_alltoall, Ineighbor_alltoall, (SENDS_ALIKE, GETS_ALIKE, MPI_Comm comm), (ALIKE_ALIKE, comm),
      comm, n, type, MPI_OP_NULL, -1)
WATCH_BOTH(Neighbor_alltoallv, Ineighbor_alltoallv, (SENDS_EACH, GETS_EACH, MPI_Comm comm), (EACH_EACH, comm),
      comm, sum_of(counts, neighbours(comm)), type, MPI_OP_NULL, -1)
// clang-format on
