// The traces of a run, read back: what each rank did, event by event. common/observe/events.def
// lists the events and their fields, and no other gets past traces_read: so each field is there, of
// its kind, and a number that counts or names something is whole and in its range.

#ifndef HVDLAB_STEPS_EVENTS_H
#define HVDLAB_STEPS_EVENTS_H

#include <cjson/cJSON.h>
#include "words.h"

// Of one rank, in the order in which they happened.
typedef struct {
    cJSON **items;
    int count;
} Events;

// Of all ranks of a run.
typedef struct {
    int ranks;
    int workers; // of parameter servers, which are the ranks behind them; 0: there are no servers
    RankSet killed; // the rank that the check itself has killed; 0: none
    Events of[MAX_RANKS];
    char *fault; // what is wrong with the first line that is no event, after which no more is read;
                 // NULL: nothing. Owned
} Traces;

#define MAX_TRACE_FILE ((long long)1 << 27) // bytes; a larger file is not read

// Reads rank-R.jsonl of every rank in an open folder; a file that isn't there has no events. A last
// line that is not complete is left out.
Traces traces_read(int folder, int ranks, int workers);

// Takes one line more of a rank, with a '\0' behind it. False: it is no event.
bool traces_take(Traces *traces, int rank, const char *line, size_t length);
void traces_free(Traces *traces);

// The place of the first event of that name from place `from` on, or -1, as where that is -1.
int event_find(const Events *events, const char *name, int from);

// Loops over all events; over the places of all of that name.
#define EACH_EVENT(event, events)                                                                  \
    for (const cJSON *event, *const *next_##event = (const cJSON *const *)(events)->items,         \
                                    *const *end_##event = next_##event + (events)->count;          \
         next_##event < end_##event && ((event = *next_##event), true); next_##event++)
#define EACH(at, events, name) for (int at = -1; (at = event_find(events, name, at + 1)) >= 0;)

// The place of the last one before place `before`, or -1.
int event_find_before(const Events *events, const char *name, int before);

int event_count(const Events *events, const char *name);

// The n-th event of that name, from 0, and the last one; NULL where there is none.
const cJSON *event_nth(const Events *events, const char *name, int n);
const cJSON *event_last(const Events *events, const char *name);

// A field: not a number, or the empty text, where the event is NULL or lacks it.
double event_number(const cJSON *event, const char *field);
const char *event_text(const cJSON *event, const char *field);

// True where a text field is this, and where the event has that name.
bool event_has(const cJSON *event, const char *field, const char *text);
bool event_is(const cJSON *event, const char *name);

// A field that is a whole number; -1 where the event is NULL or lacks it.
int event_int(const cJSON *event, const char *field);

// The bytes that the event hands to MPI, or to hvd's all-reduce in two levels: of a collective
// call, or of a message that is sent; 0 of any other event.
double event_bytes(const cJSON *event);

// The function of a call as a program knows it: traces have a name of their own, "two_levels", for a
// part of hvd_allreduce.
const char *called_function(const cJSON *event);

// The next number of a list "0,2,4", past which it moves `at`; -1 after the last one.
int next_listed(const char **at);

// The ranks that a field lists.
RankSet event_ranks(const cJSON *event, const char *field);

// The ranks that have such an event.
RankSet ranks_with(const Traces *traces, const char *name);

// True where some ranks have one and others don't.
bool some_but_not_all(const Traces *traces, const char *name);

#endif
