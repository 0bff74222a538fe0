// The gradient of an embedding's table as pairs of a row's number and the row: a batch names few of
// the table's rows, and all others have a gradient of zero. (TensorFlow calls it IndexedSlices.)

#ifndef HVDLAB_SPARSE_H
#define HVDLAB_SPARSE_H

#include <stddef.h>
#include "base/types.h"

#pragma GCC visibility push(default) // a step may call what follows

// Frees what the gradient owns and empties it; NULL is nothing.
void sparse_gradient_free(SparseGradient *gradient);

#pragma GCC visibility pop

// Inside the library: the rows of a table of `rows` x `dimension` floats that the tokens name, in
// ascending order, each once.
SparseGradient sparse_gather(const float *table, int dimension, const float *tokens, size_t count);

// Overwrites the table by these rows, adding up those that stand there several times, and by zeros
// elsewhere. `caller` is named where a row is not there.
void sparse_scatter(const SparseGradient *gradient, float *table, int rows, const char *caller);

// Writes an event with the rows of this table's gradient (trace.h); those that are all 0 only where
// `zeros` says so.
void sparse_trace(const char *event, const Variable *table, const SparseGradient *gradient,
                  bool zeros);

#endif
