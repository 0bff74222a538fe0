// Builds the graph: one node per layer, its shape, its variables and their names. Runs nothing; the
// compilation of the model (lower.c) chooses and fuses operations.

#include "nn/graph.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include "backend/constants.h"
#include "base/error.h"
#include "base/memory.h"

#define MAX_KERNEL     255       // far larger ones would take minutes, and gigabytes
#define MAX_VOCABULARY (1 << 24) // the tokens are floats, which hold all numbers up to there

static void *append(void *array, int count, size_t size)
{
    return enlarge(array, (size_t)count + 1, size);
}

// Values are counted by int, flatten()'s most of all.
static void check_size(Shape s)
{
    if ((double)s.height * s.width * s.channels > INT_MAX)
        die("a layer of %dx%dx%d values: more than 2147483647 cannot be counted", s.height, s.width,
            s.channels);
}

static Tensor add_node(Graph *graph, NodeKind kind, Tensor a, Tensor b, Shape shape)
{
    check_size(shape);
    struct Node *node = allocate(1, sizeof *node);
    *node = (struct Node){.kind = kind, .graph = graph, .inputs = {a, b}, .shape = shape};
    if (a)
        a->consumers++;
    if (b)
        b->consumers++;
    graph->nodes = append(graph->nodes, graph->node_count, sizeof *graph->nodes);
    node->index = graph->node_count;
    graph->nodes[graph->node_count++] = node;
    return node;
}

// A layer's input, which must exist.
static Tensor given(Tensor x, const char *layer)
{
    if (!x)
        die("%s: there is no tensor to read (NULL)", layer);
    return x;
}

static Tensor layer(NodeKind kind, Tensor x, Shape shape)
{
    return add_node(x->graph, kind, x, NULL, shape);
}

// Numbers a layer as Keras does: the first of its kind has no number.
static void layer_name(Tensor node, const char *kind, char *name, size_t size)
{
    int number = node->graph->names[node->kind]++;
    if (number == 0)
        snprintf(name, size, "%s", kind);
    else
        snprintf(name, size, "%s_%d", kind, number);
}

static Variable *add_variable(Tensor node, int index, const char *layer, const char *name,
                              Initializer initializer)
{
    Graph *graph = node->graph;
    Variable *variable = allocate(1, sizeof *variable);
    snprintf(variable->name, sizeof variable->name, "%s/%s", layer, name);
    variable->trainable = true;
    variable->initializer = initializer;
    node->variables[index] = variable;
    graph->variables = append(graph->variables, graph->variable_count, sizeof *graph->variables);
    graph->variables[graph->variable_count++] = variable;
    return variable;
}

static Variable *add_vector(Tensor node, int index, const char *layer, const char *name,
                            Initializer initializer)
{
    Variable *variable = add_variable(node, index, layer, name, initializer);
    variable->ndims = 1;
    variable->dims[0] = node->shape.channels;
    return variable;
}

static Tensor new_graph(NodeKind input, Shape shape)
{
    Graph *graph = allocate(1, sizeof *graph);
    lives_until_exit(graph);
    return add_node(graph, input, NULL, NULL, shape);
}

Tensor input(int height, int width, int channels)
{
    if (height < 1 || width < 1 || channels < 1)
        die("input: %dx%dx%d is not the shape of an image", height, width, channels);
    return new_graph(NODE_INPUT, (Shape){height, width, channels});
}

Tensor input_tokens(int length)
{
    if (length < 1)
        die("input_tokens: %d tokens are not an example", length);
    return new_graph(NODE_INPUT_TOKENS, (Shape){1, length, 1});
}

Tensor input_vector(int length)
{
    if (length < 1)
        die("input_vector: %d numbers are no vector", length);
    return new_graph(NODE_INPUT_VECTOR, (Shape){1, 1, length});
}

Tensor embedding(Tensor tokens, int vocabulary, int dimension)
{
    if (given(tokens, __func__)->kind != NODE_INPUT_TOKENS)
        die("embedding: it reads tokens, and these are not input_tokens()");
    if (vocabulary < 1 || vocabulary > MAX_VOCABULARY || dimension < 1)
        die("embedding: a table of %d rows of %d: the rows must be 1 to %d, their length positive",
            vocabulary, dimension, MAX_VOCABULARY);
    Tensor node = layer(NODE_EMBEDDING, tokens, (Shape){1, tokens->shape.width, dimension});
    node->size = vocabulary;

    char name[32];
    layer_name(node, "embedding", name, sizeof name);
    Variable *table = add_variable(node, EMBEDDINGS, name, "embeddings", INIT_UNIFORM);
    table->ndims = 2;
    table->dims[0] = vocabulary;
    table->dims[1] = dimension;
    return node;
}

Tensor conv2d(Tensor x, int filters, int kernel_size)
{
    given(x, __func__);
    if (filters < 1 || kernel_size < 1 || kernel_size % 2 == 0 || kernel_size > MAX_KERNEL)
        die("conv2d: %d filters of size %d: filters must be positive, the size odd and at most %d",
            filters, kernel_size, MAX_KERNEL);
    Tensor node = layer(NODE_CONV2D, x, (Shape){x->shape.height, x->shape.width, filters});
    node->size = kernel_size;

    char name[32];
    layer_name(node, "conv2d", name, sizeof name);
    Variable *kernel = add_variable(node, KERNEL, name, "kernel", INIT_GLOROT_UNIFORM);
    kernel->ndims = 4;
    kernel->dims[0] = kernel->dims[1] = kernel_size;
    kernel->dims[2] = x->shape.channels;
    kernel->dims[3] = filters;
    kernel->penalized = true;
    add_vector(node, BIAS, name, "bias", INIT_ZEROS);
    return node;
}

Tensor batch_norm(Tensor x)
{
    Tensor node = layer(NODE_BATCH_NORM, x, given(x, __func__)->shape);
    char name[32];
    layer_name(node, "batch_normalization", name, sizeof name);
    add_vector(node, GAMMA, name, "gamma", INIT_ONES);
    add_vector(node, BETA, name, "beta", INIT_ZEROS);
    add_vector(node, MOVING_MEAN, name, "moving_mean", INIT_ZEROS)->trainable = false;
    add_vector(node, MOVING_VARIANCE, name, "moving_variance", INIT_ONES)->trainable = false;
    return node;
}

Tensor relu(Tensor x)
{
    return layer(NODE_RELU, x, given(x, __func__)->shape);
}

Tensor dropout(Tensor x, float rate)
{
    given(x, __func__);
    if (!(rate >= 0 && rate < 1))
        die("dropout: the rate %g is not in [0, 1)", (double)rate);
    Tensor node = layer(NODE_DROPOUT, x, x->shape);
    node->rate = rate;
    return node;
}

Tensor add(Tensor a, Tensor b)
{
    Shape s = given(a, __func__)->shape, t = given(b, __func__)->shape;
    if (a->graph != b->graph)
        die("add: the tensors come from two different inputs");
    if (s.height != t.height || s.width != t.width || s.channels != t.channels)
        die("add: the shapes %dx%dx%d and %dx%dx%d differ", s.height, s.width, s.channels, t.height,
            t.width, t.channels);
    return add_node(a->graph, NODE_ADD, a, b, s);
}

Tensor max_pool(Tensor x, int size)
{
    Shape s = given(x, __func__)->shape;
    if (size < 1 || size > s.height || size > s.width)
        die("max_pool: a window of %d does not fit into %dx%d", size, s.height, s.width);
    if (size > MAX_POOL / size)
        die("max_pool: a window of %d has more than %d pixels", size, MAX_POOL);
    Tensor node = layer(NODE_MAX_POOL, x, (Shape){s.height / size, s.width / size, s.channels});
    node->size = size;
    return node;
}

Tensor global_average_pool(Tensor x)
{
    return layer(NODE_GLOBAL_AVERAGE_POOL, x, (Shape){1, 1, given(x, __func__)->shape.channels});
}

Tensor flatten(Tensor x)
{
    Shape s = given(x, __func__)->shape;
    return layer(NODE_FLATTEN, x, (Shape){1, 1, s.height * s.width * s.channels});
}

static Tensor add_dense(Tensor x, int units, bool bias, const char *caller)
{
    given(x, caller);
    if (x->shape.height != 1 || x->shape.width != 1)
        die("%s: its input is %dx%dx%d, not flat: use flatten or global_average_pool before it",
            caller, x->shape.height, x->shape.width, x->shape.channels);
    if (units < 1)
        die("%s: %d units", caller, units);
    Tensor node = layer(NODE_DENSE, x, (Shape){1, 1, units});
    char name[32];
    layer_name(node, "dense", name, sizeof name);
    Variable *kernel = add_variable(node, KERNEL, name, "kernel", INIT_GLOROT_UNIFORM);
    kernel->ndims = 2;
    kernel->dims[0] = x->shape.channels;
    kernel->dims[1] = units;
    kernel->penalized = true;
    if (bias)
        add_vector(node, BIAS, name, "bias", INIT_ZEROS);
    return node;
}

Tensor dense(Tensor x, int units)
{
    return add_dense(x, units, true, __func__);
}

Tensor dense_without_bias(Tensor x, int units)
{
    return add_dense(x, units, false, __func__);
}

Tensor custom_layer(Tensor x, LayerFunction forward, LayerFunction backward)
{
    given(x, __func__);
    if (!forward || !backward)
        die("custom_layer: it needs two functions, forward and backward, not NULL");
    Tensor node = layer(NODE_CUSTOM, x, x->shape);
    node->forward = forward;
    node->backward = backward;
    return node;
}

Tensor softmax(Tensor x)
{
    return layer(NODE_SOFTMAX, x, given(x, __func__)->shape);
}

void graph_free(Graph *graph)
{
    for (int i = 0; i < graph->node_count; i++)
        free(graph->nodes[i]);
    for (int i = 0; i < graph->variable_count; i++)
        free(graph->variables[i]);
    free(graph->nodes);
    free(graph->variables);
    free(graph);
}
