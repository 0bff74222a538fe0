// Inside the library: from the graph of layers to the list of fused operations that a backend runs.

#ifndef HVDLAB_LOWER_H
#define HVDLAB_LOWER_H

#include "nn/graph.h"

typedef struct {
    Op *ops; // in forward order
    int op_count;
    int value_count;   // value 0 is the model's input
    int logits;        // the value that the loss reads
    bool reads_vector; // the input is one, whose gradient is wanted
} Program;

// Lowers the graph behind `output`. Where the loss computes a softmax in place of the model's last
// layer (else it is `from_logits`), the model must end in one, which becomes no operation. Free
// `ops` with free(). Marks the biases that have no gradient.
Program lower(const Graph *graph, Tensor output, bool from_logits);

#endif
