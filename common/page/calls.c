// Collective calls, messages and waits of one rank, from their events.

#include "page/calls.h"

#include <limits.h>
#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/numbers.h"

bool event_is(const cJSON *event, const char *name)
{
    return strcmp(json_text(event, "event"), name) == 0;
}

cJSON *number_or_null(double number)
{
    return isfinite(number) ? cJSON_CreateNumber(number) : cJSON_CreateNull();
}

cJSON *json_row(cJSON *const items[])
{
    cJSON *array = cJSON_CreateArray();
    for (; *items; items++)
        cJSON_AddItemToArray(array, *items);
    return array;
}

// How often a rank has made such a call.
typedef struct {
    char *key;
    int count;
} Counter;

static int compare_counters(const void *a, const void *b)
{
    return strcmp(((const Counter *)a)->key, ((const Counter *)b)->key);
}

static void free_counter(void *counter)
{
    free(((Counter *)counter)->key);
    free(counter);
}

// How often it was asked for this key, which it frees; from 1.
static int next_number(Rank *rank, char *key)
{
    Counter *fresh = allocate(1, sizeof *fresh);
    fresh->key = key;
    Counter **found = (Counter **)tsearch(fresh, &rank->counters, compare_counters);
    CHECK(found);
    if (*found != fresh)
        free_counter(fresh);
    return ++(*found)->count;
}

cJSON *new_call(Rank *rank, double t, const char *function, const char *channel, double bytes)
{
    cJSON *call = ROW(cJSON_CreateNumber(t), cJSON_CreateNull(), cJSON_CreateString(function),
                      cJSON_CreateString(channel), cJSON_CreateNumber(isfinite(bytes) ? bytes : 0));
    for (int i = FROM; i <= BYTES_RECEIVED; i++)
        cJSON_AddItemToArray(call, cJSON_CreateNull());
    cJSON_AddItemToArray(rank->calls, call);
    return call;
}

void call_set(cJSON *call, int place, cJSON *value)
{
    cJSON_ReplaceItemInArray(call, place, value);
}

cJSON *new_numbered_call(Rank *rank, double t, const char *function, const char *channel,
                         double bytes)
{
    cJSON *call = new_call(rank, t, function, channel, bytes);
    call_set(call, NUMBER_OF_CALL,
             cJSON_CreateNumber(next_number(rank, format_text("%s", channel))));
    return call;
}

void open_call(Rank *rank, cJSON *call)
{
    if (rank->depth < MAX_OPEN)
        rank->open[rank->depth] = call;
    rank->depth++;
}

cJSON *end_call(Rank *rank, double t)
{
    if (rank->depth == 0 || --rank->depth >= MAX_OPEN)
        return NULL;
    call_set(rank->open[rank->depth], END, cJSON_CreateNumber(t));
    return rank->open[rank->depth];
}

// ---- Collective calls.

static bool starts_with(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

// Of a list "0,2,4" the item at a place, or -1; and how many there are.
static int listed(const char *list, int place, int *count)
{
    int found = -1;
    *count = 0;
    uint64_t item;
    while ((list = read_digits(list, INT_MAX, &item))) {
        if ((*count)++ == place)
            found = (int)item;
        list += *list == ',';
    }
    return found;
}

// The bytes that this rank gives to the library, and no one else has given before: none to hvd's
// calls, which MPI's follow, and none where it only receives.
static double bytes_given(const Rank *rank, const cJSON *event)
{
    const char *function = json_text(event, "function"), *ranks = json_text(event, "ranks");
    double bytes = json_number(event, "bytes"), root = json_number(event, "root");
    int size, root_rank = listed(ranks, root >= 0 ? (int)root : -1, &size);
    if (!starts_with(function, "MPI_") && !starts_with(function, "nccl") &&
        strcmp(function, "two_levels") != 0)
        return 0;
    if (size == 0) { // NCCL's, or without hvd_init: all ranks
        root_rank = (int)root;
        size = rank->size;
    }
    bool parts = strcmp(function, "MPI_Scatter") == 0 || strcmp(function, "MPI_Alltoall") == 0 ||
                 strcmp(function, "MPI_Reduce_scatter_block") == 0;
    bool receives = strstr(function, "cast") || strcmp(function, "MPI_Scatter") == 0;
    if (receives && root_rank != rank->number)
        return 0;
    return parts ? bytes * size : bytes;
}

// A function of the program's own is no call of the library: its calls tell what happens in it.
static bool is_frame(const cJSON *event)
{
    return strcmp(json_text(event, "function"), "hvd_use_allreduce") == 0;
}

// A communicator of some of the ranks is known by them, too: several may have one name, or none.
static char *channel_of(const Rank *rank, const cJSON *event)
{
    const char *function = json_text(event, "function"), *ranks = json_text(event, "ranks");
    const char *name = json_text(event, "name");
    int size;
    listed(ranks, -1, &size);
    if (strcmp(function, "MPI_Finalize") == 0)
        return format_text("%s", function);
    if (size == 0 || (*name && size == rank->size))
        return format_text("%s", name);
    return format_text("%s%s%s", name, *name ? " " : "", ranks);
}

static void begin_collective(Rank *rank, const cJSON *event, double t)
{
    const char *function = json_text(event, "function"), *ranks = json_text(event, "ranks");
    char *channel = channel_of(rank, event);
    double bytes = bytes_given(rank, event);
    cJSON *call = *channel ? new_numbered_call(rank, t, function, channel, bytes)
                           : new_call(rank, t, function, channel, bytes);
    if (*ranks && !cJSON_HasObjectItem(rank->members, channel))
        cJSON_AddStringToObject(rank->members, channel, ranks);
    free(channel);
    open_call(rank, call);
}

static void keep_request(cJSON *call, const cJSON *event)
{
    double request = json_number(event, "request");
    if (call && request > 0)
        call_set(call, REQUESTS, cJSON_CreateNumber(request));
}

// ---- Messages.

cJSON *name_of_message(Rank *rank, const char *channel, bool sent, double other, double tag)
{
    if (!(other >= 0 && tag >= 0))
        return cJSON_CreateNull();
    char *key = format_text("%s %s %.0f %.0f", sent ? "to" : "from", channel, other, tag);
    int number = next_number(rank, key);
    char *name = format_text("%s %.0f %.0f %.0f %d", channel, sent ? rank->number : other,
                             sent ? other : rank->number, tag, number);
    cJSON *text = cJSON_CreateString(name);
    free(name);
    return text;
}

static void begin_message(Rank *rank, const cJSON *event, double t)
{
    const char *channel = json_text(event, "name");
    double to = json_number(event, "to"), from = json_number(event, "from");
    cJSON *call =
        new_call(rank, t, json_text(event, "function"), channel, json_number(event, "bytes"));
    call_set(call, FROM, number_or_null(from));
    call_set(call, TO, number_or_null(to));
    call_set(call, SENT, name_of_message(rank, channel, true, to, json_number(event, "to_tag")));
    call_set(call, RECEIVED,
             name_of_message(rank, channel, false, from, json_number(event, "from_tag")));
    open_call(rank, call);
}

// Now it is known where a message has come from.
static void end_message(Rank *rank, const cJSON *event, double t)
{
    cJSON *call = end_call(rank, t);
    double source = json_number(event, "source");
    keep_request(call, event);
    if (!call || !isfinite(source))
        return;
    call_set(call, BYTES_RECEIVED, number_or_null(json_number(event, "received")));
    if (!cJSON_IsNull(cJSON_GetArrayItem(call, RECEIVED)))
        return;
    call_set(call, FROM, cJSON_CreateNumber(source));
    call_set(call, RECEIVED,
             name_of_message(rank, cJSON_GetArrayItem(call, CHANNEL)->valuestring, false, source,
                             json_number(event, "tag")));
}

static void begin_wait(Rank *rank, const cJSON *event, double t)
{
    cJSON *call = new_call(rank, t, json_text(event, "function"), "", 0);
    call_set(call, REQUESTS, cJSON_CreateString(json_text(event, "requests")));
    open_call(rank, call);
}

// MPI_Test has no begin: it takes no time.
static void end_wait(Rank *rank, const cJSON *event, double t)
{
    bool tests = starts_with(json_text(event, "function"), "MPI_Test");
    if (tests)
        open_call(rank, new_call(rank, t, json_text(event, "function"), "", 0));
    cJSON *call = end_call(rank, t);
    const char *done = json_text(event, "requests");
    if (!call)
        return;
    call_set(call, BYTES_RECEIVED, number_or_null(json_number(event, "received")));
    if (*done && !tests)
        call_set(call, REQUESTS, cJSON_CreateString(done));
}

// ---- All of them.

bool take_call(Rank *rank, const cJSON *event, double t)
{
    if (event_is(event, "collective_begin") && !is_frame(event))
        begin_collective(rank, event, t);
    else if (event_is(event, "collective_end") && !is_frame(event))
        keep_request(end_call(rank, t), event);
    else if (event_is(event, "message_begin"))
        begin_message(rank, event, t);
    else if (event_is(event, "message_end"))
        end_message(rank, event, t);
    else if (event_is(event, "wait_begin"))
        begin_wait(rank, event, t);
    else if (event_is(event, "wait_end"))
        end_wait(rank, event, t);
    else
        return false;
    return true;
}

static double number_at(const cJSON *call, int place)
{
    const cJSON *item = cJSON_GetArrayItem(call, place);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

void keep_last_calls(Rank *rank, int most)
{
    int count = cJSON_GetArraySize(rank->calls);
    double sent = 0, given = 0, received = 0;
    cJSON *links = cJSON_AddObjectToObject(rank->object, "links");
    rank->cut = count > most;
    for (; count > most; count--) {
        const cJSON *call = rank->calls->child, *to = cJSON_GetArrayItem(call, TO);
        *(cJSON_IsNumber(to) ? &sent : &given) += number_at(call, BYTES);
        received += number_at(call, BYTES_RECEIVED);
        if (cJSON_IsNumber(to)) {
            char *key = format_text("%.0f", to->valuedouble);
            double before = json_number(links, key);
            cJSON_DeleteItemFromObjectCaseSensitive(links, key);
            cJSON_AddNumberToObject(links, key,
                                    number_at(call, BYTES) + (isnan(before) ? 0 : before));
            free(key);
        }
        cJSON_DeleteItemFromArray(rank->calls, 0);
    }
    cJSON_AddNumberToObject(rank->object, "sent", sent);
    cJSON_AddNumberToObject(rank->object, "given", given);
    cJSON_AddNumberToObject(rank->object, "received", received);
    tdestroy(rank->counters, free_counter);
}
