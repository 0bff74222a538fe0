// Where each rank of a run is when nothing moves any more, and what keeps it there.

#include "whereabouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cJSON *pending_collective(const Events *events)
{
    const cJSON *pending = NULL;
    for (int i = 0; i < events->count; i++) {
        const char *name = event_text(events->items[i], "event");
        if (strcmp(name, "collective_begin") == 0)
            pending = events->items[i];
        else if (strcmp(name, "collective_end") == 0)
            pending = NULL;
    }
    return pending;
}

// A wait for calls that go on in the background has no name; theirs is that of the last one.
static const char *name_of(const Events *events, const cJSON *call)
{
    const char *name = event_text(call, "name");
    if (strncmp(event_text(call, "function"), "MPI_Wait", 8) != 0)
        return name;
    for (int i = events->count - 1; i >= 0 && !*name; i--)
        if (strncmp(event_text(events->items[i], "function"), "MPI_I", 5) == 0)
            name = event_text(events->items[i], "name");
    return name;
}

// How many calls with that name, that of a communicator, the rank has begun; without a name, how
// many of that function.
static int calls_begun(const Events *events, const char *name, const char *function)
{
    const char *field = *name ? "name" : "function", *value = *name ? name : function;
    int count = 0;
    for (int at = -1; (at = event_find(events, "collective_begin", at + 1)) >= 0;)
        count += strcmp(event_text(events->items[at], field), value) == 0;
    return count;
}

// True where the rank waits in a call that some other rank has not begun.
static bool is_blocked(const Events events[RANKS], int rank)
{
    const cJSON *call = pending_collective(&events[rank]);
    if (!call)
        return false;
    const char *name = name_of(&events[rank], call), *function = event_text(call, "function");
    int number = calls_begun(&events[rank], name, function);
    for (int other = 0; other < RANKS; other++)
        if (calls_begun(&events[other], name, function) < number)
            return true;
    return false;
}

bool is_deadlock(const Events events[RANKS])
{
    int blocked = 0;
    for (int r = 0; r < RANKS; r++) {
        bool ended = event_find(&events[r], "end", 0) >= 0 && !pending_collective(&events[r]);
        if (is_blocked(events, r))
            blocked++;
        else if (!ended)
            return false;
    }
    return blocked > 0;
}

// "in the broadcast of the variables".
static char *collective_words(const Events *events, const cJSON *call)
{
    static const char *const words[][2] = {
        {"gradients", "in the all-reduce of the gradients"},
        {"variables", "in the broadcast of the variables"},
        {"metrics", "in the average of the metrics"},
    };
    const char *function = event_text(call, "function"), *name = name_of(events, call);
    if (strcmp(function, "MPI_Finalize") == 0)
        return format_text("at the end of the program, where all ranks meet");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i][0]) == 0)
            return format_text("%s", words[i][1]);
    if (strcmp(name, "values") == 0)
        return format_text("in hvd_%s", strstr(function, "gather")    ? "allgather"
                                        : strstr(function, "Barrier") ? "barrier"
                                                                      : "allreduce");
    return format_text("in %s%s%s", function, *name ? " on " : "", name);
}

// What the rank has behind it: between its name and what it does now.
static char *progress_words(const Events *events)
{
    const cJSON *fit_end = event_last(events, "fit_end"), *step = event_last(events, "step");
    if (fit_end)
        return format_text(" finished training after epoch %d and",
                           (int)event_number(fit_end, "epochs"));
    if (step)
        return format_text(", after step %d of epoch %d,", (int)event_number(step, "step") + 1,
                           (int)event_number(step, "epoch") + 1);
    return format_text("%s", "");
}

// "waits in ..." for one rank, "wait in ..." for several.
static char *where_words(const Events *events, const char *s)
{
    const cJSON *call = pending_collective(events);
    if (call) {
        char *place = collective_words(events, call);
        char *words = format_text("wait%s %s", s, place);
        free(place);
        return words;
    }
    if (event_find(events, "end", 0) >= 0)
        return format_text("came to the end of the program");
    if (events->count == 0)
        return format_text("reported nothing, not even that hvd_init() is done");
    return format_text("%s busy with something else; the last event in the trace: %s",
                       *s ? "is" : "are", event_text(events->items[events->count - 1], "event"));
}

static char *sentence(const Events *events, const char *s)
{
    char *progress = progress_words(events), *where = where_words(events, s);
    char *words = format_text("%s %s", progress, where);
    free(progress);
    free(where);
    return words;
}

char *whereabouts(const Events events[RANKS])
{
    char *of[RANKS], *text = NULL;
    for (int r = 0; r < RANKS; r++)
        of[r] = sentence(&events[r], "s");
    RankSet told = 0;
    for (int r = 0; r < RANKS; r++) {
        RankSet same = 0;
        for (int other = r; other < RANKS; other++)
            if (strcmp(of[r], of[other]) == 0)
                same |= 1u << other;
        if (has_rank(told, r))
            continue;
        told |= same;
        char *words = sentence(&events[r], verb_s(same));
        text_add(&text, "%s%s%s", text ? "\n" : "", rank_names(same).text, words);
        free(words);
    }
    for (int r = 0; r < RANKS; r++)
        free(of[r]);
    return text;
}

// ---- The likely mistake.

static RankSet ranks_waiting_for(const Events events[RANKS], const char *name)
{
    RankSet ranks = 0;
    for (int r = 0; r < RANKS; r++) {
        const cJSON *call = pending_collective(&events[r]);
        if (call && strcmp(name_of(&events[r], call), name) == 0)
            ranks |= 1u << r;
    }
    return ranks;
}

static bool some_but_not_all(RankSet ranks)
{
    return ranks != 0 && ranks != ALL_RANKS;
}

static bool steps_differ(const Events events[RANKS])
{
    for (int r = 1; r < RANKS; r++) {
        const cJSON *first = event_nth(&events[0], "fit", 0),
                    *fit = event_nth(&events[r], "fit", 0);
        if (first && fit && event_number(fit, "steps") != event_number(first, "steps"))
            return true;
    }
    return false;
}

// The ranks that neither wait for others nor have ended.
static RankSet busy_ranks(const Events events[RANKS])
{
    RankSet ranks = 0;
    for (int r = 0; r < RANKS; r++)
        if (!pending_collective(&events[r]) && event_find(&events[r], "end", 0) < 0)
            ranks |= 1u << r;
    return ranks;
}

Mistake likely_mistake(const Events events[RANKS])
{
    if (some_but_not_all(ranks_with(events, "init")))
        return (Mistake){"hvd_init() must be called by every rank; the ranks that did wait for the "
                         "others.",
                         1};
    if (busy_ranks(events))
        return (Mistake){
            "a loop that doesn't end, or something that never comes, at least on some of "
            "the ranks.",
            0};
    if (ranks_with(events, "end") && some_but_not_all(ranks_with(events, "fit")))
        return (Mistake){"main returns on some ranks before they train. All ranks train; only "
                         "printing is left to the root.",
                         2};
    if (some_but_not_all(ranks_with(events, "distributed")))
        return (Mistake){"only some of the ranks wrapped their optimizer. The all-reduce of the "
                         "gradients needs all of them: wrap it on every rank, outside of any if.",
                         3};
    if (some_but_not_all(ranks_with(events, "broadcast")) || ranks_waiting_for(events, "variables"))
        return (Mistake){"only some of the ranks broadcast. A broadcast is a collective call: the "
                         "root sends and the others receive, by the same call, so every rank must "
                         "make it, outside of any if.",
                         4};
    if (steps_differ(events))
        return (Mistake){"the ranks asked fit() for different numbers of steps. Each step is an "
                         "all-reduce of the gradients, so all must make equally many.",
                         5};
    if (some_but_not_all(ranks_waiting_for(events, "metrics")))
        return (Mistake){"only some of the ranks average the metrics at the end of an epoch. The "
                         "average is a collective call: every rank must add the callback, outside "
                         "of any if.",
                         6};
    if (some_but_not_all(ranks_with(events, "fit_end")))
        return (Mistake){"the training of some ranks ended while the others went on, who now wait "
                         "for them in vain. Every rank must have the stop rule, and it must see "
                         "the same figures on all of them: that is what step 6 is for.",
                         6};
    return (Mistake){
        "a collective call that some ranks make and others don't (is it inside an if?).", 0};
}
