// Reads the updates of a training that clips; clipped.h says what is promised.

#include "clipped.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"

// Of the norm of a variable's gradients.
#define TOLERANCE 1e-4

static void read_variable(const cJSON *event, VariableGradients *gradients)
{
    int v = event_int(event, "number");
    if (v < 0 || v >= MAX_CLIPPED_VARIABLES)
        return;
    gradients->value[v] = event_number(event, "value");
    gradients->norm[v] = event_number(event, "norm");
    gradients->length += event_number(event, "count");
    gradients->largest = fmax(gradients->largest, event_number(event, "largest"));
}

static void multiply(VariableGradients *gradients, double factor)
{
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++) {
        gradients->value[v] *= factor;
        gradients->norm[v] *= factor;
    }
    gradients->largest *= factor;
}

// Returns how many updates the rank has begun.
static int read_rank(const Run *run, int rank, ClippedUpdate *updates)
{
    const Events *events = &run->traces.of[rank];
    VariableGradients own = {0}, applied = {0};
    int count = 0;
    EACH_EVENT (event, events) {
        if (event_is(event, "variable_gradient")) {
            read_variable(event, &own);
        } else if (event_is(event, "variable_apply")) {
            read_variable(event, &applied);
        } else if (event_is(event, "gradient")) {
            updates[count++] = (ClippedUpdate){.own = own, .weights = event_number(event, "arena")};
            own = (VariableGradients){0};
        } else if (event_is(event, "apply") && count > 0) {
            ClippedUpdate *update = &updates[count - 1];
            double rate = event_number(event, "learning_rate") / run_flag(run, "--base-lr ");
            update->applies++;
            update->at_other_rate = fabs(rate - 1) > TOLERANCE;
            update->applied = applied;
            multiply(&update->applied, update->at_other_rate ? rate : 1);
            applied = (VariableGradients){0};
        }
    }
    return count;
}

static bool is_finite_update(const ClippedUpdates *updates, int u)
{
    for (int r = 0; r < updates->run->ranks; r++)
        if (!isfinite(norm_of(&updates->of[r][u].own) + norm_of(&updates->of[r][u].applied)))
            return false;
    return true;
}

ClippedUpdates clipped_updates(const Run *run)
{
    ClippedUpdates updates = {.run = run, .limit = run_flag(run, "--clip-norm ")};
    for (int r = 0; r < run->ranks; r++) {
        size_t room = (size_t)event_count(&run->traces.of[r], "gradient");
        updates.of[r] = allocate(room, sizeof *updates.of[r]);
        int count = read_rank(run, r, updates.of[r]);
        updates.count = r == 0 || count < updates.count ? count : updates.count;
    }
    int finite = updates.count > 0;
    while (finite < updates.count && is_finite_update(&updates, finite))
        finite++;
    updates.count = finite;
    return updates;
}

void clipped_updates_free(ClippedUpdates *updates)
{
    for (int r = 0; r < updates->run->ranks; r++)
        free(updates->of[r]);
}

double norm_of(const VariableGradients *gradients)
{
    double squares = 0;
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++)
        squares += gradients->norm[v] * gradients->norm[v];
    return sqrt(squares);
}

double mean_base(const ClippedUpdates *updates, int u, int rank, int v, int number)
{
    (void)rank, (void)number;
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][u].own.value[v];
    return sum / updates->run->ranks;
}

static double largest_norm(const ClippedUpdates *updates, int u, int v)
{
    double largest = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        largest = fmax(largest, updates->of[r][u].own.norm[v]);
    return largest;
}

bool is_multiple(const ClippedUpdates *updates, int u, int rank, ClippedBase base, int number,
                 double *factor)
{
    const VariableGradients *applied = &updates->of[rank][u].applied;
    double products = 0, squares = 0;
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++) {
        double value = base(updates, u, rank, v, number);
        products += value * applied->value[v];
        squares += value * value;
    }
    *factor = products / squares;
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++) {
        double off = applied->value[v] - *factor * base(updates, u, rank, v, number);
        if (!(fabs(off) <= TOLERANCE * *factor * largest_norm(updates, u, v)))
            return false;
    }
    return *factor > 0;
}

bool is_applied(const ClippedUpdates *updates, int u, int rank, int v, double value)
{
    const VariableGradients *applied = &updates->of[rank][u].applied;
    return fabs(applied->value[v] - value) <= 10 * TOLERANCE * applied->norm[v];
}
