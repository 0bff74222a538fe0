// Gathered early: what gathered says; and while a layer is computed, in both passes, the weights of the
// next layer travel, of no layer beyond it, and each transfer is complete where its weights are read.

#include "sharded_weights.h"
#include "diagnoses/judge_gathered_early.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"

#define ONLY_NEXT "while a layer is computed no weights travel but those of the next layer"
#define EARLY     "in both passes the next layer's weights travel while a layer is computed"

enum { MAX_OPEN = 256, KNOWN_ORDER = 3 };

// A transfer of weights that goes on.
typedef struct {
    int request, piece; // the piece that was computed meanwhile; -1: none yet
    double bytes;       // that the rank receives
    const char *function;
} Transfer;

typedef enum { PASS, UPDATE, END } Moment;

// The moment of a rank in which the computing of a layer begins, the update, or the run ends.
typedef struct {
    const Run *run;
    int rank, number, update; // of the pass and of the update, from 1
    Moment moment;
    int piece, next; // that is computed, and the one after it in this pass; -1: none
    const char *direction;
    double needed;    // bytes of the next one's weights that others keep
    double under_way; // bytes that travel
    double own;       // of the piece's own weights that others keep
    double there;     // and of those that have arrived, at most
    // Bytes that have arrived since the computing before: seen by MPI_Test; by any other call.
    double tested, complete;
    const Transfer *late; // that should be complete; NULL: none
} Point;

// Where the reading of a rank is.
typedef struct {
    int at;
    bool ready, ended; // in the function for gradients
    int pieces;
    double length[MAX_PIECES];
    double unused; // bytes that have arrived in the training, beyond those of the passes
    Transfer open[MAX_OPEN], begun; // begun: by the call that has not returned
    int open_count;
} GatherReader;

// With the gradients of a piece a rank exchanges sums.
static bool moves_weights(const GatherReader *reader, const cJSON *event)
{
    const char *function = event_text(event, "function");
    bool sums = event_is(event, "message_begin") || strstr(function, "educe");
    return moves_values(event) && !(reader->ready && sums);
}

static void take_transfer(GatherReader *reader, Point *point, const cJSON *event)
{
    if (event_is(event, "collective_begin") || event_is(event, "message_begin")) {
        reader->begun = (Transfer){.piece = -1, .function = NULL};
        if (moves_weights(reader, event)) {
            reader->begun.function = event_text(event, "function");
            // Of a sum the rank needs the values once, whatever an all-reduce moves.
            reader->begun.bytes =
                bytes_received(point->run, event, point->rank) / (is_allreduce(event) ? 2 : 1);
        }
    } else if (event_is(event, "collective_end") || event_is(event, "message_end")) {
        reader->begun.request = event_int(event, "request");
        if (reader->begun.function && reader->begun.request <= 0)
            point->complete += reader->begun.bytes;
        else if (reader->begun.function && reader->open_count < MAX_OPEN)
            reader->open[reader->open_count++] = reader->begun;
        reader->begun.function = NULL;
    } else if (event_is(event, "wait_end")) {
        const char *requests = event_text(event, "requests");
        bool waited = strncmp(event_text(event, "function"), "MPI_Test", 8) != 0;
        for (int done; (done = next_listed(&requests)) >= 0;)
            for (int i = 0; i < reader->open_count; i++)
                if (reader->open[i].request == done) {
                    *(waited ? &point->complete : &point->tested) += reader->open[i].bytes;
                    reader->open[i] = reader->open[--reader->open_count];
                    break;
                }
    }
}

// What goes on at this moment. Before an update all must be complete; before a pass what a worker
// receives, unless no other layer was computed meanwhile.
static void look_at_open(GatherReader *reader, Point *point)
{
    for (int i = 0; i < reader->open_count; i++) {
        Transfer *transfer = &reader->open[i];
        point->under_way += transfer->bytes;
        bool late = point->moment != PASS || (transfer->piece >= 0 && transfer->bytes > 0 &&
                                              transfer->piece != point->piece);
        if (late && (!point->late || point->late->bytes == 0)) // sends alone: if nothing else
            point->late = transfer;
        transfer->piece = transfer->piece < 0 ? point->piece : transfer->piece;
    }
}

static double others_part(const GatherReader *reader, const Point *point, int piece)
{
    const int ranks = point->run->ranks;
    return piece < 0 || piece >= MAX_PIECES
               ? 0
               : reader->length[piece] * (double)sizeof(float) * (ranks - 1) / ranks;
}

static void begin_pass(GatherReader *reader, Point *point, const cJSON *event)
{
    point->direction = event_text(event, "pass");
    point->piece = event_int(event, "piece");
    int next = point->piece + (event_has(event, "pass", "forward") ? -1 : 1);
    point->next = next < reader->pieces && next < MAX_PIECES ? next : -1;
    point->needed = others_part(reader, point, point->next);
    point->own = others_part(reader, point, point->piece);
    if (point->number == 0) // before, all had the first weights
        reader->unused = -point->complete - point->tested;
    point->number++;
}

// The next moment; false: there is none.
static bool next_point(const Events *events, GatherReader *reader, Point *point)
{
    *point = (Point){.run = point->run,
                     .rank = point->rank,
                     .number = point->number,
                     .update = point->update,
                     .piece = -1};
    for (; reader->at < events->count; reader->at++) {
        const cJSON *event = events->items[reader->at];
        take_transfer(reader, point, event);
        if (event_is(event, "piece") || event_is(event, "piece_end"))
            reader->ready = event_is(event, "piece");
        else if (event_is(event, "step"))
            point->update++;
        else if (event_is(event, "pass_begin"))
            begin_pass(reader, point, event);
        if (!event_is(event, "pass_weights") && !event_is(event, "gradient"))
            continue;
        point->moment = event_is(event, "gradient") ? UPDATE : PASS;
        reader->unused += point->complete + point->tested;
        point->there = fmin(reader->unused, point->own);
        reader->unused -= point->there;
        look_at_open(reader, point);
        reader->at++;
        return true;
    }
    point->moment = END;
    look_at_open(reader, point);
    bool there = !reader->ended;
    reader->ended = true;
    return there;
}

static GatherReader *new_reader(const Run *run)
{
    GatherReader *reader = allocate(1, sizeof *reader);
    reader->pieces = pieces_of(run);
    EACH (at, &run->traces.of[0], "piece_updated") {
        const cJSON *event = run->traces.of[0].items[at];
        int number = event_int(event, "number");
        if (number < MAX_PIECES)
            reader->length[number] = event_number(event, "count");
    }
    return reader;
}

static Fault each_point(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    Fault found = NO_FAULT;
    for (int r = 0; r < run->ranks && run->ranks > 1 && !found.diagnosis; r++) {
        GatherReader *reader = new_reader(run);
        Point point = {.run = run, .rank = r, .update = 1};
        while (!found.diagnosis && next_point(&run->traces.of[r], reader, &point))
            found = (*fault)(&point);
        free(reader);
    }
    return found;
}

// "pass 12, the backward pass of piece 3, rank 1: "
static Fault fault_in(const Point *point, Fault fault)
{
    if (point->moment == UPDATE)
        return fault_at(fault, "update %d, rank %d: ", point->update, point->rank);
    if (point->moment == END)
        return fault_at(fault, "the end of the training, rank %d: ", point->rank);
    return fault_at(fault, "pass %d, the %s pass of piece %d, rank %d: ", point->number,
                    point->direction, point->piece, point->rank);
}

static Fault late_fault(const Point *point)
{
    Fault fault = fault_with(point->moment != UPDATE  ? &d_request_not_awaited
                             : point->late->bytes > 0 ? &d_under_way_in_the_update
                                                      : &d_under_way_in_the_update_a_send,
                             "a transfer goes on that %s has begun", point->late->function);
    if (point->moment == PASS)
        text_add(&fault.evidence, " before piece %d was computed", point->late->piece);
    return fault_in(point, fault);
}

// Parts may be rounded up; twice as much is another layer.
static Fault travel_fault(const void *item)
{
    const Point *point = item;
    if (point->late)
        return late_fault(point);
    if (point->moment != PASS || point->next < 0 || point->under_way <= 1.6 * point->needed)
        return NO_FAULT;
    if (point->there < point->own / 2)
        return fault_in(point, fault_with(&d_request_not_awaited_its_own,
                                          "%.0f bytes travel\nthe others' parts of this piece: "
                                          "%.0f bytes, of which %.0f have arrived",
                                          point->under_way, point->own, point->there));
    return fault_in(point,
                    fault_with(&d_too_far_ahead,
                               "%.0f bytes travel\nthe others' parts of piece %d: %.0f bytes",
                               point->under_way, point->next, point->needed));
}

// ---- What travels while a layer is computed.

// The passes of all runs, in one direction, after which another one comes.
typedef struct {
    int passes, early, in_flight; // in_flight: not by what MPI_Test has found complete
    bool nothing_in_time;         // of the last layer's weights, in any such pass
    Point missing;                // the first one that is not early
} Direction;

static void count_pass(Direction *of, const Point *point)
{
    if (point->next < 0) {
        of->nothing_in_time = of->nothing_in_time && point->complete + point->tested == 0;
        return;
    }
    bool early = point->under_way + point->tested >= point->needed / 2;
    of->passes++;
    of->early += early;
    of->in_flight += point->under_way >= point->needed / 2;
    if (!early && !of->missing.run)
        of->missing = *point;
}

// A program may learn in the first steps which layer comes next.
static void count_passes(const Run *run, int rank, Direction of[2])
{
    GatherReader *reader = new_reader(run);
    Point point = {.run = run, .rank = rank, .update = 1};
    while (next_point(&run->traces.of[rank], reader, &point))
        if (point.moment == PASS && point.update >= KNOWN_ORDER)
            count_pass(&of[strcmp(point.direction, "backward") == 0], &point);
    free(reader);
}

// The ranks that gather early in all passes, and those that do in none.
typedef struct {
    RankSet all, none;
} EarlyRanks;

static EarlyRanks early_ranks(const Run *run)
{
    EarlyRanks ranks = {0};
    for (int r = 0; r < run->ranks; r++) {
        Direction of[2] = {0};
        count_passes(run, r, of);
        int early = of[0].early + of[1].early, passes = of[0].passes + of[1].passes;
        ranks.all |= early == passes ? 1u << r : 0;
        ranks.none |= early == 0 ? 1u << r : 0;
    }
    return ranks;
}

// The first call of MPI by which values may travel that the check does not see, or NULL.
static const char *unseen_transfer(const Run *run, int rank)
{
    static const char *const words[] = {"get", "Get", "put", "Put", "ccumulate", "MPI_Start"};
    const Events *events = &run->traces.of[rank];
    EACH (at, events, "call") {
        const char *function = event_text(events->items[at], "function");
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strncmp(function, "MPI_", 4) == 0 && strstr(function, words[i]))
                return function;
    }
    return NULL;
}

// Where nothing travels meanwhile: the last layer of a pass shows whether something came early.
static const Diagnosis *complete_in_time(const Direction *of)
{
    return of->nothing_in_time ? &d_waits_at_once : &d_gathered_when_needed;
}

static const Diagnosis *not_early(const Direction *forward, const Direction *backward)
{
    if (forward->early + backward->early == 0)
        return complete_in_time(forward);
    if (forward->early == forward->passes && backward->early == 0)
        return &d_forward_only;
    if (backward->early == backward->passes && forward->early == 0)
        return &d_backward_only;
    return &d_some_layers_late;
}

static Fault not_early_fault(const Direction of[2], const Point *p)
{
    const char *unseen = unseen_transfer(p->run, p->rank);
    EarlyRanks ranks = early_ranks(p->run);
    bool differ = ranks.all && ranks.none && (ranks.all | ranks.none) == all_ranks(p->run->ranks);
    Fault fault =
        fault_with(unseen   ? &d_not_seen
                   : differ ? &d_some_layers_late_some_ranks
                            : not_early(&of[0], &of[1]),
                   "%.0f bytes travel\nthe others' parts of the next piece: %.0f bytes\npasses in "
                   "which they travel: forward %d of %d, backward %d of %d",
                   p->under_way, p->needed, of[0].early, of[0].passes, of[1].early, of[1].passes);
    if (unseen) {
        free(fault.evidence);
        fault.evidence = format_text("by messages and collective calls %.0f bytes travel\nthe rank "
                                     "calls %s, too, and the check does not see what travels by it",
                                     p->under_way, unseen);
    } else if (differ) {
        text_add(&fault.evidence, "\nin all passes of this run: %s", rank_names(ranks.all).text);
        text_add(&fault.evidence, "\nin none: %s", rank_names(ranks.none).text);
    }
    return fault_in(p, fault);
}

static void judge_early(const Runs *runs, Report *report)
{
    Direction of[2] = {{.nothing_in_time = true}, {.nothing_in_time = true}};
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks && run->ranks > 1; r++)
            count_passes(run, r, of);
    for (int i = 0; i < 2; i++) {
        const Direction *d = &of[i];
        if (d->early < d->passes) {
            report_fault(report, runs, d->missing.run, EARLY, not_early_fault(of, &d->missing));
            return;
        }
        // The machine alone is not as fast as that each time.
        if (d->passes > 0 && d->in_flight == 0) {
            report_failure(report, EARLY, complete_in_time(d),
                           format_text("in the %s passes, %d of all ranks, MPI_Test has found all "
                                       "transfers complete before the layer is computed",
                                       i == 0 ? "forward" : "backward", d->passes));
            return;
        }
    }
    report_ok(report, EARLY);
}

static const ItemProperty travel[] = {{ONLY_NEXT, travel_fault, NULL}, {0}};

static void judge(const Runs *runs, Report *report)
{
    if (!weights_are_sharded(runs, report) || !judge_items(runs, each_point, travel, report))
        return; // else the weights may be anything
    judge_sharded_weights(runs, report);
    judge_early(runs, report);
}

JUDGE("gathered_early", judge)
ENDS("gathered_early", &shard_ends)
