// Reads what was applied; applied.h says what is promised.

#include "applied.h"

#include <math.h>
#include "base/memory.h"

// Of the largest gradient of the step. Single precision leaves few digits of a change of weights.
#define WEIGHTS_TOLERANCE 5e-3

// What reached the optimizer, in a step of fit() that ends with event `to`.
static double applied_in_step(const Run *run, const Events *events, int from, int to,
                              double *tolerance)
{
    int at = event_find(events, "apply", from);
    int again = at < 0 ? -1 : event_find(events, "apply", at + 1);
    if (at >= 0 && at < to && (again < 0 || again > to))
        return event_number(events->items[at], "value");
    // Not once: what became of the weights.
    *tolerance = WEIGHTS_TOLERANCE;
    double before = event_number(events->items[from], "arena");
    double after = event_number(events->items[to], "arena");
    return (before - after) / run_flag(run, "--base-lr ");
}

// What reached the optimizer between two gradients of a loop of the program's own, whose end no
// event tells.
static double applied_by_hand(const Events *events, int gradient)
{
    int next = event_find(events, "gradient", gradient + 1);
    double sum = 0;
    for (int at = gradient; (at = event_find(events, "apply", at + 1)) >= 0;) {
        if (next >= 0 && at > next)
            break;
        sum += event_number(events->items[at], "value");
    }
    return sum;
}

// The end of an update: a step of fit(), or, without fit(), the next gradient.
static bool has_steps(const Run *run)
{
    return event_count(&run->traces.of[0], "step") > 0;
}

static int count_updates(const Run *run)
{
    const char *event = has_steps(run) ? "step" : "gradient";
    int least = event_count(&run->traces.of[0], event);
    for (int r = 1; r < run->ranks; r++) {
        int count = event_count(&run->traces.of[r], event);
        least = count < least ? count : least;
    }
    return least;
}

static void read_updates_of(const Run *run, int rank, AppliedUpdates *updates)
{
    const Events *events = &run->traces.of[rank];
    bool steps = has_steps(run);
    for (int i = 0, before = -1; i < updates->count; i++) {
        int gradient = event_find(events, "gradient", before + 1);
        int end = steps ? event_find(events, "step", gradient) : gradient;
        if (gradient < 0 || end < 0) { // not a trace of ours
            updates->count = i;
            return;
        }
        AppliedUpdate *update = &updates->items[i];
        update->own[rank] = event_number(events->items[gradient], "value");
        update->applied[rank] =
            steps ? applied_in_step(run, events, gradient, end, &update->tolerance)
                  : applied_by_hand(events, gradient);
        before = end;
    }
}

AppliedUpdates applied_updates(const Run *run)
{
    AppliedUpdates updates = {.run = run, .count = count_updates(run)};
    updates.items = allocate((size_t)updates.count, sizeof *updates.items);
    for (int i = 0; i < updates.count; i++)
        updates.items[i].tolerance = TOLERANCE;
    for (int r = 0; r < run->ranks; r++)
        read_updates_of(run, r, &updates);
    return updates;
}

double sum_over_ranks(const Run *run, const double values[])
{
    double result = 0;
    for (int r = 0; r < run->ranks; r++)
        result += values[r];
    return result;
}

double largest_of_ranks(const Run *run, const double values[])
{
    double most = 0;
    for (int r = 0; r < run->ranks; r++)
        most = fmax(most, fabs(values[r]));
    return most;
}

bool explains_applied(const Run *run, const AppliedUpdate *update, AppliedFormula formula,
                      int number)
{
    double allowed = update->tolerance * largest_of_ranks(run, update->own);
    for (int r = 0; r < run->ranks; r++)
        if (!(fabs(update->applied[r] - formula(run, update->own, r, number)) <= allowed))
            return false;
    return true;
}

int finite_updates(const AppliedUpdates *updates)
{
    int count = updates->count > 0;
    while (count < updates->count &&
           isfinite(sum_over_ranks(updates->run, updates->items[count].own) +
                    sum_over_ranks(updates->run, updates->items[count].applied)))
        count++;
    return count;
}

int first_not_applied(const AppliedUpdates *updates, AppliedFormula formula, int number)
{
    int count = finite_updates(updates);
    for (int i = 0; i < count; i++)
        if (!explains_applied(updates->run, &updates->items[i], formula, number))
            return i;
    return -1;
}

RankSet applied_the_same(const Run *run, const AppliedUpdate *update, int rank)
{
    RankSet group = 0;
    double allowed = update->tolerance * largest_of_ranks(run, update->own);
    for (int r = 0; r < run->ranks; r++)
        if (fabs(update->applied[r] - update->applied[rank]) <= allowed)
            group |= 1u << r;
    return group;
}
