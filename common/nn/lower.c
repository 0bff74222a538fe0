// Fuses layers into operations. The layers between two convolutions (batch norm, ReLU, dropout, the
// residual sum) move much memory and compute little, so they become one operation with few passes
// over memory.

#include "nn/lower.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"

typedef struct {
    const Graph *graph;
    int *value;    // of each node: the value that it writes
    bool *flat;    // of each node: its output is a vector per image
    Tensor *owner; // of each node: the first node of its operation, NULL before it has one
    Tensor *next;  // of each node: the node that follows it in its operation, or NULL
    Program program;
} Lowering;

// The layer that reads x, if it is the only one, of this kind, and not in an operation yet.
static Tensor sole_consumer(const Lowering *l, Tensor x, NodeKind kind)
{
    if (x->consumers != 1)
        return NULL;
    for (int i = x->index + 1; i < l->graph->node_count; i++) {
        Tensor node = l->graph->nodes[i];
        if (node->inputs[0] == x || node->inputs[1] == x)
            return node->kind == kind && !l->owner[i] ? node : NULL;
    }
    return NULL;
}

// Takes the layer after `*last` into its operation, if there is one of this kind.
static bool take(Lowering *l, Tensor *last, NodeKind kind)
{
    Tensor next = sole_consumer(l, *last, kind);
    if (!next)
        return false;
    l->next[(*last)->index] = next;
    l->owner[next->index] = l->owner[(*last)->index];
    *last = next;
    return true;
}

// Max pooling and ReLU commute, with the same gradient; ReLU after the pool has fewer elements to
// compute.
static bool relu_goes_behind_a_pool(const Lowering *l, Tensor x)
{
    Tensor relu = sole_consumer(l, x, NODE_RELU);
    return relu && sole_consumer(l, relu, NODE_MAX_POOL);
}

// Batch norm includes a ReLU, and then either a dropout or a residual sum: its backward pass reads
// the dropped elements in its own output, which a sum would hide.
static void fuse(Lowering *l, Tensor first)
{
    Tensor last = first;
    l->owner[first->index] = first;
    if (first->kind == NODE_BATCH_NORM) {
        bool dropped = take(l, &last, NODE_RELU) && take(l, &last, NODE_DROPOUT);
        if (!dropped)
            take(l, &last, NODE_ADD);
    } else if (first->kind == NODE_CONV2D || first->kind == NODE_DENSE) {
        if (!relu_goes_behind_a_pool(l, first))
            take(l, &last, NODE_RELU);
    } else if (first->kind == NODE_RELU) {
        take(l, &last, NODE_MAX_POOL);
    }
}

// The operation that begins with each kind of layer.
static const OpKind op_kinds[NODE_KINDS] = {
    [NODE_CONV2D] = OP_CONV2D,
    [NODE_BATCH_NORM] = OP_BATCH_NORM,
    [NODE_RELU] = OP_RELU,
    [NODE_DROPOUT] = OP_DROPOUT,
    [NODE_ADD] = OP_ADD,
    [NODE_MAX_POOL] = OP_MAX_POOL,
    [NODE_GLOBAL_AVERAGE_POOL] = OP_GLOBAL_AVERAGE_POOL,
    [NODE_FLATTEN] = OP_FLATTEN,
    [NODE_DENSE] = OP_DENSE,
    [NODE_EMBEDDING] = OP_EMBEDDING, // the only one that reads tokens
    [NODE_CUSTOM] = OP_CUSTOM,
    [NODE_SOFTMAX] = OP_SOFTMAX,
};

// Swaps a ReLU with the pool after it.
static void become_pool(Op *op, Tensor pool)
{
    op->kind = OP_MAX_POOL;
    op->out = pool->shape;
    op->size = pool->size;
    op->relu = true;
}

// Adds to the operation what the layers fused behind the first do; returns the last of them.
static Tensor add_fused(const Lowering *l, Op *op, Tensor first)
{
    Tensor last = first;
    for (Tensor node; (node = l->next[last->index]); last = node) {
        if (node->kind == NODE_RELU)
            op->relu = true;
        else if (node->kind == NODE_DROPOUT)
            op->dropout_rate = node->rate;
        else if (node->kind == NODE_MAX_POOL)
            become_pool(op, node);
        else if (node->kind == NODE_ADD)
            op->residual = l->value[node->inputs[node->inputs[0] == last]->index];
    }
    return last;
}

static bool is_input(Tensor node)
{
    return node->kind == NODE_INPUT || node->kind == NODE_INPUT_TOKENS ||
           node->kind == NODE_INPUT_VECTOR;
}

static void emit(Lowering *l, Tensor first)
{
    Program *p = &l->program;
    Tensor x = first->inputs[0];
    Op *op = &p->ops[p->op_count++];
    *op = (Op){.kind = op_kinds[first->kind],
               .input = l->value[x->index],
               .residual = first->kind == NODE_ADD ? l->value[first->inputs[1]->index] : -1,
               .output = p->value_count++,
               .in = x->shape,
               .out = first->shape,
               .size = first->size,
               .dropout_rate = first->rate,
               .dropout_stream = (uint64_t)first->index,
               .custom_forward = first->forward,
               .custom_backward = first->backward,
               .input_is_image = is_input(x) && !l->flat[x->index],
               .flat = l->flat[x->index]};
    for (int i = 0; i < MAX_VARIABLES; i++)
        op->variables[i] = first->variables[i];
    if (first->kind == NODE_CONV2D)
        op->bias_in_batch_norm = first->variables[BIAS]->no_gradient;
    else if (first->kind == NODE_BATCH_NORM && x->kind == NODE_CONV2D &&
             x->variables[BIAS]->no_gradient)
        op->input_bias = x->variables[BIAS];
    Tensor last = add_fused(l, op, first);
    l->value[last->index] = op->output;
}

static bool is_vector(const Lowering *l, Tensor node)
{
    Op op = {.kind = op_kinds[node->kind], .flat = l->flat[node->inputs[0]->index]};
    return op_writes_vector(&op);
}

static void check_vector(const Lowering *l, Tensor x, const char *what)
{
    if (!l->flat[x->index])
        die("compile: %s a vector: put flatten() or global_average_pool() before it", what);
}

// Reports unsupported layers in the program's terms.
static void check_layer(const Lowering *l, Tensor node)
{
    Tensor a = node->inputs[0], b = node->inputs[1];
    bool flat = l->flat[a->index];
    if ((a->kind == NODE_INPUT_TOKENS && node->kind != NODE_EMBEDDING) ||
        (b && b->kind == NODE_INPUT_TOKENS))
        die("compile: only embedding can read tokens");
    if ((a->kind == NODE_INPUT && node->kind != NODE_CONV2D && node->kind != NODE_FLATTEN) ||
        (b && b->kind == NODE_INPUT))
        die("compile: only conv2d and flatten can read the input itself");
    if (node->kind == NODE_DENSE && !flat)
        die("compile: dense reads a vector: put flatten() before it");
    if (node->kind == NODE_SOFTMAX || node->kind == NODE_CUSTOM)
        check_vector(l, a, node->kind == NODE_SOFTMAX ? "softmax reads" : "custom_layer reads");
    if (flat && (node->kind == NODE_CONV2D || node->kind == NODE_MAX_POOL ||
                 node->kind == NODE_GLOBAL_AVERAGE_POOL))
        die("compile: conv2d and pooling read images, not vectors");
    if (b && flat != l->flat[b->index])
        die("compile: add of an image and a vector");
}

Program lower(const Graph *graph, Tensor output, bool from_logits)
{
    if (!from_logits && output->kind != NODE_SOFTMAX)
        die("compile: categorical cross-entropy needs a model that ends in softmax, or has to be "
            "told that it gets logits");
    Tensor last = from_logits ? output : output->inputs[0];
    size_t count = (size_t)graph->node_count;
    Lowering l = {.graph = graph,
                  .value = allocate(count, sizeof *l.value),
                  .flat = allocate(count, sizeof *l.flat),
                  .owner = allocate(count, sizeof *l.owner),
                  .next = allocate(count, sizeof *l.next),
                  .program = {.ops = allocate(count, sizeof(Op)), .value_count = 1}};
    l.flat[0] = l.program.reads_vector = graph->nodes[0]->kind == NODE_INPUT_VECTOR;
    if (l.flat[0] && graph->nodes[0]->consumers > 1)
        die("compile: an input_vector is read by one layer, not by %d", graph->nodes[0]->consumers);
    for (int i = 1; i < output->index + from_logits; i++) {
        Tensor node = graph->nodes[i];
        if (is_input(node))
            die("compile: a model has one input");
        check_layer(&l, node);
        l.flat[i] = is_vector(&l, node);
        if (node->kind == NODE_CONV2D && sole_consumer(&l, node, NODE_BATCH_NORM))
            node->variables[BIAS]->no_gradient = true;
        if (!l.owner[i])
            fuse(&l, node);
        if (node != output && (node->consumers == 0 || node->consumers > 2))
            die("compile: the output of a layer is read by %d layers; it must be one or two",
                node->consumers);
        if (!l.next[i]) // the last node of its operation: all that it reads is there now
            emit(&l, l.owner[i]);
    }
    check_vector(&l, last, from_logits ? "the loss reads" : "softmax reads");
    if (output->index != graph->node_count - 1)
        die("compile: there are layers after the model's output");
    l.program.logits = l.value[last->index];
    free(l.value);
    free(l.flat);
    free(l.owner);
    free(l.next);
    return l.program;
}
