// Inside the library: from the graph of layers to the list of fused operations that a backend runs.

#ifndef HVDLAB_LOWER_H
#define HVDLAB_LOWER_H

#include "nn/graph.h"

typedef struct {
    Op *ops; // in forward order
    int op_count;
    int value_count; // value 0 is the model's input
    int logits;      // the value that softmax reads
} Program;

// Lowers the graph behind `output`, which must be a softmax. Free `ops` with free(). Marks the
// biases that have no gradient.
Program lower(const Graph *graph, Tensor output);

#endif
