// Reads the updates of a grid of ranks; grid.h says what is promised.

#include "grid.h"
#include "divided.h"
#include "shard_updates.h"

#include <math.h>

// ---- One rank.

static void add_call(Exchange *exchange, const Run *run, int rank, const cJSON *event)
{
    RankSet among = 1u << rank;
    if (event_is(event, "collective_begin")) {
        RankSet ranks = event_ranks(event, "ranks");
        among |= ranks ? ranks : all_ranks(run->ranks);
    } else {
        int to = event_int(event, "to"), from = event_int(event, "from");
        among |= (to >= 0 ? 1u << to : 0) | (from >= 0 ? 1u << from : 0);
    }
    if (!exchange->call || rank_count(among) > rank_count(event_ranks(exchange->call, "ranks")))
        exchange->call = event;
    exchange->ranks |= among;
    if (is_allreduce(event))
        exchange->all_reduced += event_number(event, "bytes");
    else
        exchange->otherwise = true;
}

// The number that such an event belongs to; NULL: none of these.
static BeforeAfter *number_of_layer(GridWorker *worker, const Run *run, const cJSON *event)
{
    bool forward = event_has(event, "pass", "forward");
    int length = event_int(event, "length");
    if (length == input_length(run))
        return &worker->numbers[forward ? INPUT : INPUT_GRADIENT];
    if (length == output_length(run))
        return &worker->numbers[forward ? OUTPUT : OUTPUT_GRADIENT];
    return NULL;
}

// Reads the update that begins at event `at`; returns the place after it, or -1. Batches of tests
// come between updates, too.
static int read_update(const Run *run, int rank, int at, GridWorker *worker)
{
    const Events *events = &run->traces.of[rank];
    Exchange *exchange = NULL;
    BeforeAfter unknown = {0}, *layer = &unknown;
    for (int i = at; i < events->count; i++) {
        const cJSON *event = events->items[i];
        if (event_is(event, "images")) { // of the next batch
            *worker = (GridWorker){0};
            exchange = NULL;
        } else if (event_is(event, "custom_begin") || event_is(event, "custom_end")) {
            bool begins = event_is(event, "custom_begin");
            BeforeAfter *known = number_of_layer(worker, run, event);
            layer = known ? known : &unknown;
            layer->there = true;
            *(begins ? &layer->before : &layer->after) = event_number(event, "sum");
            exchange = begins ? &worker->in_layers : NULL;
        } else if (event_is(event, "gradient")) {
            worker->numbers[GRADIENT].before = event_number(event, "value");
            worker->part = event_number(event, "arena");
            exchange = &worker->gradients;
        } else if (event_is(event, "answers")) {
            worker->images = event_int(event, "images");
            worker->loss = event_number(event, "loss");
        } else if (event_is(event, "apply")) {
            worker->numbers[GRADIENT].after = event_number(event, "value");
            return i + 1;
        } else if (exchange && moves_values(event)) {
            layer->exchanged = layer->exchanged || exchange == &worker->in_layers;
            add_call(exchange, run, rank, event);
        }
    }
    return -1;
}

// ---- All.

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

// Sums differ in their last digits where ranks have different numbers of cores.
static void find_grid(GridUpdate *update)
{
    for (int a = 0; a < update->run->ranks; a++)
        for (int b = 0; b < update->run->ranks; b++) {
            const GridWorker *one = &update->of[a], *other = &update->of[b];
            update->row[a] |=
                is_near(one->numbers[INPUT].before, other->numbers[INPUT].before) ? 1u << b : 0;
            update->column[a] |= is_near(one->part, other->part) ? 1u << b : 0;
        }
}

GridUpdate grid_of(const Runs *runs, const Run *run)
{
    double asked = run_flag(run, "--columns ");
    int columns = isnan(asked) ? run->ranks : (int)asked;
    return (GridUpdate){.runs = runs,
                        .run = run,
                        .one = undivided_run(runs),
                        .columns = columns,
                        .rows = columns > 0 ? run->ranks / columns : 0};
}

bool grid_next(GridUpdate *update)
{
    if (!update->one || update->rows < 1)
        return false;
    bool complete = true; // else what there was of it is read all the same
    for (int r = 0; r < update->run->ranks; r++) {
        update->of[r] = (GridWorker){0};
        update->at[r] = read_update(update->run, r, update->at[r], &update->of[r]);
        complete = complete && update->at[r] >= 0;
        BeforeAfter *numbers = update->of[r].numbers;
        numbers[UNIT_PARTS].after = parts_of_units(update->run, r, update->one);
        numbers[IMAGE_PARTS].after = run_flag(update->run, "--batch-size ") / update->of[r].images;
    }
    if (complete && ++update->number == 1)
        find_grid(update);
    return complete;
}

Row grid_row(const GridUpdate *update, GridNumber number)
{
    Row row = {.run = update->run, .of = update, .ranks = update->run->ranks};
    for (int r = 0; r < row.ranks; r++) {
        row.own[r] = update->of[r].numbers[number].before;
        row.shown[r] = update->of[r].numbers[number].after;
        row.allowed += TOLERANCE * fabs(row.own[r]);
    }
    return row;
}

Fault each_grid_update(const Runs *runs, const Run *run, ItemFault fault)
{
    Fault found = NO_FAULT;
    for (GridUpdate update = grid_of(runs, run); !found.diagnosis && grid_next(&update);)
        found = (*fault)(&update);
    return found;
}
