// Inside the library: the graph that graph.c builds and model.c compiles.

#ifndef HVDLAB_GRAPH_H
#define HVDLAB_GRAPH_H

#include "backend/backend.h"
#include "nn/layers.h"

typedef enum {
    NODE_INPUT,
    NODE_INPUT_TOKENS,
    NODE_INPUT_VECTOR,
    NODE_EMBEDDING,
    NODE_CONV2D,
    NODE_BATCH_NORM,
    NODE_RELU,
    NODE_DROPOUT,
    NODE_ADD,
    NODE_MAX_POOL,
    NODE_GLOBAL_AVERAGE_POOL,
    NODE_FLATTEN,
    NODE_DENSE,
    NODE_CUSTOM,
    NODE_SOFTMAX,
    NODE_KINDS, // how many there are
} NodeKind;

typedef struct Graph Graph;

struct Node {
    NodeKind kind;
    Graph *graph;
    int index; // among the nodes of its graph
    struct Node *inputs[2];
    int consumers; // how many layers read this one
    Shape shape;   // of the output
    int size;      // of the convolution's kernel, of the pool, of the embedding's vocabulary
    float rate;    // of the dropout
    LayerFunction forward, backward; // of a custom layer
    Variable *variables[MAX_VARIABLES];
};

// Nodes and variables in the order of creation, which is that of the forward pass.
struct Graph {
    struct Node **nodes;
    int node_count;
    Variable **variables;
    int variable_count;
    int names[NODE_KINDS]; // how many layers of each kind have a name so far
    int models;            // that own it
    bool compiled;         // one of them is
};

// What it computes, a line for each layer, with the L2 penalty of its kernels, and whether the loss
// takes the output for logits. The caller frees it.
char *graph_description(const Graph *graph, float wd, bool from_logits);

// Prints it as a table, with the number of parameters.
void graph_summary(const Graph *graph);

void graph_free(Graph *graph);

#endif
