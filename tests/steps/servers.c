// Reads what parameter servers and workers have traced.

#include "servers.h"

#include <stdio.h>
#include <string.h>
#include "waiting.h"

int worker_count(const Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++) {
        const cJSON *start = event_nth(&traces->of[r], "ps_start", 0);
        if (start)
            return (int)event_number(start, "workers");
    }
    return -1;
}

const char *process_words(const Traces *traces, int rank)
{
    static char words[4][32];
    static int next;
    char *text = words[next++ % 4];
    int workers = worker_count(traces);
    bool server = workers >= 0 && rank >= workers;
    snprintf(text, sizeof words[0], "%s %d", server ? "server" : "worker",
             server ? rank - workers : rank);
    return text;
}

int awaited_server(const Traces *traces, int rank)
{
    const Events *events = &traces->of[rank];
    const cJSON *last = events->count > 0 ? events->items[events->count - 1] : NULL;
    return last && event_is(last, "ps_pull") ? (int)event_number(last, "server") : -1;
}

int requests_taken(const Traces *traces, int rank, const char *kind, int worker)
{
    int count = 0;
    const Events *events = &traces->of[rank];
    for (int at = -1; (at = event_find(events, "ps_request", at + 1)) >= 0;)
        count += strcmp(event_text(events->items[at], "kind"), kind) == 0 &&
                 (worker < 0 || event_number(events->items[at], "worker") == worker);
    return count;
}

bool worker_has_left(const Traces *traces, int rank)
{
    for (int r = worker_count(traces); r >= 0 && r < traces->ranks; r++)
        if (requests_taken(traces, r, "done", rank) || requests_taken(traces, r, "lost", rank))
            return true;
    return false;
}

static bool has_ended(const Traces *traces, int rank)
{
    return event_count(&traces->of[rank], "end") > 0;
}

// How many of a worker's events go to that server.
static int sent_to(const Traces *traces, int worker, const char *event, int server)
{
    int count = 0;
    const Events *events = &traces->of[worker];
    for (int at = -1; (at = event_find(events, event, at + 1)) >= 0;)
        count += event_number(events->items[at], "server") == server;
    return count;
}

// Has the server taken all that the workers have sent to it?
static bool is_idle(const Traces *traces, int rank, int workers)
{
    for (int w = 0; w < workers; w++) {
        int server = rank - workers;
        if (!requests_taken(traces, rank, "lost", w) &&
            (requests_taken(traces, rank, "pull", w) != sent_to(traces, w, "ps_pull", server) ||
             requests_taken(traces, rank, "push", w) != sent_to(traces, w, "ps_push", server)))
            return false;
    }
    return true;
}

bool is_deadlock_of_servers(const Traces *traces)
{
    int workers = worker_count(traces), waiting = 0;
    if (workers < 0)
        return false;
    for (int r = 0; r < traces->ranks; r++) {
        if (has_ended(traces, r) || (r < workers && worker_has_left(traces, r)))
            continue;
        waiting++;
        if (r < workers ? awaited_server(traces, r) < 0 : !is_idle(traces, r, workers))
            return false;
    }
    return waiting > 0;
}
