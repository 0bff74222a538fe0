// Reads what parameter servers and workers have traced.

#include "servers.h"

#include <stdio.h>
#include "base/format.h"

const char *process_words(const Traces *traces, int rank)
{
    static char words[4][32];
    static int next;
    char *text = words[next++ % 4];
    int workers = traces->workers;
    bool server = workers > 0 && rank >= workers;
    snprintf(text, sizeof words[0], "%s %d",
             server        ? "server"
             : workers > 0 ? "worker"
                           : "rank",
             server ? rank - workers : rank);
    return text;
}

char *process_names(const Traces *traces, RankSet ranks)
{
    if (traces->workers == 0)
        return format_text("%s", rank_names(ranks).text);
    RankSet workers = ranks & all_ranks(traces->workers), servers = ranks >> traces->workers;
    return format_text("%s%s%s", workers ? names_of("worker", workers).text : "",
                       workers && servers ? " and " : "",
                       servers ? names_of("server", servers).text : "");
}

int awaited_server(const Traces *traces, int rank)
{
    const Events *events = &traces->of[rank];
    const cJSON *last = events->count > 0 ? events->items[events->count - 1] : NULL;
    return last && event_is(last, "ps_pull") ? event_int(last, "server") : -1;
}

int requests_taken(const Traces *traces, int rank, const char *kind, int worker)
{
    int count = 0;
    const Events *events = &traces->of[rank];
    EACH (at, events, "ps_request")
        count += event_has(events->items[at], "kind", kind) &&
                 (worker < 0 || event_number(events->items[at], "worker") == worker);
    return count;
}

bool worker_has_left(const Traces *traces, int rank)
{
    for (int r = traces->workers; r < traces->ranks; r++)
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
    EACH (at, events, event)
        count += event_number(events->items[at], "server") == server;
    return count;
}

bool has_taken_all(const Traces *traces, int rank)
{
    for (int w = 0; w < traces->workers; w++) {
        int server = rank - traces->workers;
        if (!requests_taken(traces, rank, "lost", w) &&
            (requests_taken(traces, rank, "pull", w) != sent_to(traces, w, "ps_pull", server) ||
             requests_taken(traces, rank, "push", w) != sent_to(traces, w, "ps_push", server)))
            return false;
    }
    return true;
}

bool is_deadlock_of_servers(const Traces *traces)
{
    int workers = traces->workers, waiting = 0;
    if (workers == 0)
        return false;
    for (int r = 0; r < traces->ranks; r++) {
        if (has_ended(traces, r) || (r < workers && worker_has_left(traces, r)))
            continue;
        waiting++;
        if (r < workers ? awaited_server(traces, r) < 0 : !has_taken_all(traces, r))
            return false;
    }
    return waiting > 0;
}
