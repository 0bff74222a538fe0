// Events of a run, one JSON object a line; and MPI's functions, watched. trace.h lists the events.

#include "sys/trace.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/util.h"

static int file = -1;

static void write_line(const char *event, const TraceField *fields)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "event", event);
    cJSON_AddNumberToObject(object, "t", seconds_now());
    for (; fields->name; fields++) {
        if (fields->text)
            cJSON_AddStringToObject(object, fields->name, fields->text);
        else
            cJSON_AddNumberToObject(object, fields->name, fields->number);
    }
    char *text = cJSON_PrintUnformatted(object);
    char *line = format_text("%s\n", text);
    // A single call, so that a reader never sees half a line.
    if (write(file, line, strlen(line)) < 0)
        die("HVDLAB_TRACE: cannot write: %s", strerror(errno));
    free(line);
    free(text);
    cJSON_Delete(object);
}

static void write_end(int status, void *unused)
{
    (void)unused;
    trace("end", NUMBER("status", status));
}

static void open_file(const char *folder)
{
    char *path = format_text("%s/rank-%d.jsonl", folder, launcher_rank());
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        die("HVDLAB_TRACE: cannot make the folder %s: %s", folder, strerror(errno));
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        die("HVDLAB_TRACE: cannot write %s: %s", path, strerror(errno));
    free(path);
    Place place = launcher_place();
    write_line("start", (TraceField[]){TEXT("program", program_name()),
                                       NUMBER("pid", getpid()),
                                       NUMBER("rank", launcher_rank()),
                                       NUMBER("size", launcher_size()),
                                       NUMBER("local_rank", place.local_rank),
                                       NUMBER("local_size", place.local_size),
                                       NUMBER("node", place.node),
                                       NUMBER("nodes", place.nodes),
                                       {0}});
    on_exit(write_end, NULL);
}

static void open_if_asked(void)
{
    const char *folder = getenv("HVDLAB_TRACE");
    if (folder && *folder)
        open_file(folder);
}

bool trace_on(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_if_asked);
    return file >= 0;
}

void trace_write(const char *event, const TraceField *fields)
{
    write_line(event, fields);
}

// ---- MPI, watched. What Open MPI's mpi.h declares, the same for any MPI.

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

static const char *op_name(MPI_Op op)
{
    return op == MPI_SUM ? "sum" : op == MPI_MAX ? "max" : op == MPI_MIN ? "min" : "";
}

static void call_begins(const MpiCall *call)
{
    if (!trace_on())
        return;
    char name[MPI_MAX_OBJECT_NAME];
    int element = 0;
    if (call->type != MPI_DATATYPE_NULL)
        PMPI_Type_size(call->type, &element);
    trace("collective_begin", TEXT("function", call->function),
          TEXT("name", comm_name(call->comm, name)), NUMBER("bytes", (double)call->count * element),
          TEXT("op", op_name(call->op)), NUMBER("root", call->root));
}

static int call_ends(const MpiCall *call, int result)
{
    char name[MPI_MAX_OBJECT_NAME];
    trace("collective_end", TEXT("function", call->function),
          TEXT("name", comm_name(call->comm, name)));
    return result;
}

// Defines MPI_NAME around PMPI_NAME: `parameters` as declared, `arguments` as passed on, then what
// an event says of the call, as in MpiCall.
#define WATCH(name, parameters, arguments, ...)                                                    \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        const MpiCall call = {"MPI_" #name, __VA_ARGS__};                                          \
        call_begins(&call);                                                                        \
        return call_ends(&call, PMPI_##name arguments);                                            \
    }
#define NO_COMM MPI_COMM_NULL, 0, MPI_DATATYPE_NULL, MPI_OP_NULL, -1

// clang-format off
WATCH(Finalize, (void), (), NO_COMM)
WATCH(Wait, (MPI_Request *request, MPI_Status *status), (request, status), NO_COMM)
WATCH(Waitall, (int n, MPI_Request *requests, MPI_Status *statuses), (n, requests, statuses), NO_COMM)
WATCH(Barrier, (MPI_Comm comm), (comm), comm, 0, MPI_DATATYPE_NULL, MPI_OP_NULL, -1)
WATCH(Bcast, (void *data, int n, MPI_Datatype type, int root, MPI_Comm comm),
      (data, n, type, root, comm), comm, n, type, MPI_OP_NULL, root)
WATCH(Allreduce, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (from, to, n, type, op, comm), comm, n, type, op, -1)
WATCH(Iallreduce, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
      MPI_Request *request), (from, to, n, type, op, comm, request), comm, n, type, op, -1)
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
WATCH(Send, (const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm),
      (data, n, type, to, tag, comm), comm, n, type, MPI_OP_NULL, to)
WATCH(Recv, (void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
      MPI_Status *status), (data, n, type, from, tag, comm, status), comm, n, type, MPI_OP_NULL, from)
// clang-format on
