// A graph in words, a line for each layer, so that two can be compared and the first difference
// named.

#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/numbers.h"
#include "nn/graph.h"

static const char *const kinds[NODE_KINDS] = {
    [NODE_INPUT] = "input", // as layers.h calls them
    [NODE_INPUT_TOKENS] = "input_tokens",
    [NODE_INPUT_VECTOR] = "input_vector",
    [NODE_EMBEDDING] = "embedding",
    [NODE_CONV2D] = "conv2d",
    [NODE_BATCH_NORM] = "batch_norm",
    [NODE_RELU] = "relu",
    [NODE_DROPOUT] = "dropout",
    [NODE_ADD] = "add",
    [NODE_MAX_POOL] = "max_pool",
    [NODE_GLOBAL_AVERAGE_POOL] = "global_average_pool",
    [NODE_FLATTEN] = "flatten",
    [NODE_DENSE] = "dense",
    [NODE_CUSTOM] = "custom_layer",
    [NODE_SOFTMAX] = "softmax",
};

// " of layer 3 and layer 7"
static void write_inputs(FILE *to, const struct Node *node)
{
    for (int i = 0; i < 2 && node->inputs[i]; i++)
        fprintf(to, "%s%d", i == 0 ? " of layer " : " and layer ", node->inputs[i]->index);
}

static void write_layer(FILE *to, const struct Node *node, float wd, bool logits)
{
    const Shape s = node->shape;
    fprintf(to, "layer %d: %s", node->index, kinds[node->kind]);
    write_inputs(to, node);
    if (node->kind == NODE_DROPOUT)
        fprintf(to, ", rate %s", float_text(node->rate).text);
    if (node->kind == NODE_DENSE && !node->variables[BIAS])
        fprintf(to, ", without bias");
    if (node->size > 0)
        fprintf(to, ", size %d", node->size);
    fprintf(to, ", %dx%dx%d", s.height, s.width, s.channels);
    if (wd != 0 && node->variables[KERNEL] && node->variables[KERNEL]->penalized)
        fprintf(to, ", L2 penalty %s", float_text(wd).text);
    fprintf(to, logits ? ", read as logits\n" : "\n");
}

char *graph_description(const Graph *graph, float wd, bool from_logits)
{
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    for (int i = 0; to && i < graph->node_count; i++)
        write_layer(to, graph->nodes[i], wd, from_logits && i == graph->node_count - 1);
    if (!to || fclose(to) != 0)
        die("out of memory: there is none for a model's description");
    return text;
}
