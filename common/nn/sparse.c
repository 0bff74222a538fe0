// Sparse gradients: from a table to the rows that tokens name, and back.

#include "nn/sparse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"
#include "base/rng.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "observe/trace.h"

static int ascending(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

// The numbers that the tokens name, in ascending order, each once; returns how many.
static int named_rows(const float *tokens, size_t count, int *rows)
{
    size_t named = 0;
    int different = 0;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] >= 0)
            rows[named++] = (int)tokens[i];
    qsort(rows, named, sizeof *rows, ascending);
    for (size_t i = 0; i < named; i++)
        if (different == 0 || rows[i] != rows[different - 1])
            rows[different++] = rows[i];
    return different;
}

SparseGradient sparse_gather(const float *table, int dimension, const float *tokens, size_t count)
{
    SparseGradient gradient = {.dimension = dimension, .rows = allocate(count, sizeof(int))};
    size_t row = (size_t)dimension;
    gradient.count = named_rows(tokens, count, gradient.rows);
    gradient.values = allocate((size_t)gradient.count * row, sizeof(float));
    for (int i = 0; i < gradient.count; i++)
        memcpy(gradient.values + (size_t)i * row, table + (size_t)gradient.rows[i] * row,
               row * sizeof(float));
    return gradient;
}

void sparse_scatter(const SparseGradient *gradient, float *table, int rows, const char *caller)
{
    size_t dimension = (size_t)gradient->dimension;
    memset(table, 0, (size_t)rows * dimension * sizeof *table);
    for (int i = 0; i < gradient->count; i++) {
        int row = gradient->rows[i];
        if (row < 0 || row >= rows)
            die("%s: there is no row %d in a table of %d", caller, row, rows);
        for (size_t d = 0; d < dimension; d++)
            table[(size_t)row * dimension + d] += gradient->values[(size_t)i * dimension + d];
    }
}

// By the numbers that arena_fingerprint() takes for these places; false where all values are 0.
static bool row_fingerprint(const float *values, int dimension, size_t place, double *fingerprint)
{
    bool something = false;
    Rng rng = rng_stream_of(0, RNG_FINGERPRINT, 0);
    rng_skip(&rng, place);
    *fingerprint = 0;
    for (int d = 0; d < dimension; d++) {
        *fingerprint += (double)values[d] * (2 * (double)rng_uniform(&rng) - 1);
        something |= values[d] != 0;
    }
    return something;
}

void sparse_trace(const char *event, const Variable *table, const SparseGradient *gradient,
                  bool zeros)
{
    // (Room for "18446744073709551615," and for ",-1.23456789012e+308".)
    char *rows = allocate((size_t)gradient->count + 1, 24), *to_rows = rows,
         *values = allocate((size_t)gradient->count + 1, 32), *to_values = values;
    for (int i = 0; i < gradient->count; i++) {
        size_t row = (size_t)gradient->rows[i], dimension = (size_t)gradient->dimension;
        double fingerprint;
        if (!row_fingerprint(gradient->values + (size_t)i * dimension, gradient->dimension,
                             table->offset + row * dimension, &fingerprint) &&
            !zeros)
            continue;
        const char *between = *rows ? "," : "";
        to_values += print_number(to_values, 32, "%s%.12g", between, fingerprint);
        to_rows += print_number(to_rows, 24, "%s%zu", between, row);
    }
    trace_write(event, (TraceField[]){TEXT("table", table->name),
                                      NUMBER("dimension", gradient->dimension),
                                      NUMBER("table_rows", table->dims[0]),
                                      TEXT("rows", rows),
                                      TEXT("values", values),
                                      {0}});
    free(rows);
    free(values);
}

void sparse_gradient_free(SparseGradient *gradient)
{
    if (!gradient)
        return;
    free(gradient->rows);
    free(gradient->values);
    *gradient = (SparseGradient){0};
}
