// Measures gradients; norms.h says what is promised.

#include "lessons/norms.h"

#include <math.h>
#include <stdlib.h>
#include "backend/backend.h"
#include "base/memory.h"
#include "nn/hooks.h"
#include "nn/optimizer.h"
#include "observe/trace.h"

static Norms largest;
static double squares; // of the gradients that are being computed

typedef struct {
    double squares, largest;
} Size;

static Size size_of(const Parameters *p, Segment variable)
{
    Size size = {0};
    float *values = allocate(variable.length, sizeof *values);
    backend_of(p->device)->read(p->device, values,
                                p->gradients + (variable.offset - p->first_gradient),
                                variable.length * sizeof *values);
    for (size_t i = 0; i < variable.length; i++) {
        size.squares += (double)values[i] * (double)values[i];
        size.largest = fmax(size.largest, fabs((double)values[i]));
    }
    free(values);
    return size;
}

// Of the variables in a stretch of the arena; returns the sum of their squares.
static double measure(const Parameters *p, size_t offset, size_t length, bool applied)
{
    double sum = 0;
    for (int i = 0; i < p->segment_count; i++) {
        Segment variable = p->segments[i];
        if (variable.offset < offset || variable.offset >= offset + length)
            continue;
        Size size = size_of(p, variable);
        trace(applied ? "variable_apply" : "variable_gradient", NUMBER("number", i),
              NUMBER("count", variable.length),
              NUMBER("value", gradient_fingerprint(p, variable.offset, variable.length)),
              NUMBER("norm", sqrt(size.squares)), NUMBER("largest", size.largest));
        sum += size.squares;
    }
    return sum;
}

// What is not a number stays.
static void keep_larger(double *kept, double norm)
{
    if (!isnan(*kept) && !(norm <= *kept))
        *kept = norm;
}

static void seen(const Parameters *parameters, size_t offset, size_t length, bool applied)
{
    double sum = measure(parameters, offset, length, applied);
    if (applied) {
        keep_larger(&largest.applied, sqrt(sum));
        return;
    }
    squares = offset == 0 ? sum : squares + sum; // the first gradients that are complete
    keep_larger(&largest.computed, sqrt(squares));
}

void measure_norms(void)
{
    gradients_seen = seen;
}

Norms largest_norms(void)
{
    Norms norms = largest;
    largest = (Norms){0};
    return norms;
}
