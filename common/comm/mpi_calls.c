// MPI's functions, watched through its profiling interface (MPI 3.1, chapter 14.2): MPI_Allreduce
// and the others are defined here. Each is a span (observe/span.h), writes the events that trace.h
// lists, and calls PMPI_Allreduce. The declarations are those of any MPI 3.1.
//
// With HVDLAB_SYNCHRONOUS_SENDS=1 a send ends only when it is received, whatever its size. Small
// messages otherwise wait in a buffer, and a program that deadlocks with large ones looks right.

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"
#include "observe/span.h"
#include "comm/stall.h"
#include "comm/sweep.h"
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
    int *own = allocate((size_t)size, sizeof *own);
    for (int r = 0; r < size; r++)
        own[r] = r;
    MPI_Group group, world;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, size, own, world, facts->ranks);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    free(own);
    facts->size = size;
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

static double bytes_of(int count, MPI_Datatype type)
{
    int element = 0;
    if (type != MPI_DATATYPE_NULL)
        PMPI_Type_size(type, &element);
    return (double)count * element;
}

// A communicator's rank as a rank of MPI_COMM_WORLD; -1: any, or none. MPI itself refuses an
// invalid rank.
static int world_rank_of(int rank, MPI_Comm comm)
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

// `partner`, the root or the other rank, by the communicator.
static SpanCall call_of(const char *function, int64_t count, double bytes, int partner,
                        MPI_Comm comm)
{
    bool shown = timeline_on();
    return (SpanCall){.name = function,
                      .count = count,
                      .peer = -1,
                      .bytes = shown ? (int64_t)bytes : -1,
                      .partner = shown ? world_rank_of(partner, comm) : -1};
}

// A call in which this rank may wait: for all ranks of the communicator, or for `peer`, one of them
// or MPI's name for none or any.
static void begin_waiting(SpanCall call, MPI_Comm comm, bool collective, int peer)
{
    CommFacts *facts = activity_inside() ? NULL : facts_of(comm);
    if (facts && collective && facts->whole_job)
        call.number = ++facts->calls;
    if (facts && peer >= 0 && peer < facts->size)
        call.peer = facts->ranks[peer];
    span_begin_call(&call);
}

// Another call: it starts an operation in the background, or ends this rank's part in the job.
static void begin_passing(SpanCall call)
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

static const char *comm_name(MPI_Comm comm, char name[MPI_MAX_OBJECT_NAME])
{
    int length = 0;
    name[0] = '\0';
    if (comm != MPI_COMM_NULL)
        PMPI_Comm_get_name(comm, name, &length);
    return name;
}

// "0,2,4", its members as ranks of the job; "" if it has none, or is an intercommunicator. The
// caller frees it.
static char *ranks_of(MPI_Comm comm)
{
    const CommFacts *facts = facts_of(comm);
    char *text = format_text("%s", "");
    for (int r = 0; facts && r < facts->size; r++) {
        char *longer = format_text("%s%s%d", text, r > 0 ? "," : "", facts->ranks[r]);
        free(text);
        text = longer;
    }
    return text;
}

static const char *op_name(MPI_Op op)
{
    return op == MPI_SUM ? "sum" : op == MPI_MAX ? "max" : op == MPI_MIN ? "min" : "";
}

static void trace_collective(const MpiCall *call)
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
        trace_collective(call);
    return call_of(call->function, call->type == MPI_DATATYPE_NULL ? NO_VALUES : call->count,
                   timeline_on() ? bytes_of(call->count, call->type) : 0, call->root, call->comm);
}

static int collective_ends(const char *function, const char *name, int result)
{
    span_end();
    trace("collective_end", TEXT("function", function), TEXT("name", name));
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

// Of the counts for each rank of the communicator.
static int sum_of(const int *counts, MPI_Comm comm)
{
    const CommFacts *facts = facts_of(comm);
    int64_t sum = 0;
    for (int r = 0; facts && counts && r < facts->size; r++)
        sum += counts[r];
    return sum < INT_MAX ? (int)sum : INT_MAX;
}

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

// clang-format off
WATCH(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made),
      comm, 0, MPI_DATATYPE_NULL, MPI_OP_NULL, -1)
WATCH(Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made), comm, 0, MPI_DATATYPE_NULL, MPI_OP_NULL, -1)
WATCH(Barrier, (MPI_Comm comm), (comm), comm, 0, MPI_DATATYPE_NULL, MPI_OP_NULL, -1)
WATCH(Bcast, (void *data, int n, MPI_Datatype type, int root, MPI_Comm comm),
      (data, n, type, root, comm), comm, n, type, MPI_OP_NULL, root)
WATCH(Allreduce, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (from, to, n, type, op, comm), comm, n, type, op, -1)
WATCH(Reduce, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, int root,
      MPI_Comm comm), (from, to, n, type, op, root, comm), comm, n, type, op, root)
WATCH(Allgather, (const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype to_type,
      MPI_Comm comm), (from, n, type, to, m, to_type, comm), comm, m, to_type, MPI_OP_NULL, -1)
WATCH(Allgatherv, (const void *from, int n, MPI_Datatype type, void *to, const int counts[],
      const int offsets[], MPI_Datatype to_type, MPI_Comm comm),
      (from, n, type, to, counts, offsets, to_type, comm), comm, n, type, MPI_OP_NULL, -1)
WATCH(Gather, (const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype to_type,
      int root, MPI_Comm comm), (from, n, type, to, m, to_type, root, comm), comm, n, type, MPI_OP_NULL, root)
WATCH(Scatter, (const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype to_type,
      int root, MPI_Comm comm), (from, n, type, to, m, to_type, root, comm), comm, m, to_type, MPI_OP_NULL, root)
WATCH(Reduce_scatter_block, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (from, to, n, type, op, comm), comm, n, type, op, -1)
WATCH(Alltoall, (const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype to_type,
      MPI_Comm comm), (from, n, type, to, m, to_type, comm), comm, m, to_type, MPI_OP_NULL, -1)
WATCH(Gatherv, (const void *from, int n, MPI_Datatype type, void *to, const int counts[], const int offsets[],
      MPI_Datatype to_type, int root, MPI_Comm comm),
      (from, n, type, to, counts, offsets, to_type, root, comm), comm, n, type, MPI_OP_NULL, root)
WATCH(Scatterv, (const void *from, const int counts[], const int offsets[], MPI_Datatype type, void *to, int m,
      MPI_Datatype to_type, int root, MPI_Comm comm),
      (from, counts, offsets, type, to, m, to_type, root, comm), comm, m, to_type, MPI_OP_NULL, root)
WATCH(Reduce_scatter, (const void *from, void *to, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (from, to, counts, type, op, comm), comm, sum_of(counts, comm), type, op, -1)
WATCH(Scan, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (from, to, n, type, op, comm), comm, n, type, op, -1)
WATCH(Exscan, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (from, to, n, type, op, comm), comm, n, type, op, -1)
WATCH(Alltoallv, (const void *from, const int counts[], const int offsets[], MPI_Datatype type, void *to,
      const int to_counts[], const int to_offsets[], MPI_Datatype to_type, MPI_Comm comm),
      (from, counts, offsets, type, to, to_counts, to_offsets, to_type, comm),
      comm, 0, MPI_DATATYPE_NULL, MPI_OP_NULL, -1)
// clang-format on

// Writes no event.
int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    begin_waiting(call_of("MPI_Probe", NO_VALUES, -1, from, comm), comm, false, from);
    int result = PMPI_Probe(from, tag, comm, status);
    span_end();
    return result;
}

// ---- Requests: each operation that goes on in the background has a number, from 1.

// The requests whose completion the program has not seen yet. MPI reuses handles; the numbers are
// ours.
typedef struct {
    MPI_Request handle;
    int number;
    bool receives;
} Unfinished;

static struct {
    Unfinished *items;
    int count, room, last;
} requests;

static int keep_request(MPI_Request handle, bool receives)
{
    if (requests.count == requests.room) {
        requests.room = 2 * requests.room + 16;
        requests.items = enlarge(requests.items, (size_t)requests.room, sizeof *requests.items);
    }
    requests.items[requests.count++] = (Unfinished){handle, ++requests.last, receives};
    return requests.last;
}

// The numbers of the operations with these handles; 0: none. Operations that complete at once (such
// as those with MPI_PROC_NULL) share a handle: each gets the oldest number that is left.
static void request_numbers(int count, const MPI_Request *handles, int *numbers)
{
    for (int i = 0; i < count; i++) {
        numbers[i] = 0;
        for (int r = 0; r < requests.count && numbers[i] == 0; r++) {
            bool taken = handles[i] == MPI_REQUEST_NULL || requests.items[r].handle != handles[i];
            for (int k = 0; k < i && !taken; k++)
                taken = numbers[k] == requests.items[r].number;
            if (!taken)
                numbers[i] = requests.items[r].number;
        }
    }
}

// Returns whether it was a receive.
static bool forget_request(int number)
{
    for (int i = 0; i < requests.count; i++)
        if (requests.items[i].number == number) {
            bool receives = requests.items[i].receives;
            memmove(&requests.items[i], &requests.items[i + 1],
                    (size_t)(--requests.count - i) * sizeof *requests.items);
            return receives;
        }
    return false;
}

// ---- Messages.

typedef struct {
    const char *function;
    MPI_Comm comm;
    int to, to_tag;     // MPI_PROC_NULL: it sends nothing
    double bytes;       // that it sends
    int from, from_tag; // MPI_PROC_NULL: it receives nothing
    double room;        // for what it receives
    int count;          // elements
    const void *data;   // that it sends; NULL: it sends nothing
    const void *place;  // for what it receives; NULL: it receives nothing
} Message;

#define NOBODY MPI_PROC_NULL, 0, 0

// The event's fields for a direction that the message does not have are null.
static void trace_message(const Message *m, bool sends, bool receives)
{
    char name[MPI_MAX_OBJECT_NAME];
    const double none = __builtin_nan("");
    size_t before = sweep_bytes_before(m->data);
    if (before == 0)
        before = sweep_bytes_before(m->place);
    trace("message_begin", TEXT("function", m->function), TEXT("name", comm_name(m->comm, name)),
          NUMBER("to", sends ? world_rank_of(m->to, m->comm) : none),
          NUMBER("to_tag", sends ? m->to_tag : none), NUMBER("bytes", sends ? m->bytes : none),
          NUMBER("from", receives ? world_rank_of(m->from, m->comm) : none),
          NUMBER("from_tag", receives ? (m->from_tag == MPI_ANY_TAG ? -1 : m->from_tag) : none),
          NUMBER("room", receives ? m->room : none),
          NUMBER("before", before > 0 ? (double)before : none));
}

// A blocking call that sends to one rank and receives from another may wait for either.
static void message_begins(const Message *m, bool waits)
{
    bool sends = m->to != MPI_PROC_NULL, receives = m->from != MPI_PROC_NULL;
    if (trace_on())
        trace_message(m, sends, receives);
    SpanCall call = call_of(m->function, m->count, sends ? m->bytes : m->room,
                            sends ? m->to : m->from, m->comm);
    int peer = !sends ? m->from : !receives || m->from == m->to ? m->to : MPI_PROC_NULL;
    if (waits)
        begin_waiting(call, m->comm, false, peer);
    else
        begin_passing(call);
}

// Of a message that was received.
static double bytes_in(const MPI_Status *status)
{
    MPI_Count bytes = 0;
    PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
    return (double)bytes;
}

// `request`: the operation that the call has started in the background. `status`: MPI's, of a call
// that has received.
static int message_ends(const Message *m, const MPI_Request *request, const MPI_Status *status,
                        int result)
{
    span_end();
    bool receives = m->from != MPI_PROC_NULL;
    if (!trace_on())
        return result;
    int number = request ? keep_request(*request, receives) : 0;
    if (receives && !request && result == MPI_SUCCESS)
        trace("message_end", TEXT("function", m->function), NUMBER("request", number),
              NUMBER("received", bytes_in(status)),
              NUMBER("source", world_rank_of(status->MPI_SOURCE, m->comm)),
              NUMBER("tag", status->MPI_TAG));
    else
        trace("message_end", TEXT("function", m->function), NUMBER("request", number));
    return result;
}

// What MPI is given where the program wants no status.
static MPI_Status *status_or(MPI_Status *status, MPI_Status *own)
{
    return status == MPI_STATUS_IGNORE ? own : status;
}

// `call` may use `seen`, which holds the result of a receive.
#define WATCH_MESSAGE(name, parameters, call, request, status, ...)                                \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        const MPI_Request *begun = request;                                                        \
        MPI_Status own = {0}, *seen = status_or(status, &own);                                     \
        const Message message = {"MPI_" #name, __VA_ARGS__};                                       \
        message_begins(&message, !begun);                                                          \
        int result = call;                                                                         \
        return message_ends(&message, begun, seen, result);                                        \
    }

static bool sends_are_synchronous(void)
{
    const char *wanted = getenv("HVDLAB_SYNCHRONOUS_SENDS");
    return wanted && strcmp(wanted, "1") == 0;
}

// clang-format off
#define SEND_PARAMETERS const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm
#define SEND_ARGUMENTS  data, n, type, to, tag, comm
#define NO_STATUS       MPI_STATUS_IGNORE
#define SENDS           comm, to, tag, bytes_of(n, type), NOBODY, n, data, NULL
WATCH_MESSAGE(Send, (SEND_PARAMETERS),
              (sends_are_synchronous() ? PMPI_Ssend : PMPI_Send)(SEND_ARGUMENTS), NULL, NO_STATUS, SENDS)
WATCH_MESSAGE(Ssend, (SEND_PARAMETERS), PMPI_Ssend(SEND_ARGUMENTS), NULL, NO_STATUS, SENDS)
WATCH_MESSAGE(Rsend, (SEND_PARAMETERS), PMPI_Rsend(SEND_ARGUMENTS), NULL, NO_STATUS, SENDS)
WATCH_MESSAGE(Bsend, (SEND_PARAMETERS), PMPI_Bsend(SEND_ARGUMENTS), NULL, NO_STATUS, SENDS)
WATCH_MESSAGE(Isend, (SEND_PARAMETERS, MPI_Request *request),
              (sends_are_synchronous() ? PMPI_Issend : PMPI_Isend)(SEND_ARGUMENTS, request), request, NO_STATUS, SENDS)
WATCH_MESSAGE(Issend, (SEND_PARAMETERS, MPI_Request *request), PMPI_Issend(SEND_ARGUMENTS, request),
              request, NO_STATUS, SENDS)
WATCH_MESSAGE(Recv, (void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status),
              PMPI_Recv(data, n, type, from, tag, comm, seen), NULL, status,
              comm, NOBODY, from, tag, bytes_of(n, type), n, NULL, data)
WATCH_MESSAGE(Irecv, (void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request),
              PMPI_Irecv(data, n, type, from, tag, comm, request), request, NO_STATUS,
              comm, NOBODY, from, tag, bytes_of(n, type), n, NULL, data)
WATCH_MESSAGE(Sendrecv, (const void *data, int n, MPI_Datatype type, int to, int tag, void *place, int m,
              MPI_Datatype place_type, int from, int from_tag, MPI_Comm comm, MPI_Status *status),
              PMPI_Sendrecv(data, n, type, to, tag, place, m, place_type, from, from_tag, comm, seen), NULL, status,
              comm, to, tag, bytes_of(n, type), from, from_tag, bytes_of(m, place_type), m, data, place)
WATCH_MESSAGE(Sendrecv_replace, (void *data, int n, MPI_Datatype type, int to, int tag, int from, int from_tag,
              MPI_Comm comm, MPI_Status *status),
              PMPI_Sendrecv_replace(data, n, type, to, tag, from, from_tag, comm, seen), NULL, status,
              comm, to, tag, bytes_of(n, type), from, from_tag, bytes_of(n, type), n, data, data)
// clang-format on

// Non-blocking collective calls.
#define WATCH_BACKGROUND(name, parameters, arguments, ...)                                         \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        const MpiCall call = {"MPI_" #name, __VA_ARGS__};                                          \
        begin_passing(collective_begins(&call));                                                   \
        return background_begins(&call, request, PMPI_##name arguments);                           \
    }

static int background_begins(const MpiCall *call, const MPI_Request *request, int result)
{
    char name[MPI_MAX_OBJECT_NAME];
    span_end();
    if (trace_on())
        trace("collective_end", TEXT("function", call->function),
              TEXT("name", comm_name(call->comm, name)),
              NUMBER("request", keep_request(*request, false)));
    return result;
}

// clang-format off
WATCH_BACKGROUND(Iallreduce, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                 MPI_Request *request), (from, to, n, type, op, comm, request), comm, n, type, op, -1)
WATCH_BACKGROUND(Ireduce, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                 MPI_Request *request), (from, to, n, type, op, root, comm, request), comm, n, type, op, root)
WATCH_BACKGROUND(Ibcast, (void *data, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request),
                 (data, n, type, root, comm, request), comm, n, type, MPI_OP_NULL, root)
WATCH_BACKGROUND(Igather, (const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype to_type, int root,
                 MPI_Comm comm, MPI_Request *request), (from, n, type, to, m, to_type, root, comm, request),
                 comm, n, type, MPI_OP_NULL, root)
WATCH_BACKGROUND(Iallgather, (const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype to_type,
                 MPI_Comm comm, MPI_Request *request), (from, n, type, to, m, to_type, comm, request),
                 comm, n, type, MPI_OP_NULL, -1)
WATCH_BACKGROUND(Ireduce_scatter, (const void *from, void *to, const int counts[], MPI_Datatype type, MPI_Op op,
                 MPI_Comm comm, MPI_Request *request), (from, to, counts, type, op, comm, request),
                 comm, sum_of(counts, comm), type, op, -1)
// clang-format on

// ---- Waiting for what goes on in the background.

// "3,4", the numbers of those requests; the caller frees it.
static char *request_names(int count, const int *numbers)
{
    char *names = format_text("%s", "");
    for (int i = 0; i < count; i++) {
        if (numbers[i] == 0)
            continue;
        char *longer = format_text("%s%s%d", names, *names ? "," : "", numbers[i]);
        free(names);
        names = longer;
    }
    return names;
}

// The requests of a wait, with their handles before it.
typedef struct {
    const char *function;
    int count;
    int *numbers;
    MPI_Status *statuses; // MPI's results; of `own` where the program wants none
    MPI_Status *own;
    const int *indices; // the requests to which statuses belong; NULL: to all, in their order
} Waiting;

static Waiting wait_begins(const char *function, int count, const MPI_Request *handles, bool blocks,
                           MPI_Status *statuses, const int *indices)
{
    Waiting waiting = {
        .function = function, .count = count, .statuses = statuses, .indices = indices};
    if (trace_on()) {
        waiting.numbers = allocate((size_t)count, sizeof *waiting.numbers);
        request_numbers(count, handles, waiting.numbers);
        if (statuses == MPI_STATUSES_IGNORE || statuses == MPI_STATUS_IGNORE)
            waiting.statuses = waiting.own = allocate((size_t)count, sizeof *waiting.own);
    }
    if (trace_on() && blocks) {
        char *names = request_names(count, waiting.numbers);
        trace("wait_begin", TEXT("function", function), TEXT("requests", names));
        free(names);
    }
    if (blocks)
        begin_waiting(call_of(function, NO_VALUES, -1, MPI_PROC_NULL, MPI_COMM_NULL), MPI_COMM_NULL,
                      false, MPI_PROC_NULL);
    return waiting;
}

static const MPI_Status *status_of(const Waiting *waiting, int request)
{
    int at = 0;
    while (waiting->indices && at + 1 < waiting->count && waiting->indices[at] != request)
        at++;
    return &waiting->statuses[waiting->indices ? at : request];
}

// MPI has set the handles of completed operations to MPI_REQUEST_NULL. A test that completes
// nothing leaves no event: programs test in loops.
static int wait_ends(Waiting *waiting, const MPI_Request *handles, bool blocks, int result)
{
    if (blocks)
        span_end();
    char *done = NULL;
    double received = 0;
    for (int i = 0; waiting->numbers && i < waiting->count; i++) {
        if (waiting->numbers[i] == 0 || handles[i] != MPI_REQUEST_NULL)
            continue;
        if (forget_request(waiting->numbers[i]))
            received += bytes_in(status_of(waiting, i));
        char *longer =
            format_text("%s%s%d", done ? done : "", done ? "," : "", waiting->numbers[i]);
        free(done);
        done = longer;
    }
    if (done || blocks)
        trace("wait_end", TEXT("function", waiting->function), TEXT("requests", done ? done : ""),
              NUMBER("received", received));
    free(done);
    free(waiting->numbers);
    free(waiting->own);
    return result;
}

// `arguments` has `seen`, where MPI puts statuses.
#define WATCH_WAIT(name, parameters, arguments, count, handles, blocks, results, places)           \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        Waiting waiting = wait_begins("MPI_" #name, count, handles, blocks, results, places);      \
        MPI_Status *seen = waiting.statuses;                                                       \
        int result = PMPI_##name arguments;                                                        \
        return wait_ends(&waiting, handles, blocks, result);                                       \
    }

// clang-format off
WATCH_WAIT(Wait, (MPI_Request *request, MPI_Status *status), (request, seen), 1, request, true, status, NULL)
WATCH_WAIT(Waitall, (int n, MPI_Request *all, MPI_Status *statuses), (n, all, seen), n, all, true, statuses, NULL)
WATCH_WAIT(Waitany, (int n, MPI_Request *all, int *index, MPI_Status *status), (n, all, index, seen), n, all, true,
           status, index)
WATCH_WAIT(Waitsome, (int n, MPI_Request *all, int *count, int *indices, MPI_Status *statuses),
           (n, all, count, indices, seen), n, all, true, statuses, indices)
WATCH_WAIT(Test, (MPI_Request *request, int *done, MPI_Status *status), (request, done, seen), 1, request, false,
           status, NULL)
WATCH_WAIT(Testall, (int n, MPI_Request *all, int *done, MPI_Status *statuses), (n, all, done, seen), n, all, false,
           statuses, NULL)
WATCH_WAIT(Testany, (int n, MPI_Request *all, int *index, int *done, MPI_Status *status),
           (n, all, index, done, seen), n, all, false, status, index)
WATCH_WAIT(Testsome, (int n, MPI_Request *all, int *count, int *indices, MPI_Status *statuses),
           (n, all, count, indices, seen), n, all, false, statuses, indices)
// clang-format on
