// Of each process the calls with begin and end, the weights' fingerprint after each step, the loss
// of each batch; likewise for each replica of a mirrored model, and for each stage of a pipeline.

#include "page/process.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/format.h"
#include "base/json.h"

#define MAX_CALLS 20000 // of a rank: the last ones

static cJSON *list_in(cJSON *object, const char *name)
{
    return cJSON_AddArrayToObject(object, name);
}

static void begin_rank(Rank *rank, int number)
{
    *rank = (Rank){.object = cJSON_CreateObject(), .number = number, .begin = (double)NAN};
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
    rank->files = list_in(rank->object, "files");
    rank->members = cJSON_AddObjectToObject(rank->object, "members");
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
    cJSON *call = new_call(rank, t, "pull", "", 0);
    double from = rank->workers + json_number(event, "server");
    call_set(call, FROM, cJSON_CreateNumber(from));
    call_set(call, RECEIVED, name_of_message(rank, "pull", false, from, 0));
}

// The server answers: from now on the worker does not wait for it.
static void add_answer(Rank *rank, const cJSON *event, double t)
{
    double to = json_number(event, "worker");
    cJSON *call = new_call(rank, t, "ps_send_weights", "", 0);
    call_set(call, END, cJSON_CreateNumber(t));
    call_set(call, TO, number_or_null(to));
    call_set(call, SENT, name_of_message(rank, "pull", true, to, 0));
}

static void end_pull(Rank *rank, const cJSON *event, double t)
{
    double from = rank->workers + json_number(event, "server");
    // The last ones only: a worker asks each server once at a time.
    cJSON *call = rank->calls->child ? rank->calls->child->prev : NULL;
    for (int i = 0; call && i < 8; i++, call = call->prev)
        if (cJSON_IsNull(cJSON_GetArrayItem(call, END)) &&
            cJSON_GetArrayItem(call, FROM)->valuedouble == from) {
            call_set(call, END, cJSON_CreateNumber(t));
            return;
        }
}

static void add_step(Rank *rank, double t, double epoch, double step, double fingerprint)
{
    cJSON_AddItemToArray(rank->steps, ROW(cJSON_CreateNumber(t), number_or_null(epoch),
                                          number_or_null(step), number_or_null(fingerprint)));
}

// What happens to a file: it is saved (no `to`), gets the name `to`, or is removed (`to` is "").
static void add_file(Rank *rank, double t, const char *path, const char *to, const cJSON *event)
{
    cJSON_AddItemToArray(rank->files, ROW(cJSON_CreateNumber(t), cJSON_CreateString(path),
                                          to ? cJSON_CreateString(to) : cJSON_CreateNull(),
                                          number_or_null(json_number(event, "epoch")),
                                          number_or_null(json_number(event, "step"))));
}

static void take_event(Rank *rank, const cJSON *event)
{
    double t = json_number(event, "t");
    rank->begin = isnan(rank->begin) ? t : rank->begin;
    rank->last = t;
    if (take_call(rank, event, t))
        return;
    if (event_is(event, "step"))
        add_step(rank, t, json_number(event, "epoch"), json_number(event, "step"),
                 json_number(event, "weights"));
    else if (event_is(event, "answers") && json_number(event, "training") > 0)
        cJSON_AddItemToArray(
            rank->losses, ROW(cJSON_CreateNumber(t), number_or_null(json_number(event, "loss") /
                                                                    json_number(event, "images"))));
    else if (event_is(event, "start")) {
        rank->size = (int)json_number(event, "size");
        set_text(rank, "host", format_text("host %.0f", json_number(event, "node")));
    } else if (event_is(event, "device"))
        set_text(rank, "device",
                 format_text("%s %.0f", json_text(event, "kind"), json_number(event, "device")));
    else if (event_is(event, "fit"))
        cJSON_ReplaceItemInObjectCaseSensitive(rank->object, "batch",
                                               number_or_null(json_number(event, "train_batch")));
    else if (event_is(event, "saved"))
        add_file(rank, t, json_text(event, "path"), NULL, event);
    else if (event_is(event, "renamed"))
        add_file(rank, t, json_text(event, "from"), json_text(event, "to"), event);
    else if (event_is(event, "removed"))
        add_file(rank, t, json_text(event, "path"), "", event);
    else if (event_is(event, "between_hosts"))
        cJSON_AddItemToArray(
            rank->between, ROW(cJSON_CreateNumber(t), number_or_null(json_number(event, "bytes"))));
    else if (event_is(event, "ps_start")) {
        rank->workers = json_number(event, "workers");
        set_text(rank, "label",
                 format_text("%s %.0f", json_text(event, "role"), json_number(event, "number")));
    } else if (event_is(event, "ps_pull"))
        begin_pull(rank, event, t);
    else if (event_is(event, "ps_pulled"))
        end_pull(rank, event, t);
    else if (event_is(event, "ps_sent"))
        add_answer(rank, event, t);
    else if (event_is(event, "ps_applied"))
        rank->version = json_number(event, "version");
    else if (event_is(event, "ps_request") && strcmp(json_text(event, "kind"), "push") == 0)
        cJSON_AddItemToArray(
            rank->pushes, ROW(cJSON_CreateNumber(t), number_or_null(json_number(event, "worker")),
                              number_or_null(rank->version - json_number(event, "version"))));
    else if (event_is(event, "end")) {
        rank->ended = true;
        cJSON_AddNumberToObject(rank->object, "status", json_number(event, "status"));
    }
}

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

// A stage waits for the values of the one before, or for their gradient, from the next one.
static void take_of_stage(Rank *rank, const cJSON *event)
{
    double t = json_number(event, "t"), stage = json_number(event, "stage");
    const char *call = json_text(event, "call");
    bool receive = strncmp(call, "receive", strlen("receive")) == 0;
    rank->begin = isnan(rank->begin) ? t : rank->begin;
    rank->last = t;
    if (event_is(event, "staged_batch"))
        set_text(rank, "device", format_text("device %.0f", json_number(event, "device")));
    else if (event_is(event, "stage_begin") && receive) {
        double sender = strcmp(call, "receive_values") == 0     ? stage - 1
                        : strcmp(call, "receive_gradient") == 0 ? stage + 1
                                                                : 1 - stage; // of two
        open_call(rank, new_call(rank, t, "stage_receive", "", 0));
        call_set(rank->open[0], FROM, cJSON_CreateNumber(sender));
    } else if (event_is(event, "stage_end") && receive)
        end_call(rank, t);
}

// Replicas meet in their sums. Those that apply the same gradient have the same weights.
static void take_of_replica(Rank *rank, const cJSON *event)
{
    double t = json_number(event, "t");
    if (event_is(event, "sum_begin")) {
        open_call(rank, new_numbered_call(rank, t, json_text(event, "function"), "sum",
                                          json_number(event, "bytes")));
    } else if (event_is(event, "sum_end"))
        end_call(rank, t);
    else if (event_is(event, "apply"))
        add_step(rank, t, 0, rank->applied++, json_number(event, "value"));
    else
        take_event(rank, event);
    rank->begin = isnan(rank->begin) ? t : rank->begin;
    rank->last = t;
}

static void read_events(Process *process, FILE *file, int number)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) {
        cJSON *event = strchr(line, '\n') ? cJSON_Parse(line) : NULL;
        if (!event)
            continue;
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
}

// Adds a rank that has been read to the page's.
static void add_rank(Rank *rank, bool ended, const char *life, cJSON *ranks)
{
    keep_last_calls(rank, MAX_CALLS);
    cJSON_AddItemToObject(rank->object, "begin", number_or_null(rank->begin));
    cJSON_AddItemToObject(rank->object, "finished",
                          ended ? cJSON_CreateNumber(rank->last) : cJSON_CreateNull());
    cJSON_AddStringToObject(rank->object, "life", life);
    cJSON_AddItemToArray(ranks, rank->object);
}

// When a process was last seen alive: of one that is gone, the end.
static double last_seen(const RunFile *file, bool now)
{
    static struct {
        char job[256];
        double time;
    } seen[MAX_FILES];
    if (strcmp(seen[file->number].job, file->job) != 0) {
        seen[file->number].time = 0;
        memcpy(seen[file->number].job, file->job, sizeof file->job);
    }
    if (now)
        seen[file->number].time = seconds_now();
    return seen[file->number].time;
}

bool process_read(Process *process, const char *folder, const RunFile *file, bool live,
                  cJSON *ranks)
{
    static const char *const lives[] = {[RUNS] = "runs", [GONE] = "gone", [NOT_KNOWN] = "unknown"};
    char *path = format_text("%s/rank-%d.jsonl", folder, file->number);
    Life life = life_of(file, path); // first: a process that is gone writes nothing after it
    FILE *stream = fopen(path, "re");
    free(path);
    process->parts = 0;
    begin_rank(&process->whole, file->number);
    if (stream) {
        read_events(process, stream, file->number);
        fclose(stream);
    }
    Rank *whole = &process->whole;
    const char *word = whole->ended ? "exit" : lives[life];
    bool over = whole->ended || life == GONE;
    if (live && !whole->ended)
        whole->last = fmax(whole->last, last_seen(file, life == RUNS));
    for (int i = 0; i < process->parts; i++)
        add_rank(&process->part[i], over, word, ranks);
    if (process->parts == 0) {
        add_rank(whole, over, word, ranks);
    } else {
        keep_last_calls(whole, 0);
        cJSON_Delete(whole->object);
    }
    return over;
}
