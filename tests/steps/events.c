// The traces of a run, read back.

#include "events.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "event_rules.h"
#include "safe_files.h"
#include "base/format.h"
#include "base/json.h"
#include "base/memory.h"

static void add(Events *events, cJSON *event)
{
    events->items = enlarge(events->items, (size_t)events->count + 1, sizeof *events->items);
    events->items[events->count++] = event;
}

bool traces_take(Traces *traces, int rank, const char *line, size_t length)
{
    char *fault;
    cJSON *event = event_of_line(line, length, (Job){traces->ranks, traces->workers}, &fault);
    if (event) {
        add(&traces->of[rank], event);
        return true;
    }
    if (!traces->fault)
        traces->fault = format_text("line %d of %s: %s", traces->of[rank].count + 1,
                                    rank_names(1u << rank).text, fault);
    free(fault);
    return false;
}

static void read_rank(Traces *traces, int folder, int rank)
{
    char *name = format_text("rank-%d.jsonl", rank), *line = NULL;
    int file = safe_file(folder, name, MAX_TRACE_FILE);
    FILE *stream = file >= 0 ? fdopen(file, "r") : NULL;
    size_t size = 0;
    bool more = stream != NULL;
    for (ssize_t length; more && (length = getline(&line, &size, stream)) > 0;)
        more = line[length - 1] == '\n' && traces_take(traces, rank, line, (size_t)length);
    free(line);
    free(name);
    if (stream)
        fclose(stream);
}

Traces traces_read(int folder, int ranks, int workers)
{
    Traces traces = {.ranks = ranks, .workers = workers};
    for (int r = 0; r < ranks; r++)
        read_rank(&traces, folder, r);
    return traces;
}

void traces_free(Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++) {
        for (int i = 0; i < traces->of[r].count; i++)
            cJSON_Delete(traces->of[r].items[i]);
        free(traces->of[r].items);
    }
    free(traces->fault);
    *traces = (Traces){0};
}

int event_find(const Events *events, const char *name, int from)
{
    for (int i = from; i >= 0 && i < events->count; i++)
        if (event_is(events->items[i], name))
            return i;
    return -1;
}

int event_find_before(const Events *events, const char *name, int before)
{
    for (int i = before - 1; i >= 0; i--)
        if (event_is(events->items[i], name))
            return i;
    return -1;
}

int event_count(const Events *events, const char *name)
{
    int count = 0;
    EACH (at, events, name)
        count++;
    return count;
}

const cJSON *event_nth(const Events *events, const char *name, int n)
{
    int at = event_find(events, name, 0);
    while (at >= 0 && n-- > 0)
        at = event_find(events, name, at + 1);
    return at < 0 ? NULL : events->items[at];
}

const cJSON *event_last(const Events *events, const char *name)
{
    int count = event_count(events, name);
    return count == 0 ? NULL : event_nth(events, name, count - 1);
}

double event_number(const cJSON *event, const char *field)
{
    return json_number(event, field);
}

int event_int(const cJSON *event, const char *field)
{
    double number = event_number(event, field);
    return number >= INT_MIN && number <= INT_MAX ? (int)number : -1;
}

const char *event_text(const cJSON *event, const char *field)
{
    return json_text(event, field);
}

bool event_has(const cJSON *event, const char *field, const char *text)
{
    return strcmp(event_text(event, field), text) == 0;
}

bool event_is(const cJSON *event, const char *name)
{
    return event_has(event, "event", name);
}

double event_bytes(const cJSON *event)
{
    const char *name = event_text(event, "event"), *function = event_text(event, "function");
    bool collective = strcmp(name, "collective_begin") == 0 &&
                      (strncmp(function, "MPI_", 4) == 0 || strcmp(function, "two_levels") == 0);
    bool sent = strcmp(name, "message_begin") == 0 && event_number(event, "to") >= 0;
    return collective || sent ? event_number(event, "bytes") : 0;
}

const char *called_function(const cJSON *event)
{
    const char *function = event_text(event, "function");
    if (strcmp(function, "two_levels") != 0)
        return function;
    return event_has(event, "name", "group")    ? "hvd_group_allreduce"
           : event_has(event, "name", "values") ? "hvd_allreduce"
                                                : "the hierarchical all-reduce";
}

int next_listed(const char **at)
{
    char *end;
    long number = strtol(*at, &end, 10);
    if (end == *at || number < 0 || number > INT_MAX)
        return -1;
    *at = end + (*end == ',');
    return (int)number;
}

RankSet event_ranks(const cJSON *event, const char *field)
{
    RankSet ranks = 0;
    const char *at = event_text(event, field);
    for (int rank; (rank = next_listed(&at)) >= 0 && rank < MAX_RANKS;)
        ranks |= 1u << rank;
    return ranks;
}

RankSet ranks_with(const Traces *traces, const char *name)
{
    RankSet ranks = 0;
    for (int r = 0; r < traces->ranks; r++)
        if (event_find(&traces->of[r], name, 0) >= 0)
            ranks |= 1u << r;
    return ranks;
}

bool some_but_not_all(const Traces *traces, const char *name)
{
    RankSet ranks = ranks_with(traces, name);
    return ranks != 0 && ranks != all_ranks(traces->ranks);
}
