// Formats which rank waits for which, and finds waits that cannot end. Ranks in the same state
// share a line.

#include "comm/stall_words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/format.h"

#define SILENCE   3.0 // seconds after which a rank that speaks each second counts as silent
#define ARRIVAL   1.0 // seconds in which what a rank sent before it left has arrived
#define MAX_LINES 20

void words_add(Words *words, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof words->text - words->length;
    int length = vsnprintf(words->text + words->length, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        words->length += (size_t)length < room ? (size_t)length : room - 1;
}

RankState rank_state(const Doing *doing)
{
    RankState says = {
        .in_call = doing->call.name != NULL,
        .peer = doing->call.peer,
        .left = (int32_t)doing->left,
        .status = doing->status,
        .epoch = doing->location.epoch,
        .number = doing->call.number,
        .count = doing->call.count,
        .step = doing->location.step,
        .last_of_hvd = doing->last_of_hvd,
        .last_of_comms = doing->last_of_comms,
        .moves = doing->moves,
    };
    snprintf(says.call, sizeof says.call, "%s", says.in_call ? doing->call.name : "");
    snprintf(says.place, sizeof says.place, "%s", doing->location.name ? doing->location.name : "");
    return says;
}

void view_take(RankView *view, const RankState *says, double now)
{
    if (!view->known || view->says.moves != says->moves)
        view->since = now - says->seconds;
    view->says = *says;
    view->says.call[sizeof says->call - 1] = view->says.place[sizeof says->place - 1] = '\0';
    view->known = true;
    view->stopped = false;
    view->heard = now;
}

static bool is_silent(const RankView *rank, double now)
{
    return rank->stopped || now - rank->heard > SILENCE;
}

static bool has_left(const RankView *rank)
{
    return rank->gone || rank->says.left != HERE;
}

static bool is_waiting(const RankView *rank, double now)
{
    return rank->known && !has_left(rank) && rank->says.in_call && !is_silent(rank, now);
}

// ---- Ranks that have left.

// True if `waiting` waits for a call that `leaver` has not made, and now can't make. For a
// collective call, its number shows that; for a message, a sent one has had the time to arrive.
// Other calls may wait for another rank.
static bool waits_for_leaver(const RankView *waiting, int leaver_rank, const RankView *leaver,
                             double now)
{
    if (leaver->gone)
        return true;
    if (waiting->says.peer == leaver_rank)
        return now - waiting->since > ARRIVAL && now - leaver->since > ARRIVAL;
    bool of_comm = strncmp(waiting->says.call, "MPI_", 4) == 0;
    int64_t last = of_comm ? leaver->says.last_of_comms : leaver->says.last_of_hvd;
    return waiting->says.number > last;
}

bool waits_for(const RankView *ranks, int waiting, int other, double now)
{
    return is_waiting(&ranks[waiting], now) && now - ranks[waiting].since > ARRIVAL &&
           now - ranks[other].since > ARRIVAL &&
           waits_for_leaver(&ranks[waiting], other, &ranks[other], now);
}

// Marks one side of the pairs: the ranks that left, or the ranks that wait for them.
static bool mark_waits_for_leavers(RankView *ranks, int count, bool leavers, double now)
{
    bool any = false;
    for (int r = 0; r < count; r++)
        ranks[r].marked = false;
    for (int w = 0; w < count; w++)
        for (int l = 0; l < count; l++)
            if (is_waiting(&ranks[w], now) && has_left(&ranks[l]) && !ranks[l].says.explained &&
                waits_for_leaver(&ranks[w], l, &ranks[l], now))
                any = ranks[leavers ? l : w].marked = true;
    return any;
}

// ---- Groups: the marked ranks of which the same is to be said.

typedef struct {
    const char *phrase; // NULL: there is no further group
    int listed;
    double since; // the last move of the latest of them
    RankView *ranks;
} Group;

static bool is_of_group(const void *set, int r)
{
    const Group *group = set;
    return group->ranks[r].marked && strcmp(group->ranks[r].phrase, group->phrase) == 0;
}

// Adds `before` and "rank 3" or "ranks 0 and 2", and unmarks them.
static Group add_group(RankView *ranks, int count, const char *before, Words *words)
{
    Group group = {.ranks = ranks};
    for (int r = 0; r < count && !group.phrase; r++)
        if (ranks[r].marked)
            group.phrase = ranks[r].phrase;
    if (!group.phrase)
        return group;
    words_add(words, "%s", before);
    size_t room = sizeof words->text - words->length;
    size_t length = ranks_write(words->text + words->length, room, is_of_group, &group, count);
    words->length += length < room ? length : room - 1;
    for (int r = 0; r < count; r++)
        if (is_of_group(&group, r)) {
            group.listed++;
            group.since = fmax(group.since, ranks[r].since);
            ranks[r].marked = false;
        }
    return group;
}

// ---- Phrases.

void words_of_call(const RankState *says, Words *words)
{
    words_add(words, "%s", says->call);
    if (says->peer >= 0)
        words_add(words, " for rank %d", says->peer);
    if (says->number > 0)
        words_add(words, " (call %lld", (long long)says->number);
    if (says->count != NO_VALUES)
        words_add(words, "%s%lld value%s", says->number > 0 ? ", " : " (", (long long)says->count,
                  says->count == 1 ? "" : "s");
    if (says->number > 0 || says->count != NO_VALUES)
        words_add(words, ")");
}

// "is" before "gone", else "has".
static const char *verb_of(const char *phrase, int listed)
{
    if (strncmp(phrase, "gone", 4) == 0)
        return listed == 1 ? "is" : "are";
    return listed == 1 ? "has" : "have";
}

static void words_of_leaving(const RankView *rank, Words *words)
{
    if (rank->says.left == LEFT_MAIN)
        words_add(words, "left main (exit status %d)", rank->says.status);
    else
        words_add(words, "%s",
                  rank->says.left == LEFT_HVD   ? "called hvd_shutdown"
                  : rank->says.left == LEFT_MPI ? "called MPI_Finalize"
                                                : RANK_IS_GONE);
}

void words_of_place(const RankState *says, Words *words)
{
    if (!says->place[0])
        return;
    words_add(words, ", %s", says->place);
    if (says->epoch >= 0)
        words_add(words, ", epoch %d", says->epoch + 1);
    if (says->step >= 0)
        words_add(words, ", step %lld", (long long)says->step + 1);
}

// Makes the phrase of each rank.
static void describe(RankView *ranks, int count, double now)
{
    for (int r = 0; r < count; r++) {
        RankView *rank = &ranks[r];
        Words words = {.length = 0};
        if (has_left(rank))
            words_of_leaving(rank, &words);
        else if (!rank->known)
            words_add(&words, "not been heard of");
        else if (rank->stopped)
            words_add(&words, "been stopped (by SIGSTOP, or a debugger)");
        else if (is_silent(rank, now))
            words_add(&words, "not answered for %.0f s", now - rank->heard);
        else if (rank->says.in_call)
            words_of_call(&rank->says, &words);
        else {
            words_add(&words, "been in no such call for %.0f s", now - rank->since);
            words_of_place(&rank->says, &words);
        }
        snprintf(rank->phrase, sizeof rank->phrase, "%.*s", (int)sizeof rank->phrase - 1,
                 words.text);
    }
}

// The marked ranks and their calls: "ranks 0 and 1 wait in A, and rank 3 in B".
static int add_waiting(RankView *ranks, int count, Words *words)
{
    int waiting = 0;
    for (Group group; (group = add_group(ranks, count, waiting ? ", and " : "", words)).phrase;
         waiting += group.listed) {
        const char *verb = group.listed == 1 ? " waits" : " wait";
        words_add(words, "%s in %s", waiting ? "" : verb, group.phrase);
    }
    return waiting;
}

bool words_of_leavers(RankView *ranks, int count, double now, Words *words)
{
    if (!mark_waits_for_leavers(ranks, count, true, now))
        return false;
    describe(ranks, count, now);
    bool certain = true;
    for (int r = 0; r < count; r++)
        certain = certain && !(ranks[r].marked && ranks[r].gone);
    const char *separator = "";
    for (Group group; (group = add_group(ranks, count, separator, words)).phrase;
         separator = ", and ")
        words_add(words, " %s %s", verb_of(group.phrase, group.listed), group.phrase);
    words_add(words, " while ");
    mark_waits_for_leavers(ranks, count, false, now);
    int waiting = add_waiting(ranks, count, words);
    if (certain)
        words_add(words, ": %s would wait forever", waiting == 1 ? "it" : "they");
    return true;
}

// ---- Stalls.

double stall_begin(const RankView *ranks, int count, double limit, double now)
{
    double begin = 0;
    for (int r = 0; r < count; r++)
        if (is_waiting(&ranks[r], now) && now - ranks[r].since >= limit &&
            (begin == 0 || ranks[r].since < begin))
            begin = ranks[r].since;
    return begin;
}

// Marks the ranks that wait, or the others. Returns how many there are.
static int mark_waiting(RankView *ranks, int count, bool waiting, double now)
{
    int marked = 0;
    for (int r = 0; r < count; r++)
        marked += ranks[r].marked = is_waiting(&ranks[r], now) == waiting;
    return marked;
}

void words_of_waiting(RankView *ranks, int count, double now, Words *words)
{
    describe(ranks, count, now);
    mark_waiting(ranks, count, true, now);
    add_waiting(ranks, count, words);
}

// A line for each group of the marked ranks. Returns how many there are.
static int add_lines(RankView *ranks, int count, bool waiting, double now, Words *words)
{
    char begin[64];
    snprintf(begin, sizeof begin, "%.40s: stall: ", program_name());
    int lines = 0;
    for (Group group; lines < MAX_LINES && (group = add_group(ranks, count, begin, words)).phrase;
         lines++) {
        const char *verb = verb_of(group.phrase, group.listed);
        if (waiting)
            words_add(words, " %s been waiting in %s for %.0f s\n", verb, group.phrase,
                      now - group.since);
        else
            words_add(words, " %s %s\n", verb, group.phrase);
    }
    Words rest = {.length = 0};
    if (add_group(ranks, count, "", &rest).phrase)
        words_add(words, "%sand so on\n", begin);
    return lines;
}

void words_of_stall(RankView *ranks, int count, double now, Words *words)
{
    bool numbered = true;
    for (int r = 0; r < count; r++)
        numbered = numbered && ranks[r].says.number > 0;
    describe(ranks, count, now);
    bool all_wait = mark_waiting(ranks, count, true, now) == count;
    int calls = add_lines(ranks, count, true, now, words);
    mark_waiting(ranks, count, false, now);
    add_lines(ranks, count, false, now, words);
    if (all_wait)
        words_add(words, "%s: stall: all ranks %s\n", program_name(),
                  calls == 1 && numbered ? "have made this call, and it does not end"
                                         : "wait, and none is left that could end it");
}

void words_of_silence(const RankView *waiting, const RankView *silent, double seconds, Words *words)
{
    words_add(words, "rank %d waits in ", waiting->says.rank);
    words_of_call(&waiting->says, words);
    words_add(words, "; rank %d has ", silent->says.rank);
    if (silent->stopped)
        words_add(words, "been stopped (by SIGSTOP, or a debugger): kill -CONT %d continues it\n",
                  silent->says.process);
    else
        words_add(words, "not answered for %.0f s: look at its process and its machine\n", seconds);
}
