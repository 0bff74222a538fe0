// Events of a run, one JSON object a line. trace.h lists the events.

#include "observe/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/launcher.h"
#include "base/layout.h"
#include "base/output.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/setting.h"
#include "base/format.h"
#include "base/json.h"
#include "observe/hooks.h"

void (*event_written)(const char *event, const char *text);

static int file = -1;
static pid_t writer; // a child that it forks writes nothing

static struct {
    bool used;
    uint64_t key, lines;
} signature;

// Fields of the calling thread's events.
static _Thread_local struct {
    const char *field; // NULL: nothing
    int number;
} thread;

void trace_thread_is(const char *field, int number)
{
    thread.field = field;
    thread.number = number;
}

bool trace_thread_is_named(void)
{
    return thread.field != NULL;
}

// The run continues without a trace, after a warning.
static void give_up_trace(const char *reason)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    file = -1; // not closed: another thread may be about to write
    if (atomic_flag_test_and_set(&said))
        return;
    warn("HVDLAB_TRACE: cannot write: %s; the program goes on without it", reason);
    ends_incomplete("HVDLAB_TRACE: the trace is not complete: %s", reason);
}

uint64_t trace_signature(uint64_t key, uint64_t number, const char *text, size_t length)
{
    uint64_t hash = hash_bytes(rng_next(&(Rng){key ^ number}), text, length);
    return rng_next(&(Rng){hash ^ key});
}

// One thread at a time, so that lines stay whole in a pipe, too. In a file a reader never sees half
// a line: each is a single call.
static void write_text(const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (getpid() != writer)
        return;
    pthread_mutex_lock(&lock);
    char *line =
        signature.used
            ? format_text("%s\t%016" PRIx64 "\n", text,
                          trace_signature(signature.key, signature.lines++, text, strlen(text)))
            : format_text("%s\n", text);
    if (file >= 0 && !write_whole(file, line, strlen(line)))
        give_up_trace(strerror(errno));
    pthread_mutex_unlock(&lock);
    free(line);
}

static void write_line(const char *event, const TraceField *fields)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "event", event);
    cJSON_AddNumberToObject(object, "t", seconds_now());
    if (thread.field)
        cJSON_AddNumberToObject(object, thread.field, thread.number);
    for (const TraceField *field = fields; field->name; field++) {
        if (field->text)
            cJSON_AddStringToObject(object, field->name, field->text);
        else
            cJSON_AddNumberToObject(object, field->name, field->number);
    }
    char *text = json_print(object, false);
    write_text(text);
    free(text);
    cJSON_Delete(object);
    event_written(event, fields->text);
}

void trace_finish(int status)
{
    if (file < 0)
        return;
    int lost = losses_so_far();
    trace("end", NUMBER("status", status == 0 && lost > 0 ? STATUS_INCOMPLETE : status),
          NUMBER("lost", lost));
}

// The lock goes when the process does, whatever ends it: readers see that. Not every file system
// has locks, and pipes have none.
static bool is_locked(void)
{
    return fcntl(file, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}) == 0;
}

static void open_file(const char *folder)
{
    char *path = format_text("%s/rank-%d.jsonl", folder, launcher_rank());
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        die("HVDLAB_TRACE: cannot make the folder %s: %s", folder, strerror(errno));
    need_own_file(path, "{\"event\":\"start\"");
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        die("HVDLAB_TRACE: cannot write %s: %s", path, strerror(errno));
    free(path);
    writer = getpid();
    Place place = launcher_place();
    JobName job = launcher_job();
    MachineName machine = machine_name();
    write_line("start", (TraceField[]){TEXT("program", program_name()),
                                       TEXT("job", job.text),
                                       NUMBER("time", date_now()),
                                       TEXT("locked_on", is_locked() ? machine.text : ""),
                                       NUMBER("pid", getpid()),
                                       NUMBER("rank", launcher_rank()),
                                       NUMBER("size", launcher_size()),
                                       NUMBER("local_rank", place.local_rank),
                                       NUMBER("local_size", place.local_size),
                                       NUMBER("node", place.node),
                                       NUMBER("nodes", place.nodes),
                                       {0}});
}

static char *folder_asked_for;

// Where a check has left one.
static void read_key(const char *folder)
{
    char *path = format_text("%s/rank-%d.key", folder, launcher_rank());
    FILE *key = fopen(path, "re");
    if (key) {
        signature.used = fscanf(key, "%16" SCNx64, &signature.key) == 1;
        fclose(key);
        unlink(path);
    }
    free(path);
}

void trace_hide_setting(void)
{
    const char *folder = setting_text(HVDLAB_TRACE);
    folder_asked_for = folder ? strdup(folder) : NULL;
    unsetenv("HVDLAB_TRACE");
    if (folder_asked_for)
        read_key(folder_asked_for);
}

char *trace_setting_for_workers(void)
{
    bool own = file >= 0 || signature.used;
    return folder_asked_for && !own ? format_text("HVDLAB_TRACE=%s", folder_asked_for) : NULL;
}

static atomic_bool paused;

static void open_if_asked(void)
{
    const char *folder = setting_text(HVDLAB_TRACE); // that it set itself
    if (!folder)
        folder = folder_asked_for;
    if (folder)
        open_file(folder);
}

bool trace_on(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_if_asked);
    return file >= 0 && !paused;
}

void trace_pause(bool pause)
{
    paused = pause;
}

bool trace_has_begun(void)
{
    return file >= 0;
}

void trace_write(const char *event, const TraceField *fields)
{
    write_line(event, fields);
}

void trace_collective(const char *function, const char *name, size_t bytes, const char *op,
                      int root)
{
    trace("collective_begin", TEXT("function", function), TEXT("name", name),
          NUMBER("bytes", bytes), TEXT("op", op), NUMBER("root", root));
}

void trace_collective_end(const char *function, const char *name)
{
    trace("collective_end", TEXT("function", function), TEXT("name", name));
}
