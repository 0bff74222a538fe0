// Where each rank of a run is when nothing moves any more, and what keeps it there.

#include "whereabouts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "servers.h"
#include "waiting.h"
#include "base/format.h"

// "in the broadcast of the variables"; "in hvd_group_allreduce of the group of ranks 0 and 2".
static char *collective_words(const Traces *traces, const cJSON *call)
{
    static const char *const words[][2] = {
        {"gradients", "in the all-reduce of the gradients"},
        {"variables", "in the broadcast of the variables"},
        {"metrics", "in the average of the metrics"},
        {"fit", "in fit(), for the others to begin, or end an epoch, too"},
        {"trials",
         "in sweep_allreduce(), for the others to try the same size, or to be done with it"},
    };
    const char *function = called_function(call), *name = event_text(call, "name");
    RankSet group = group_of_call(traces, call);
    if (group)
        return format_text("in %s of the group of %s", function, rank_names(group).text);
    if (strcmp(function, "hvd_broadcast") == 0 || strcmp(function, "hvd_broadcast_bytes") == 0)
        return format_text("in %s", function);
    if (strcmp(function, "fit") == 0) // whatever the ranks compare on
        name = function;
    if (strcmp(function, "MPI_Finalize") == 0)
        return format_text("in MPI_Finalize, at the end of the program");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i][0]) == 0)
            return format_text("%s", words[i][1]);
    if (strcmp(name, "values") == 0)
        return format_text("in %s", strncmp(function, "hvd_", 4) == 0 ? function
                                    : strstr(function, "gather")      ? "hvd_allgather"
                                    : strstr(function, "Barrier")     ? "hvd_barrier"
                                                                      : "hvd_allreduce");
    return format_text("in %s%s%s", function, *name ? " on " : "", name);
}

// What the rank has behind it: between its name and what it does now.
static char *progress_words(const Events *events)
{
    const cJSON *fit_end = event_last(events, "fit_end"), *step = event_last(events, "step");
    if (fit_end)
        return format_text(" finished training after epoch %d and", event_int(fit_end, "epochs"));
    if (step)
        return format_text(", after step %d of epoch %d,", event_int(step, "step") + 1,
                           event_int(step, "epoch") + 1);
    return format_text("%s", "");
}

// "in MPI_Recv for rank 3 (tag 0)".
static char *message_words(const Traces *traces, int rank, const cJSON *call)
{
    int peer = awaited_rank(traces, rank);
    double to = event_number(call, "to"), from = event_number(call, "from");
    bool sends = peer < 0 ? isnan(from) : to == peer; // one that does only one of the two: that
    if (peer < 0 && sends)
        peer = event_int(call, "to");
    double tag = event_number(call, sends ? "to_tag" : "from_tag");
    char *who = peer < 0 ? format_text("any rank") : format_text("rank %d", peer);
    char *tagged = tag < 0 ? format_text("any tag") : format_text("tag %.0f", tag);
    char *words = format_text("in %s for %s to %s (%s)", event_text(call, "function"), who,
                              sends ? "receive" : "send", tagged);
    free(who);
    free(tagged);
    return words;
}

// Where a rank is that waits in a call of MPI's.
static char *call_words(const Traces *traces, int rank)
{
    const cJSON *call = pending_call(&traces->of[rank]), *awaited = awaited_call(traces, rank);
    if (awaited && event_is(awaited, "message_begin"))
        return message_words(traces, rank, awaited);
    if (awaited)
        return collective_words(traces, awaited);
    return format_text("in %s", event_text(call, "function"));
}

// What an event was, for who has not seen the trace; NULL: nothing that a program knows of.
static char *event_words(const cJSON *event)
{
    static const char *const words[][2] = {
        {"start", "the start"},
        {"init", "hvd_init()"},
        {"device_use", "device_use()"},
        {"device", "the first use of the device"},
        {"compile", "compile()"},
        {"fit", "the call of fit()"},
        {"train_begin", "the callbacks' train_begin"},
        {"first_batch", "the first batch"},
        {"first_step", "the first batch"},
        {"images", "the images of a batch"},
        {"taken", "the images of a batch"},
        {"gradient", "the gradient of a batch"},
        {"apply", "the update of the weights"},
        {"epoch", "the end of an epoch"},
        {"callback", "the callbacks at the end of an epoch"},
        {"figures_read", "the callbacks at the end of an epoch"},
        {"history", "the end of an epoch"},
        {"fit_end", "the end of fit()"},
        {"evaluate", "the call of evaluate()"},
        {"sweep_begin", "the call of the all-reduce by sweep_allreduce()"},
        {"sweep_end", "the return of the all-reduce to sweep_allreduce()"},
        {"pipeline", "the making of batches"},
        {"ps_pull", "the request for weights"},
        {"ps_pulled", "the weights from the servers"},
        {"ps_push", "the gradients for the servers"},
        {"written", "write_checkpoint()"},
        {"renamed", "rename()"},
        {"staged_batch", "the beginning of a batch"},
        {"stage_ready", "the beginning of a schedule"},
        {"stage_apply", "the call of stage_apply()"},
        {"staged_batch_end", "the end of a batch"},
    };
    const char *name = event_text(event, "event"), *function = called_function(event);
    if (strcmp(name, "stage_begin") == 0 || strcmp(name, "stage_end") == 0)
        return format_text("the %s of stage_%s(stage, %d) in stage %d",
                           strstr(name, "_end") ? "return" : "call", event_text(event, "call"),
                           event_int(event, "micro"), event_int(event, "stage"));
    if (*function)
        return format_text("the %s of %s", strstr(name, "_end") ? "return" : "call", function);
    if (strcmp(name, "step") == 0)
        return format_text("the end of step %d of epoch %d", event_int(event, "step") + 1,
                           event_int(event, "epoch") + 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i][0]) == 0)
            return format_text("%s", words[i][1]);
    return NULL;
}

char *last_seen(const Events *events)
{
    for (int i = events->count - 1; i >= 0; i--) {
        char *words = event_words(events->items[i]);
        if (!words)
            continue;
        char *text = format_text("; the last thing that the check saw: %s", words);
        free(words);
        return text;
    }
    return format_text("%s", "");
}

// "waits in ..." for one rank, "wait in ..." for several.
static char *where_words(const Traces *traces, int rank, const char *s)
{
    const Events *events = &traces->of[rank];
    if (has_rank(traces->killed, rank))
        return format_text("%s killed by the check, as in every such run", *s ? "was" : "were");
    if (pending_call(events)) {
        char *place = call_words(traces, rank);
        char *words = format_text("wait%s %s", s, place);
        free(place);
        return words;
    }
    if (awaited_server(traces, rank) >= 0)
        return format_text("wait%s for the weights of server %d", s, awaited_server(traces, rank));
    if (event_find(events, "end", 0) >= 0)
        return format_text("came to the end of the program");
    if (events->count == 0)
        return format_text("reported nothing, not even that hvd_init() is done");
    if (traces->workers > 0 && rank >= traces->workers && has_taken_all(traces, rank))
        return format_text("%s taken every request that was sent", *s ? "has" : "have");
    char *seen = last_seen(events);
    char *words = format_text("%s busy with something else%s", *s ? "is" : "are", seen);
    free(seen);
    return words;
}

static char *sentence(const Traces *traces, int rank, const char *s)
{
    char *progress = progress_words(&traces->of[rank]), *where = where_words(traces, rank, s);
    char *words = format_text("%s %s", progress, where);
    free(progress);
    free(where);
    return words;
}

// "rank 0 waits for rank 1, that for rank 0", where ranks wait for each other's messages.
static char *circle_words(const Traces *traces)
{
    int begin = waiting_circle(traces), at = begin;
    if (begin < 0)
        return NULL;
    char *words = format_text("in a circle: rank %d waits for", begin);
    do {
        const char *separator = at == begin ? "" : ", which waits for";
        at = awaited_rank(traces, at);
        text_add(&words, "%s rank %d", separator, at);
    } while (at != begin);
    return words;
}

// The first call of fit(), from 0, for which a rank asks for another number than rank 0; -1: none.
static int fit_that_differs(const Traces *traces, const char *field)
{
    const cJSON *first;
    for (int n = 0; (first = event_nth(&traces->of[0], "fit", n)); n++)
        for (int r = 1; r < traces->ranks; r++) {
            const cJSON *fit = event_nth(&traces->of[r], "fit", n);
            if (fit && event_number(fit, field) != event_number(first, field))
                return n;
        }
    return -1;
}

bool plans_differ(const Traces *traces, const char *field)
{
    return fit_that_differs(traces, field) >= 0;
}

// "steps asked of fit(): rank 0: 6, rank 1: 10".
static void add_plans(const Traces *traces, const char *field, char **text)
{
    int n = fit_that_differs(traces, field);
    if (n < 0)
        return;
    text_add(text, "\n%s asked of fit()", field);
    if (n > 0)
        text_add(text, " in its call %d", n + 1);
    const char *separator = ": ";
    for (int r = 0; r < traces->ranks; r++) {
        const cJSON *fit = event_nth(&traces->of[r], "fit", n);
        if (!fit)
            continue;
        text_add(text, "%srank %d: %.0f", separator, r, event_number(fit, field));
        separator = ", ";
    }
}

// "rank 1 calls MPI_Ibcast with root 1"
static void add_call(char **text, int rank, const cJSON *call)
{
    text_add(text, "rank %d calls %s", rank, event_text(call, "function"));
    if (event_int(call, "root") >= 0)
        text_add(text, " with root %d", event_int(call, "root"));
}

// "collective call 1 on MPI_COMM_WORLD: rank 0 calls MPI_Bcast with root 0, rank 1 calls MPI_Barrier"
static void add_unlike_calls(const Traces *traces, char **text)
{
    UnlikeCalls calls;
    if (!first_unlike_calls(traces, &calls))
        return;
    text_add(text, "\ncollective call %d on %s: ", calls.number, event_text(calls.first, "name"));
    add_call(text, 0, calls.first);
    text_add(text, ", ");
    add_call(text, calls.rank, calls.other);
}

char *whereabouts(const Traces *traces)
{
    char *of[MAX_RANKS], *text = NULL;
    for (int r = 0; r < traces->ranks; r++)
        of[r] = sentence(traces, r, "s");
    RankSet told = 0;
    for (int r = 0; r < traces->ranks; r++) {
        RankSet same = 0;
        for (int other = r; other < traces->ranks; other++)
            if (strcmp(of[r], of[other]) == 0)
                same |= 1u << other;
        if (has_rank(told, r))
            continue;
        told |= same;
        char *names = process_names(traces, same), *words = sentence(traces, r, verb_s(same));
        text_add(&text, "%s%s%s", text ? "\n" : "", names, words);
        free(names);
        free(words);
    }
    for (int r = 0; r < traces->ranks; r++)
        free(of[r]);
    add_plans(traces, "steps", &text);
    add_plans(traces, "epochs", &text);
    add_unlike_calls(traces, &text);
    char *circle = circle_words(traces);
    if (circle)
        text_add(&text, "\n%s", circle);
    free(circle);
    return text;
}

// ---- Which ranks wait for what.

// In a call that began with such an event, of that name; NULL: of any.
static RankSet ranks_waiting_in(const Traces *traces, const char *event, const char *name)
{
    RankSet ranks = 0;
    for (int r = 0; r < traces->ranks; r++) {
        const cJSON *call = awaited_call(traces, r);
        if (event_is(call, event) && (!name || event_has(call, "name", name)))
            ranks |= 1u << r;
    }
    return ranks;
}

RankSet ranks_waiting_for(const Traces *traces, const char *name)
{
    return ranks_waiting_in(traces, "collective_begin", name);
}

RankSet ranks_waiting_for_messages(const Traces *traces)
{
    return ranks_waiting_in(traces, "message_begin", NULL);
}

RankSet busy_ranks(const Traces *traces)
{
    RankSet ranks = 0;
    for (int r = 0; r < traces->ranks; r++)
        if (!pending_call(&traces->of[r]) && event_find(&traces->of[r], "end", 0) < 0)
            ranks |= 1u << r;
    return ranks;
}
