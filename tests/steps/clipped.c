// Reads the updates of a training that clips; clipped.h says what is promised.

#include "clipped.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"

// Of the norm of a variable's gradients.
#define TOLERANCE 1e-4

const Hypothesis mean_gradient = {sum_of_own, NULL, .by_ranks = 1};

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
            update->rate = fabs(rate - 1) > TOLERANCE ? rate : 1;
            update->applied = applied;
            multiply(&update->applied, update->rate);
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

const ClippedUpdate *clipped_update(Cell cell)
{
    return &((const ClippedUpdates *)cell.row->of)->of[cell.rank][cell.row->at];
}

Row clipped_variable(const Row *update, int variable)
{
    Row row = {.run = update->run,
               .of = update->of,
               .at = update->at,
               .ranks = update->ranks,
               .batches = variable};
    for (int r = 0; r < row.ranks; r++) {
        const ClippedUpdate *of = clipped_update((Cell){update, r, 0});
        row.own[r] = of->own.value[variable];
        row.shown[r] = of->applied.value[variable];
        row.allowed = fmax(row.allowed, 10 * TOLERANCE * of->applied.norm[variable]);
    }
    return row;
}

static double largest_norm(const Row *update, int variable)
{
    double largest = 0;
    for (int r = 0; r < update->ranks; r++)
        largest = fmax(largest, clipped_update((Cell){update, r, 0})->own.norm[variable]);
    return largest;
}

bool is_multiple(const Row *update, int rank, const Hypothesis *base, double *factor)
{
    const VariableGradients *applied = &clipped_update((Cell){update, rank, 0})->applied;
    double values[MAX_CLIPPED_VARIABLES], products = 0, squares = 0;
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++) {
        Row row = clipped_variable(update, v);
        values[v] = hypothesis_value(base, &row, rank);
        products += values[v] * applied->value[v];
        squares += values[v] * values[v];
    }
    *factor = products / squares;
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++) {
        double off = applied->value[v] - *factor * values[v];
        if (!(fabs(off) <= TOLERANCE * *factor * largest_norm(update, v)))
            return false;
    }
    return *factor > 0;
}

void clipped_add(Rows *rows, const ClippedUpdates *updates)
{
    for (int u = 0; u < updates->count; u++) {
        Row row = {.run = updates->run,
                   .of = updates,
                   .at = u,
                   .ranks = updates->run->ranks,
                   .relative = FACTOR_TOLERANCE};
        for (int r = 0; r < row.ranks; r++) {
            row.own[r] = norm_of(&updates->of[r][u].own);
            is_multiple(&row, r, &mean_gradient, &row.shown[r]);
        }
        rows_add(rows, &row);
    }
}
