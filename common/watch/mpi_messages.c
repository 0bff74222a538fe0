// Messages, and requests: what goes on in the background, watched as mpi_calls.c says.
//
// Where sends are synchronous (arranged.h) each ends only when it is received, whatever its size.
// Small messages otherwise wait in a buffer, and a program that deadlocks with large ones looks
// right.

#include "watch/mpi_messages.h"

#include <stdlib.h>
#include <string.h>
#include "watch/arranged.h"
#include "base/format.h"
#include "base/memory.h"
#include "comm/world.h"
#include "observe/trace.h"
#include "watch/mpi_calls_inside.h"

// ---- Requests: each operation that goes on in the background has a number, from 1.

// The requests whose completion the program has not seen yet. MPI reuses handles; the numbers are
// ours. They are kept while tracing is paused, too.
typedef struct {
    MPI_Request handle;
    int number;
    bool receives;
} Unfinished;

static struct {
    Unfinished *items;
    int count, room, last;
} requests;

int keep_request(MPI_Request handle, bool receives)
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

// The array that a sweep tries. Memory just before it belongs to it, so only a pointer into the
// array leads there.
static struct {
    uintptr_t begin;
    size_t before;
} swept;

void watch_sweep(const void *array, size_t before)
{
    swept.begin = (uintptr_t)array;
    swept.before = before;
}

// How many bytes before that array it is; 0: it is not there, or far from it.
static size_t bytes_before(const void *address)
{
    size_t distance = swept.begin - (uintptr_t)address;
    return distance <= swept.before ? distance : 0;
}

// The event's fields for a direction that the message does not have are null.
static void trace_message(const Message *m, bool sends, bool receives)
{
    char name[MPI_MAX_OBJECT_NAME];
    const double none = __builtin_nan("");
    size_t before = bytes_before(m->data);
    if (before == 0)
        before = bytes_before(m->place);
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
    bool begun = request && result == MPI_SUCCESS && trace_has_begun();
    int number = begun ? keep_request(*request, receives) : 0;
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

// Messages of the calls that are to come: of persistent requests, and of probes that have taken a
// message out of the queue.
typedef struct {
    MPI_Request handle; // MPI_REQUEST_NULL: it is a probe's
    MPI_Message taken;
    Message message;
} Expected;

static struct {
    Expected *items;
    int count, room;
} expected;

static void expect(Expected item)
{
    if (!trace_on() && !trace_has_begun())
        return;
    if (expected.count == expected.room) {
        expected.room = 2 * expected.room + 16;
        expected.items = enlarge(expected.items, (size_t)expected.room, sizeof *expected.items);
    }
    expected.items[expected.count++] = item;
}

// The place of a persistent request, or of a probe's message; -1: nothing is known of it.
static int find_expected(MPI_Request handle, MPI_Message taken)
{
    for (int i = expected.count - 1; i >= 0; i--)
        if (expected.items[i].handle == handle && expected.items[i].taken == taken)
            return i;
    return -1;
}

static void forget_expected(int place)
{
    if (place >= 0)
        expected.items[place] = expected.items[--expected.count];
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
WATCH_MESSAGE(Ibsend, (SEND_PARAMETERS, MPI_Request *request), PMPI_Ibsend(SEND_ARGUMENTS, request),
              request, NO_STATUS, SENDS)
WATCH_MESSAGE(Irsend, (SEND_PARAMETERS, MPI_Request *request), PMPI_Irsend(SEND_ARGUMENTS, request),
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

// ---- Probes. They write no events.

int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    begin_waiting(call_of("MPI_Probe", NO_VALUES, -1, from, comm), comm, false, from);
    int result = PMPI_Probe(from, tag, comm, status);
    span_end();
    return result;
}

static void message_taken(int from, int tag, MPI_Comm comm, const MPI_Status *status,
                          MPI_Message taken)
{
    if (status != MPI_STATUS_IGNORE)
        from = status->MPI_SOURCE, tag = status->MPI_TAG;
    expect((Expected){MPI_REQUEST_NULL, taken, {.comm = comm, .from = from, .from_tag = tag}});
}

int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message *taken, MPI_Status *status)
{
    begin_waiting(call_of("MPI_Mprobe", NO_VALUES, -1, from, comm), comm, false, from);
    int result = PMPI_Mprobe(from, tag, comm, taken, status);
    span_end();
    if (result == MPI_SUCCESS)
        message_taken(from, tag, comm, status, *taken);
    return result;
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int *found, MPI_Message *taken,
                MPI_Status *status)
{
    int result = PMPI_Improbe(from, tag, comm, found, taken, status);
    if (result == MPI_SUCCESS && *found)
        message_taken(from, tag, comm, status, *taken);
    return result;
}

// Who has sent the message that a probe took.
static Message taken_message(const char *function, void *data, int n, MPI_Datatype type,
                             MPI_Message taken)
{
    int place = find_expected(MPI_REQUEST_NULL, taken);
    Message message = {.comm = MPI_COMM_WORLD, .from = MPI_ANY_SOURCE, .from_tag = MPI_ANY_TAG};
    if (place >= 0)
        message = expected.items[place].message;
    forget_expected(place);
    message.function = function;
    message.to = MPI_PROC_NULL;
    message.room = bytes_of(n, type);
    message.count = n;
    message.place = data;
    return message;
}

int MPI_Mrecv(void *data, int n, MPI_Datatype type, MPI_Message *taken, MPI_Status *status)
{
    const Message message = taken_message("MPI_Mrecv", data, n, type, *taken);
    MPI_Status own = {0}, *seen = status_or(status, &own);
    message_begins(&message, true);
    int result = PMPI_Mrecv(data, n, type, taken, seen);
    return message_ends(&message, NULL, seen, result);
}

int MPI_Imrecv(void *data, int n, MPI_Datatype type, MPI_Message *taken, MPI_Request *request)
{
    const Message message = taken_message("MPI_Imrecv", data, n, type, *taken);
    message_begins(&message, false);
    int result = PMPI_Imrecv(data, n, type, taken, request);
    return message_ends(&message, request, NULL, result);
}

// ---- Persistent requests: each start is a message.

#define PERSISTENT(name, parameters, call, ...)                                                    \
    int MPI_##name(UNPACK parameters, MPI_Request *request)                                        \
    {                                                                                              \
        int result = call;                                                                         \
        if (result == MPI_SUCCESS)                                                                 \
            expect((Expected){*request, MPI_MESSAGE_NULL, {"MPI_Start", __VA_ARGS__}});            \
        return result;                                                                             \
    }

// clang-format off
#define RECEIVE_PARAMETERS void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm
#define RECEIVES           comm, NOBODY, from, tag, bytes_of(n, type), n, NULL, data
PERSISTENT(Send_init, (SEND_PARAMETERS),
           (sends_are_synchronous() ? PMPI_Ssend_init : PMPI_Send_init)(SEND_ARGUMENTS, request), SENDS)
PERSISTENT(Ssend_init, (SEND_PARAMETERS), PMPI_Ssend_init(SEND_ARGUMENTS, request), SENDS)
PERSISTENT(Bsend_init, (SEND_PARAMETERS), PMPI_Bsend_init(SEND_ARGUMENTS, request), SENDS)
PERSISTENT(Rsend_init, (SEND_PARAMETERS), PMPI_Rsend_init(SEND_ARGUMENTS, request), SENDS)
PERSISTENT(Recv_init, (RECEIVE_PARAMETERS), PMPI_Recv_init(data, n, type, from, tag, comm, request), RECEIVES)
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
PERSISTENT(Psend_init, (const void *data, int parts, MPI_Count n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
           MPI_Info info), PMPI_Psend_init(data, parts, n, type, to, tag, comm, info, request),
           comm, to, tag, parts * bytes_of((int)n, type), NOBODY, (int)n, data, NULL)
PERSISTENT(Precv_init, (void *data, int parts, MPI_Count n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
           MPI_Info info), PMPI_Precv_init(data, parts, n, type, from, tag, comm, info, request),
           comm, NOBODY, from, tag, parts * bytes_of((int)n, type), (int)n, NULL, data)
WATCH_MESSAGE(Isendrecv, (const void *data, int n, MPI_Datatype type, int to, int tag, void *place, int m,
              MPI_Datatype place_type, int from, int from_tag, MPI_Comm comm, MPI_Request *request),
              PMPI_Isendrecv(data, n, type, to, tag, place, m, place_type, from, from_tag, comm, request), request, NO_STATUS,
              comm, to, tag, bytes_of(n, type), from, from_tag, bytes_of(m, place_type), m, data, place)
WATCH_MESSAGE(Isendrecv_replace, (void *data, int n, MPI_Datatype type, int to, int tag, int from, int from_tag,
              MPI_Comm comm, MPI_Request *request),
              PMPI_Isendrecv_replace(data, n, type, to, tag, from, from_tag, comm, request), request, NO_STATUS,
              comm, to, tag, bytes_of(n, type), from, from_tag, bytes_of(n, type), n, data, data)
#endif
// clang-format on

int MPI_Start(MPI_Request *request)
{
    int place = find_expected(*request, MPI_MESSAGE_NULL);
    if (place < 0) { // of a collective call
        trace("call", TEXT("function", "MPI_Start"));
        return PMPI_Start(request);
    }
    const Message message = expected.items[place].message;
    message_begins(&message, false);
    int result = PMPI_Start(request);
    return message_ends(&message, request, NULL, result);
}

int MPI_Startall(int n, MPI_Request *all)
{
    int result = MPI_SUCCESS;
    for (int i = 0; i < n && result == MPI_SUCCESS; i++)
        result = MPI_Start(&all[i]);
    return result;
}

// What is still going on is waited for by no call any more.
int MPI_Request_free(MPI_Request *request)
{
    int number;
    request_numbers(1, request, &number);
    forget_request(number);
    forget_expected(find_expected(*request, MPI_MESSAGE_NULL));
    return PMPI_Request_free(request);
}

// ---- Waiting for what goes on in the background.

// "3,4", the numbers of those requests; the caller frees it.
static char *request_names(int count, const int *numbers)
{
    char *names = format_text("%s", "");
    for (int i = 0; i < count; i++)
        if (numbers[i] != 0)
            text_add(&names, "%s%d", *names ? "," : "", numbers[i]);
    return names;
}

// The requests of a wait; `numbers` NULL: nothing is traced.
typedef struct {
    const char *function;
    int count;
    int *numbers;
    MPI_Status *statuses; // MPI's results; of `own` where the program wants none
    MPI_Status *own;
} Waiting;

static Waiting wait_begins(const char *function, int count, const MPI_Request *handles, bool blocks,
                           MPI_Status *statuses)
{
    Waiting waiting = {.function = function, .count = count, .statuses = statuses};
    if (trace_has_begun() && count > 0) {
        waiting.numbers = allocate((size_t)count, sizeof *waiting.numbers);
        request_numbers(count, handles, waiting.numbers);
        if (statuses == MPI_STATUSES_IGNORE || statuses == MPI_STATUS_IGNORE)
            waiting.statuses = waiting.own = allocate((size_t)count, sizeof *waiting.own);
    }
    if (trace_on() && blocks) {
        char *names = request_names(waiting.numbers ? count : 0, waiting.numbers);
        trace("wait_begin", TEXT("function", function), TEXT("requests", names),
              NUMBER("handles", count));
        free(names);
    }
    if (blocks)
        begin_waiting(call_of(function, NO_VALUES, -1, MPI_PROC_NULL, MPI_COMM_NULL), MPI_COMM_NULL,
                      false, MPI_PROC_NULL);
    return waiting;
}

// The first `done` requests of the call are complete, or those with these indices. A test that
// completes nothing leaves no event: programs test in loops.
static int wait_ends(Waiting *waiting, int done, const int *indices, bool blocks, int result)
{
    if (blocks)
        span_end();
    char *names = NULL;
    double received = 0;
    for (int i = 0; waiting->numbers && result == MPI_SUCCESS && i < done; i++) {
        int number = waiting->numbers[indices ? indices[i] : i];
        if (number == 0) // it was not under way
            continue;
        if (forget_request(number))
            received += bytes_in(&waiting->statuses[i]);
        text_add(&names, "%s%d", names ? "," : "", number);
    }
    if (names || blocks)
        trace("wait_end", TEXT("function", waiting->function), TEXT("requests", names ? names : ""),
              NUMBER("received", received));
    free(names);
    free(waiting->numbers);
    free(waiting->own);
    return result;
}

// `arguments` has `seen`, where MPI puts statuses.
#define WATCH_WAIT(name, parameters, arguments, count, handles, blocks, results, done, indices)    \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        Waiting waiting = wait_begins("MPI_" #name, count, handles, blocks, results);              \
        MPI_Status *seen = waiting.statuses;                                                       \
        int result = PMPI_##name arguments;                                                        \
        return wait_ends(&waiting, done, indices, blocks, result);                                 \
    }

// clang-format off
WATCH_WAIT(Wait, (MPI_Request *request, MPI_Status *status), (request, seen), 1, request, true, status, 1, NULL)
WATCH_WAIT(Waitall, (int n, MPI_Request *all, MPI_Status *statuses), (n, all, seen), n, all, true, statuses, n, NULL)
WATCH_WAIT(Waitany, (int n, MPI_Request *all, int *index, MPI_Status *status), (n, all, index, seen), n, all, true,
           status, *index != MPI_UNDEFINED, index)
WATCH_WAIT(Waitsome, (int n, MPI_Request *all, int *count, int *indices, MPI_Status *statuses),
           (n, all, count, indices, seen), n, all, true, statuses, *count, indices)
WATCH_WAIT(Test, (MPI_Request *request, int *done, MPI_Status *status), (request, done, seen), 1, request, false,
           status, *done, NULL)
WATCH_WAIT(Testall, (int n, MPI_Request *all, int *done, MPI_Status *statuses), (n, all, done, seen), n, all, false,
           statuses, *done ? n : 0, NULL)
WATCH_WAIT(Testany, (int n, MPI_Request *all, int *index, int *done, MPI_Status *status),
           (n, all, index, done, seen), n, all, false, status, *done && *index != MPI_UNDEFINED, index)
WATCH_WAIT(Testsome, (int n, MPI_Request *all, int *count, int *indices, MPI_Status *statuses),
           (n, all, count, indices, seen), n, all, false, statuses, *count, indices)
// clang-format on

// Tells whether a request is complete, and leaves it as it is; so it leaves no event.
int MPI_Request_get_status(MPI_Request request, int *done, MPI_Status *status)
{
    return PMPI_Request_get_status(request, done, status);
}
