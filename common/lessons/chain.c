// The chain of blocks (chain.h). Each block is a model of its own, which computes a batch as its
// part 0; the activations are the memory of that part.

#include "lessons/chain.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"
#include "nn/parts.h"
#include "observe/trace.h"

typedef struct {
    Model *model;
    bool there;        // it has activations
    bool has_gradient; // of the weights, from this batch
} Block;

struct Chain {
    Block *blocks;
    int count;
    const Batch *batch; // NULL: none yet
    float *values;      // the gradient that the next block of the backward pass reads
    int next_backward;  // the block whose turn it is; -1: all are done
    int held;           // blocks with activations
    size_t max_bytes;
};

// Exits where there is no such block; `batch`: or no batch.
static Block *block_of(const Chain *chain, int block, bool batch, const char *caller)
{
    if (!chain)
        die("%s: there is no chain (NULL)", caller);
    if (block < 0 || block >= chain->count)
        die("%s: there is no block %d; the chain has %d, from 0", caller, block, chain->count);
    if (batch && !chain->batch)
        die("%s: there is no batch; call chain_begin() before", caller);
    return &chain->blocks[block];
}

static void trace_block(const Chain *chain, const char *event, int block)
{
    trace(event, NUMBER("block", block), NUMBER("held", chain->held));
}

static Model *compile_block(int block, int count, Model *model, float learning_rate, int *variables)
{
    bool last = block == count - 1;
    if (!model)
        die("chain: block %d is no model (NULL)", block);
    if (block > 0 && !model_reads_vector(model))
        die("chain: block %d must begin with input_vector()", block);
    model_follow(model, *variables);
    *variables += model_variable_count(model);
    return compile(model, last ? CATEGORICAL_CROSSENTROPY : CATEGORICAL_CROSSENTROPY_FROM_LOGITS,
                   adam(learning_rate));
}

Chain *chain(int blocks, Model *(*create)(int block), float learning_rate)
{
    if (blocks < 1 || !create)
        die("chain: it needs at least one block, and a function that makes it");
    Chain *chain = allocate(1, sizeof *chain);
    lives_until_exit(chain);
    *chain = (Chain){.blocks = allocate((size_t)blocks, sizeof *chain->blocks), .count = blocks};
    int variables = 0;
    for (int b = 0; b < blocks; b++) {
        Model *model = compile_block(b, blocks, create(b), learning_rate, &variables);
        chain->blocks[b].model = model;
        if (b > 0 && model_input_size(model) != model_output_size(chain->blocks[b - 1].model))
            die("chain: block %d gives %d numbers, and block %d reads %d", b - 1,
                model_output_size(chain->blocks[b - 1].model), b, model_input_size(model));
    }
    return chain;
}

void chain_free(Chain *chain)
{
    if (!chain)
        return;
    for (int b = 0; b < chain->count; b++)
        model_free(chain->blocks[b].model);
    free(chain->blocks);
    free(chain->values);
    free(chain);
}

int chain_blocks(const Chain *chain)
{
    block_of(chain, 0, false, __func__);
    return chain->count;
}

static Part part_of(const Chain *chain)
{
    return (Part){0, chain->batch->count};
}

// ---- A batch.

void chain_begin(Chain *chain, const Batch *batch)
{
    block_of(chain, 0, false, __func__);
    if (!batch || batch->count < 1)
        die("%s: there are no images in the batch", __func__);
    for (int b = 0; b < chain->count; b++) {
        if (chain->batch && chain->blocks[b].there)
            block_drop(chain, b);
        chain->blocks[b].has_gradient = false;
    }
    chain->batch = batch;
    chain->next_backward = chain->count - 1;
    trace("chain_begin", NUMBER("blocks", chain->count), NUMBER("images", batch->count));
}

static void count_memory(Chain *chain)
{
    size_t bytes = 0;
    for (int b = 0; b < chain->count; b++)
        bytes += model_memory(chain->blocks[b].model).activations;
    chain->max_bytes = bytes > chain->max_bytes ? bytes : chain->max_bytes;
}

// Room for a vector for each image of the batch.
static float *values_of(Chain *chain, int size)
{
    size_t count = (size_t)chain->batch->count * (size_t)size;
    chain->values = enlarge(chain->values, count, sizeof *chain->values);
    return chain->values;
}

void block_forward(Chain *chain, int block)
{
    Block *b = block_of(chain, block, true, __func__);
    const Batch *batch = chain->batch;
    const float *input = batch->images;
    if (chain->next_backward < block)
        die("%s: block %d has its gradients for this batch already", __func__, block);
    if (block > 0) {
        Block *before = &chain->blocks[block - 1];
        if (!before->there)
            die("%s: block %d reads the activations of block %d, which are not there", __func__,
                block, block - 1);
        // Where the gradient waits for its block: input and gradient have memory of their own.
        float *output = allocate((size_t)batch->count * (size_t)model_output_size(before->model),
                                 sizeof *output);
        model_read_output(before->model, part_of(chain), output);
        input = output;
    }
    trace_block(chain, "block_forward", block);
    model_forward_part(b->model, part_of(chain), input,
                       block == chain->count - 1 ? batch->labels : NULL, true);
    if (block > 0)
        free((float *)(uintptr_t)input);
    chain->held += !b->there;
    b->there = true;
    count_memory(chain);
    trace_block(chain, "block_forward_end", block);
}

void block_drop(Chain *chain, int block)
{
    Block *b = block_of(chain, block, true, __func__);
    if (!b->there)
        die("%s: block %d has no activations", __func__, block);
    model_free_part(b->model, part_of(chain));
    b->there = false;
    chain->held--;
    trace_block(chain, "block_drop", block);
}

bool block_has_activations(const Chain *chain, int block)
{
    return block_of(chain, block, false, __func__)->there;
}

void block_backward(Chain *chain, int block)
{
    Block *b = block_of(chain, block, true, __func__);
    if (b->has_gradient)
        die("%s: block %d has its gradients for this batch already", __func__, block);
    if (block != chain->next_backward)
        die("%s: block %d needs the gradient of block %d, which has not been computed yet",
            __func__, block, block + 1);
    if (!b->there)
        die("%s: the activations of block %d are not there", __func__, block);
    bool last = block == chain->count - 1;
    trace_block(chain, "block_backward", block);
    model_backward_part(b->model, part_of(chain), last ? NULL : chain->values);
    if (block > 0)
        model_read_input_gradient(b->model, part_of(chain),
                                  values_of(chain, model_input_size(b->model)));
    b->has_gradient = true;
    chain->next_backward--;
}

void chain_update(Chain *chain)
{
    block_of(chain, 0, true, __func__);
    if (chain->next_backward >= 0)
        die("%s: block %d has no gradients yet", __func__, chain->next_backward);
    for (int b = 0; b < chain->count; b++) {
        if (!chain->blocks[b].has_gradient)
            die("%s: the weights are updated already; call chain_begin() with the next batch",
                __func__);
        model_gradients_are_new(chain->blocks[b].model);
        apply_gradients(chain->blocks[b].model);
        chain->blocks[b].has_gradient = false;
    }
    trace_block(chain, "chain_update", chain->count);
}

size_t chain_max_activations(const Chain *chain)
{
    block_of(chain, 0, false, __func__);
    return chain->max_bytes;
}

static Model *last_model(const Chain *chain, const char *caller)
{
    block_of(chain, 0, false, caller);
    return chain->blocks[chain->count - 1].model;
}

Metrics chain_metrics(const Chain *chain)
{
    return model_metrics(last_model(chain, __func__));
}

void chain_reset_metrics(Chain *chain)
{
    model_reset_metrics(last_model(chain, __func__));
}
