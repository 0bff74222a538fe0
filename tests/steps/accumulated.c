// Reads the updates, and what the weights tell of them; accumulated.h says what is promised.

#include "accumulated.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"

// Images of an update, those of all ranks together, where batches allow it: as the exercise has it.
#define UPDATE 256

// Of the largest gradient of the update.
#define TOLERANCE 1e-4

// The same for what the weights tell. Single precision leaves few digits of a
// change of weights, and rounding alone moves their fingerprint.
#define WEIGHTS_TOLERANCE 1e-3
#define WEIGHTS_ROUNDING  3e-6

static bool is_training_batch(const cJSON *event)
{
    return event_is(event, "images") && event_has(event, "split", "train");
}

// A gradient begins an update where there was one since the gradient before, or the weights have
// changed in another way.
static bool begins_update(const Update *last, const cJSON *gradient)
{
    return !last || last->applied || last->weights != event_number(gradient, "arena");
}

static void add_gradient(Update *update, const cJSON *gradient)
{
    update->gradients =
        enlarge(update->gradients, (size_t)update->count + 1, sizeof *update->gradients);
    update->gradients[update->count++] = event_number(gradient, "value");
    update->weights = event_number(gradient, "arena");
    update->early += update->late;
    update->late = 0;
    update->function = NULL;
    update->whole = 0;
}

static void add_call(Update *update, const cJSON *event, double bytes)
{
    update->late += event_bytes(event);
    if (!(event_bytes(event) >= bytes))
        return;
    const char *function = event_text(event, "function");
    bool again = update->function && strcmp(update->function, function) == 0;
    update->whole = again ? update->whole + 1 : 1;
    update->function = function;
}

static void add_apply(Update *update, const cJSON *apply, double rate)
{
    update->applied = true;
    update->raw += event_number(apply, "value");
    update->by_rate += event_number(apply, "value") * event_number(apply, "learning_rate") / rate;
}

static void read_rank(Updates *updates, int rank)
{
    const Events *events = &updates->run->traces.of[rank];
    Update *items = allocate((size_t)event_count(events, "gradient") + 1, sizeof *items);
    Update *last = NULL;
    int count = 0, taken = 0;
    EACH_EVENT (event, events) {
        const char *name = event_text(event, "event");
        taken += is_training_batch(event);
        if (strcmp(name, "gradient") == 0) {
            if (begins_update(last, event))
                last = &items[count++];
            add_gradient(last, event);
            last->taken += taken;
            taken = 0;
        }
        if (last && strcmp(name, "apply") == 0)
            add_apply(last, event, updates->rate);
        if (last)
            add_call(last, event, updates->bytes);
    }
    updates->of[rank] = items;
    updates->made[rank] = count;
}

static double largest_gradient(const Updates *updates, int u)
{
    double most = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        for (int p = 0; p < updates->of[r][u].count; p++)
            most = fmax(most, fabs(updates->of[r][u].gradients[p]));
    return most;
}

// What the change of a rank's weights tells; not a number after the last update of all.
static double gradient_by_weights(const Updates *updates, int rank, int u)
{
    const Update *items = updates->of[rank];
    if (u + 1 >= updates->made[rank])
        return NAN;
    return (items[u].weights - items[u + 1].weights) / updates->rate;
}

static double tolerance_of_weights(const Updates *updates, int u)
{
    return WEIGHTS_TOLERANCE * largest_gradient(updates, u) + WEIGHTS_ROUNDING / updates->rate;
}

// True where some weights have changed by something else than what the optimizer got.
static bool weights_tell_otherwise(const Updates *updates)
{
    for (int u = 0; u < updates->count; u++)
        for (int r = 0; r < updates->run->ranks; r++) {
            double off = updates->of[r][u].by_rate - gradient_by_weights(updates, r, u);
            if (fabs(off) > tolerance_of_weights(updates, u))
                return true;
        }
    return false;
}

// What the optimizer got, unless the weights tell otherwise.
static void find_effective(Updates *updates)
{
    updates->by_weights = weights_tell_otherwise(updates);
    for (int u = 0; u < updates->count; u++)
        for (int r = 0; r < updates->run->ranks; r++) {
            Update *update = &updates->of[r][u];
            update->effective =
                updates->by_weights ? gradient_by_weights(updates, r, u) : update->by_rate;
            update->allowed = updates->by_weights ? tolerance_of_weights(updates, u)
                                                  : TOLERANCE * largest_gradient(updates, u);
        }
}

Updates accumulated_updates(const Run *run)
{
    Updates updates = {.run = run, .count = INT32_MAX};
    int together = (int)run_flag(run, "--batch-size ") * run->ranks;
    updates.passes = together < UPDATE ? UPDATE / together : 1;
    updates.steps = (int)run_flag(run, "--images ") / together;
    updates.epochs = (int)run_flag(run, "--epochs ");
    updates.rate = isnan(run_flag(run, "--base-lr ")) ? 0.01 : run_flag(run, "--base-lr ");
    updates.bytes = 4 * event_number(event_nth(&run->traces.of[0], "broadcast", 0), "weights");
    for (int r = 0; r < run->ranks; r++) {
        read_rank(&updates, r);
        updates.count = updates.made[r] < updates.count ? updates.made[r] : updates.count;
    }
    find_effective(&updates);
    return updates;
}

void accumulated_updates_free(Updates *updates)
{
    for (int r = 0; r < updates->run->ranks; r++) {
        for (int u = 0; u < updates->made[r]; u++)
            free(updates->of[r][u].gradients);
        free(updates->of[r]);
    }
}
