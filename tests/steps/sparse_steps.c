// Reads the steps; sparse_steps.h says what is promised.

#include "sparse_steps.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <stdlib.h>
#include "base/memory.h"

// Of the largest fingerprint of the step.
#define TOLERANCE 1e-5

static double bytes_between(const Events *events, int from, int to, bool all_reduces)
{
    double bytes = 0;
    for (int i = from; i < to; i++)
        if (all_reduces || !strstr(event_text(events->items[i], "function"), "llreduce"))
            bytes += event_bytes(events->items[i]);
    return bytes;
}

// Where one step of a rank stands in its trace.
typedef struct {
    int computed, gradient, applied, apply, end;
} Moments;

static Moments moments_of(const Events *events, int from)
{
    Moments moments = {.apply = event_find(events, "apply", from)};
    moments.applied = event_find_before(events, "table_apply", moments.apply);
    moments.gradient = event_find_before(events, "gradient", moments.applied);
    moments.computed = event_find_before(events, "table_gradient", moments.gradient);
    moments.end = event_find(events, "table_gradient", moments.apply);
    if (moments.end < 0)
        moments.end = events->count;
    if (moments.apply < 0 || moments.computed < from)
        moments.computed = -1;
    return moments;
}

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int row_count(const cJSON *event)
{
    return list_length(event_text(event, "rows"));
}

static void add_numbers(const cJSON *event, SparseStep *step)
{
    const char *at = event_text(event, "rows");
    for (int i = row_count(event); i > 0; i--)
        step->number[step->rows++] = next_listed(&at);
}

int row_in(const SparseStep *step, int number)
{
    const int *found =
        bsearch(&number, step->number, (size_t)step->rows, sizeof number, compare_ints);
    return found ? (int)(found - step->number) : -1;
}

// The fingerprints of an event's rows, each in its place; returns their sum.
static double read_values(const cJSON *event, const SparseStep *step, double *values, int *place)
{
    const char *row = event_text(event, "rows");
    char *value = (char *)(uintptr_t)event_text(event, "values");
    double sum = 0;
    for (int i = 0, count = row_count(event); i < count; i++, value++) {
        int index = row_in(step, next_listed(&row));
        CHECK(index >= 0);
        values[index] = strtod(value, &value);
        sum += values[index];
        if (place)
            place[index] = i;
    }
    return sum;
}

static void read_rank(SparseStep *step, int rank, const Events *events, Moments at)
{
    size_t rows = (size_t)step->rows;
    const cJSON *computed = events->items[at.computed], *applied = events->items[at.applied];
    const cJSON *gradient = events->items[at.gradient], *apply = events->items[at.apply];
    step->computed[rank] = allocate(rows, sizeof(double));
    step->applied[rank] = allocate(rows, sizeof(double));
    step->place[rank] = allocate(rows, sizeof(int));
    for (size_t i = 0; i < rows; i++)
        step->place[rank][i] = -1;
    double own = read_values(computed, step, step->computed[rank], step->place[rank]);
    double used = read_values(applied, step, step->applied[rank], NULL);
    step->named[rank] = row_count(computed);
    step->others_computed[rank] = event_number(gradient, "value") - own;
    step->others_applied[rank] = event_number(apply, "value") - used;
    step->weights[rank] = event_number(gradient, "arena");
    step->bytes[rank] = bytes_between(events, at.gradient, at.end, true);
    step->gathered[rank] = bytes_between(events, at.gradient, at.end, false);
    for (size_t i = 0; i < rows; i++)
        step->allowed = fmax(step->allowed, TOLERANCE * fabs(step->computed[rank][i]));
}

// The union of the rows that any rank named or changed.
static void read_rows(SparseStep *step, const Run *run, const Moments at[])
{
    size_t most = 0;
    for (int r = 0; r < run->ranks; r++)
        most += (size_t)row_count(run->traces.of[r].items[at[r].computed]) +
                (size_t)row_count(run->traces.of[r].items[at[r].applied]);
    step->number = allocate(most, sizeof *step->number);
    for (int r = 0; r < run->ranks; r++) {
        add_numbers(run->traces.of[r].items[at[r].computed], step);
        add_numbers(run->traces.of[r].items[at[r].applied], step);
    }
    qsort(step->number, (size_t)step->rows, sizeof *step->number, compare_ints);
    int different = 0;
    for (int i = 0; i < step->rows; i++)
        if (i == 0 || step->number[i] != step->number[different - 1])
            step->number[different++] = step->number[i];
    step->rows = different;
}

SparseSteps sparse_steps(const Run *run)
{
    SparseSteps steps = {.run = run};
    int most = event_count(&run->traces.of[0], "apply"), from[MAX_RANKS] = {0};
    steps.items = allocate((size_t)most, sizeof *steps.items);
    for (; steps.count < most; steps.count++) {
        SparseStep *step = &steps.items[steps.count];
        Moments at[MAX_RANKS];
        for (int r = 0; r < run->ranks; r++) {
            at[r] = moments_of(&run->traces.of[r], from[r]);
            if (at[r].computed < 0)
                return steps;
            from[r] = at[r].apply + 1;
        }
        read_rows(step, run, at);
        for (int r = 0; r < run->ranks; r++)
            read_rank(step, r, &run->traces.of[r], at[r]);
        const cJSON *table = run->traces.of[0].items[at[0].computed];
        steps.dimension = event_int(table, "dimension");
        steps.table_rows = event_int(table, "table_rows");
    }
    return steps;
}

const SparseStep *sparse_step(const Row *row)
{
    return &((const SparseSteps *)row->of)->items[row->at];
}

void sparse_steps_free(SparseSteps *steps)
{
    for (int i = 0; i < steps->count; i++) {
        free(steps->items[i].number);
        for (int r = 0; r < steps->run->ranks; r++) {
            free(steps->items[i].place[r]);
            free(steps->items[i].computed[r]);
            free(steps->items[i].applied[r]);
        }
    }
    free(steps->items);
}
