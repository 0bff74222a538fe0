// A graph in words, a line for each layer, so that two can be compared and the first difference
// named.

#include <stdlib.h>
#include "base/format.h"
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
static void add_inputs(char **text, const struct Node *node)
{
    for (int i = 0; i < 2 && node->inputs[i]; i++)
        text_add(text, "%s%d", i == 0 ? " of layer " : " and layer ", node->inputs[i]->index);
}

static void add_layer(char **text, const struct Node *node, float wd, bool logits)
{
    const Shape s = node->shape;
    text_add(text, "layer %d: %s", node->index, kinds[node->kind]);
    add_inputs(text, node);
    if (node->kind == NODE_DROPOUT)
        text_add(text, ", rate %s", float_text(node->rate).text);
    if (node->kind == NODE_DENSE && !node->variables[BIAS])
        text_add(text, ", without bias");
    if (node->size > 0)
        text_add(text, ", size %d", node->size);
    text_add(text, ", %dx%dx%d", s.height, s.width, s.channels);
    if (wd != 0 && node->variables[KERNEL] && node->variables[KERNEL]->penalized)
        text_add(text, ", L2 penalty %s", float_text(wd).text);
    text_add(text, "%s\n", logits ? ", read as logits" : "");
}

char *graph_description(const Graph *graph, float wd, bool from_logits)
{
    char *text = format_text("%s", "");
    for (int i = 0; i < graph->node_count; i++)
        add_layer(&text, graph->nodes[i], wd, from_logits && i == graph->node_count - 1);
    return text;
}
