// page: a picture of a run, from its traces (HVDLAB_TRACE): one HTML file that needs no network.
//
//     page TRACE TO.html           of a run that has ended, or as far as it is
//     page --live TRACE TO.html    while it goes on: TO.html once, and each second TO.html.js, the
//     data, which the
//                                  page loads again; ends with the run
//
// What is drawn, and how, is in page.html. This program makes its data: for each rank the calls
// with begin and end, the weights' fingerprint after each step, the loss of each batch; likewise
// for each replica of a mirrored model, and for each stage of a pipeline.

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/json.h"
#include "base/memory.h"

#define TEMPLATE  "common/tools/page.html"
#define MARK      "/*DATA*/"
#define MAX_CALLS 20000 // of a rank: the last ones
#define MAX_OPEN  64    // calls within calls
#define MAX_PARTS 64    // of a process: replicas or stages

static const char usage[] = "usage: page [--live] TRACE TO.html";

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static bool is(const cJSON *event, const char *name)
{
    return strcmp(json_text(event, "event"), name) == 0;
}

static cJSON *number_or_null(double number)
{
    return isfinite(number) ? cJSON_CreateNumber(number) : cJSON_CreateNull();
}

// A row of numbers and texts for the page: cJSON items, up to NULL.
static cJSON *row(cJSON *const items[])
{
    cJSON *array = cJSON_CreateArray();
    for (; *items; items++)
        cJSON_AddItemToArray(array, *items);
    return array;
}
#define ROW(...) row((cJSON *const[]){__VA_ARGS__, NULL})

// ---- One rank.

typedef struct {
    cJSON *object;
    cJSON *calls, *steps, *losses, *saved, *pushes, *between;
    cJSON *open[MAX_OPEN]; // the calls that have begun and not ended
    int depth;
    double begin, last; // seconds
    bool ended, cut;
    double version; // of a server's weights
    int applied;    // updates, of a replica
    double workers; // of its job; the servers come after them
} Rank;

static cJSON *list_in(cJSON *object, const char *name)
{
    return cJSON_AddArrayToObject(object, name);
}

static void begin_rank(Rank *rank, int number)
{
    *rank = (Rank){.object = cJSON_CreateObject(), .begin = (double)NAN};
    cJSON_AddNumberToObject(rank->object, "rank", number);
    char *label = format_text("rank %d", number);
    cJSON_AddStringToObject(rank->object, "label", label);
    free(label);
    cJSON_AddStringToObject(rank->object, "host", "?");
    cJSON_AddStringToObject(rank->object, "device", "");
    cJSON_AddNumberToObject(rank->object, "batch", 0);
    rank->calls = list_in(rank->object, "calls");
    rank->steps = list_in(rank->object, "steps");
    rank->losses = list_in(rank->object, "losses");
    rank->saved = list_in(rank->object, "saved");
    rank->pushes = list_in(rank->object, "pushes");
    rank->between = list_in(rank->object, "between");
}

static void set_text(Rank *rank, const char *field, char *text)
{
    cJSON_ReplaceItemInObjectCaseSensitive(rank->object, field, cJSON_CreateString(text));
    free(text);
}

// A worker asks a server for weights, and gets them: a call in which it waits for that one.
static void begin_pull(Rank *rank, const cJSON *event, double t)
{
    cJSON *call =
        ROW(cJSON_CreateNumber(t), cJSON_CreateNull(), cJSON_CreateString("pull"),
            cJSON_CreateString(""), cJSON_CreateNumber(0),
            cJSON_CreateNumber(rank->workers + json_number(event, "server")), cJSON_CreateNull());
    cJSON_AddItemToArray(rank->calls, call);
}

static void end_pull(Rank *rank, const cJSON *event, double t)
{
    double from = rank->workers + json_number(event, "server");
    // The last ones only: a worker asks each server once at a time.
    cJSON *call = rank->calls->child ? rank->calls->child->prev : NULL;
    for (int i = 0; call && i < 8; i++, call = call->prev)
        if (cJSON_IsNull(cJSON_GetArrayItem(call, 1)) &&
            cJSON_GetArrayItem(call, 5)->valuedouble == from) {
            cJSON_ReplaceItemInArray(call, 1, cJSON_CreateNumber(t));
            return;
        }
}

// [begin, end, function, channel, bytes, from, to]
static void push_call(Rank *rank, cJSON *call)
{
    cJSON_AddItemToArray(rank->calls, call);
    if (rank->depth < MAX_OPEN)
        rank->open[rank->depth] = call;
    rank->depth++;
}

static void add_step(Rank *rank, double t, double epoch, double step, double fingerprint)
{
    cJSON_AddItemToArray(rank->steps, ROW(cJSON_CreateNumber(t), number_or_null(epoch),
                                          number_or_null(step), number_or_null(fingerprint)));
}

static void begin_call(Rank *rank, const cJSON *event, double t, bool message)
{
    double bytes = json_number(event, "bytes");
    cJSON *call = ROW(cJSON_CreateNumber(t), cJSON_CreateNull(),
                      cJSON_CreateString(json_text(event, "function")),
                      cJSON_CreateString(json_text(event, "name")),
                      cJSON_CreateNumber(isfinite(bytes) ? bytes : 0),
                      number_or_null(message ? json_number(event, "from") : (double)NAN),
                      number_or_null(message ? json_number(event, "to") : (double)NAN));
    push_call(rank, call);
}

static void end_call(Rank *rank, double t)
{
    if (rank->depth == 0)
        return;
    if (--rank->depth < MAX_OPEN)
        cJSON_ReplaceItemInArray(rank->open[rank->depth], 1, cJSON_CreateNumber(t));
}

static void take_event(Rank *rank, const cJSON *event)
{
    double t = json_number(event, "t");
    rank->begin = isnan(rank->begin) ? t : rank->begin;
    rank->last = t;
    if (is(event, "collective_begin") || is(event, "message_begin") || is(event, "wait_begin"))
        begin_call(rank, event, t, is(event, "message_begin"));
    else if (is(event, "collective_end") || is(event, "message_end") ||
             (is(event, "wait_end") && strncmp(json_text(event, "function"), "MPI_Test", 8) != 0))
        end_call(rank, t);
    else if (is(event, "step"))
        add_step(rank, t, json_number(event, "epoch"), json_number(event, "step"),
                 json_number(event, "weights"));
    else if (is(event, "answers") && json_number(event, "training") > 0)
        cJSON_AddItemToArray(
            rank->losses, ROW(cJSON_CreateNumber(t), number_or_null(json_number(event, "loss") /
                                                                    json_number(event, "images"))));
    else if (is(event, "start"))
        set_text(rank, "host", format_text("host %.0f", json_number(event, "node")));
    else if (is(event, "device"))
        set_text(rank, "device",
                 format_text("%s %.0f", json_text(event, "kind"), json_number(event, "device")));
    else if (is(event, "fit"))
        cJSON_ReplaceItemInObjectCaseSensitive(rank->object, "batch",
                                               number_or_null(json_number(event, "train_batch")));
    else if (is(event, "saved"))
        cJSON_AddItemToArray(rank->saved, ROW(cJSON_CreateNumber(t),
                                              cJSON_CreateString(json_text(event, "path")),
                                              number_or_null(json_number(event, "epoch")),
                                              number_or_null(json_number(event, "step"))));
    else if (is(event, "between_hosts"))
        cJSON_AddItemToArray(
            rank->between, ROW(cJSON_CreateNumber(t), number_or_null(json_number(event, "bytes"))));
    else if (is(event, "ps_start")) {
        rank->workers = json_number(event, "workers");
        set_text(rank, "label",
                 format_text("%s %.0f", json_text(event, "role"), json_number(event, "number")));
    } else if (is(event, "ps_pull"))
        begin_pull(rank, event, t);
    else if (is(event, "ps_pulled"))
        end_pull(rank, event, t);
    else if (is(event, "ps_applied"))
        rank->version = json_number(event, "version");
    else if (is(event, "ps_request") && strcmp(json_text(event, "kind"), "push") == 0)
        cJSON_AddItemToArray(
            rank->pushes, ROW(cJSON_CreateNumber(t), number_or_null(json_number(event, "worker")),
                              number_or_null(rank->version - json_number(event, "version"))));
    rank->ended = rank->ended || is(event, "end");
}

// The last ones, which stay in the page's memory.
static void keep_last_calls(Rank *rank)
{
    int count = cJSON_GetArraySize(rank->calls);
    rank->cut = count > MAX_CALLS;
    for (; count > MAX_CALLS; count--)
        cJSON_DeleteItemFromArray(rank->calls, 0);
}

// Of one process there is a rank, or one for each replica of a mirrored model, or for each stage of
// a pipeline.
typedef struct {
    Rank whole, part[MAX_PARTS];
    int parts;
} Process;

static Rank *part_of(Process *process, const cJSON *event, const char *kind, int number)
{
    double index = json_number(event, kind);
    if (!(index >= 0 && index < MAX_PARTS))
        return NULL;
    for (; process->parts <= (int)index; process->parts++) {
        Rank *part = &process->part[process->parts];
        begin_rank(part, number + process->parts);
        set_text(part, "label", format_text("%s %d", kind, process->parts));
        set_text(part, "host", format_text("%s", json_text(process->whole.object, "host")));
    }
    return &process->part[(int)index];
}

// A stage waits for the other one's results, or gradients.
static void take_of_stage(Rank *rank, const cJSON *event)
{
    double t = json_number(event, "t"), stage = json_number(event, "stage");
    bool receive = strcmp(json_text(event, "call"), "receive") == 0;
    rank->begin = isnan(rank->begin) ? t : rank->begin;
    rank->last = t;
    if (is(event, "staged_batch"))
        set_text(rank, "device", format_text("device %.0f", json_number(event, "device")));
    else if (is(event, "stage_begin") && receive)
        push_call(rank,
                  ROW(cJSON_CreateNumber(t), cJSON_CreateNull(),
                      cJSON_CreateString("stage_receive"), cJSON_CreateString(""),
                      cJSON_CreateNumber(0), cJSON_CreateNumber(1 - stage), cJSON_CreateNull()));
    else if (is(event, "stage_end") && receive)
        end_call(rank, t);
}

// Replicas meet in their sums. Those that apply the same gradient have the same weights.
static void take_of_replica(Rank *rank, const cJSON *event)
{
    double t = json_number(event, "t");
    if (is(event, "sum_begin"))
        push_call(rank,
                  ROW(cJSON_CreateNumber(t), cJSON_CreateNull(),
                      cJSON_CreateString(json_text(event, "function")), cJSON_CreateString("sum"),
                      cJSON_CreateNumber(json_number(event, "bytes")), cJSON_CreateNull(),
                      cJSON_CreateNull()));
    else if (is(event, "sum_end"))
        end_call(rank, t);
    else if (is(event, "apply"))
        add_step(rank, t, 0, rank->applied++, json_number(event, "value"));
    else
        take_event(rank, event);
    rank->begin = isnan(rank->begin) ? t : rank->begin;
    rank->last = t;
}

static bool read_process(Process *process, const char *folder, int file_number, int number,
                         char **program)
{
    char *path = format_text("%s/rank-%d.jsonl", folder, file_number), *line = NULL;
    FILE *file = fopen(path, "re");
    free(path);
    if (!file)
        return false;
    process->parts = 0;
    begin_rank(&process->whole, number);
    size_t room = 0;
    while (getline(&line, &room, file) > 0) {
        cJSON *event = strchr(line, '\n') ? cJSON_Parse(line) : NULL;
        if (!event)
            continue;
        if (is(event, "start") && !*program)
            *program = format_text("%s", json_text(event, "program"));
        Rank *part;
        if ((part = part_of(process, event, "stage", number)))
            take_of_stage(part, event);
        else if ((part = part_of(process, event, "replica", number)))
            take_of_replica(part, event);
        else
            take_event(&process->whole, event);
        cJSON_Delete(event);
    }
    free(line);
    fclose(file);
    return true;
}

// Adds a rank that has been read to the page's.
static void add_rank(Rank *rank, bool ended, cJSON *ranks)
{
    keep_last_calls(rank);
    cJSON_AddItemToObject(rank->object, "begin", number_or_null(rank->begin));
    cJSON_AddItemToObject(rank->object, "finished",
                          ended ? cJSON_CreateNumber(rank->last) : cJSON_CreateNull());
    cJSON_AddItemToArray(ranks, rank->object);
}

static void add_process(Process *process, cJSON *ranks)
{
    for (int i = 0; i < process->parts; i++)
        add_rank(&process->part[i], process->whole.ended, ranks);
    if (process->parts == 0)
        add_rank(&process->whole, process->whole.ended, ranks);
    else
        cJSON_Delete(process->whole.object);
}

// ---- The page.

// Of all ranks; *done: all have ended.
static cJSON *data_of(const char *folder, const char *live, bool *done)
{
    cJSON *data = cJSON_CreateObject(), *ranks = cJSON_AddArrayToObject(data, "ranks");
    double begin = (double)INFINITY, end = 0;
    char *program = NULL;
    bool cut = false;
    *done = true;
    static Process process;
    for (int number = 0;
         read_process(&process, folder, number, cJSON_GetArraySize(ranks), &program); number++) {
        const Rank *whole = &process.whole;
        add_process(&process, ranks);
        begin = fmin(begin, whole->begin);
        end = fmax(end, whole->last);
        cut = cut || whole->cut;
        *done = *done && whole->ended;
    }
    *done = *done && cJSON_GetArraySize(ranks) > 0;
    cJSON_AddStringToObject(data, "program", program ? program : "a run that has not begun");
    if (live && !*done)
        end = fmax(end, seconds_now()); // a rank that waits has waited until now
    cJSON_AddNumberToObject(data, "begin", isfinite(begin) ? begin : 0);
    cJSON_AddNumberToObject(data, "end", isfinite(begin) ? fmax(end, begin + 1e-6) : 1);
    cJSON_AddBoolToObject(data, "done", *done);
    cJSON_AddBoolToObject(data, "cut", cut);
    if (live)
        cJSON_AddStringToObject(data, "live", live);
    free(program);
    return data;
}

// As a script: "<" is written so that no text can end it. The caller frees it.
static char *script_of(const cJSON *data, const char *begin, const char *end)
{
    char *json = cJSON_PrintUnformatted(data), *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    CHECK(json && out);
    fputs(begin, out);
    for (const char *at = json; *at; at++)
        if (*at == '<' || *at == '>' || *at == '&')
            fprintf(out, "\\u%04x", *at);
        else
            putc(*at, out);
    fputs(end, out);
    fclose(out);
    free(json);
    return text;
}

// Readers see the whole file, or the one before it, which has the text `own`.
static void write_file(const char *path, const char *own, const char *first, const char *second,
                       const char *third)
{
    char *fresh = format_text("%s.new", path);
    need_own_file(path, own);
    need_own_file(fresh, own);
    FILE *file = fopen(fresh, "we");
    if (!file || fprintf(file, "%s%s%s", first, second, third) < 0 || fclose(file) != 0 ||
        rename(fresh, path) != 0)
        die("cannot write %s: %s", path, strerror(errno));
    free(fresh);
}

static void write_page(const cJSON *data, const char *to)
{
    FILE *file = fopen(TEMPLATE, "re");
    if (!file)
        die("cannot read " TEMPLATE ": call this in the kit's folder");
    char *text = allocate(1 << 17, 1), *mark;
    text[fread(text, 1, (1 << 17) - 1, file)] = '\0';
    fclose(file);
    mark = strstr(text, MARK);
    CHECK(mark);
    *mark = '\0';
    char *script = script_of(data, "window.hvdlab = ", ";");
    write_file(to, "<title>A run of hvdlab</title>", text, script, mark + strlen(MARK));
    free(script);
    free(text);
}

static void follow(const char *folder, const char *to, const char *name)
{
    char *path = format_text("%s.js", to);
    for (bool done = false; !done && !stopped; sleep(done ? 0 : 1)) {
        cJSON *data = data_of(folder, name, &done);
        char *script = script_of(data, "hvdlabTake(", ");\n");
        write_file(path, "hvdlabTake(", script, "", "");
        if (done)
            write_page(data, to); // which needs nothing beside it any more
        free(script);
        cJSON_Delete(data);
    }
    free(path);
}

int main(int argc, char **argv)
{
    bool live = argc == 4 && strcmp(argv[1], "--live") == 0, done;
    if (argc != 3 + live)
        die("%s", usage);
    const char *folder = argv[1 + live], *to = argv[2 + live], *slash = strrchr(to, '/');
    DIR *trace = opendir(folder);
    if (!trace && !live)
        die("there is no trace in %s: %s", folder, strerror(errno));
    if (trace)
        closedir(trace);
    json_use_memory();
    char *name = format_text("%s.js", slash ? slash + 1 : to);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    cJSON *data = data_of(folder, live ? name : NULL, &done);
    if (!live && cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(data, "ranks")) == 0)
        die("there is no trace in %s: no file rank-0.jsonl", folder);
    write_page(data, to);
    printf("%s\n", to);
    fflush(stdout);
    if (live)
        follow(folder, to, name);
    cJSON_Delete(data);
    free(name);
    return 0;
}
