// Reads what was applied; applied.h says what is promised.

#include "applied.h"

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

// Reads a rank's update behind event `*before`, and moves that to the update's end. False: it is not
// there, so this is not a trace of ours.
static bool read_update(Row *row, int rank, int *before, double *tolerance)
{
    const Events *events = &row->run->traces.of[rank];
    bool steps = has_steps(row->run);
    int gradient = event_find(events, "gradient", *before + 1);
    int end = steps ? event_find(events, "step", gradient) : gradient;
    if (end < 0)
        return false;
    row->own[rank] = event_number(events->items[gradient], "value");
    row->shown[rank] = steps ? applied_in_step(row->run, events, gradient, end, tolerance)
                             : applied_by_hand(events, gradient);
    *before = end;
    return true;
}

void applied_add(Rows *rows, const Run *run)
{
    int before[MAX_RANKS], count = run_min_events(run, has_steps(run) ? "step" : "gradient");
    for (int r = 0; r < run->ranks; r++)
        before[r] = -1;
    for (int u = 0; u < count; u++) {
        Row row = {.run = run, .at = u, .ranks = run->ranks};
        double tolerance = TOLERANCE;
        for (int r = 0; r < run->ranks; r++)
            if (!read_update(&row, r, &before[r], &tolerance))
                return;
        row.allowed = tolerance * largest_own(&row);
        if (u > 0 && !row_is_finite(&row))
            return;
        rows_add(rows, &row);
    }
}
