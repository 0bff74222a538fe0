// A model as a chain of blocks, each of which can drop its activations and compute them again (lab
// 10; Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). The program computes
// each batch block by block.

#ifndef HVDLAB_CHAIN_H
#define HVDLAB_CHAIN_H

#include "nn/model.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Chain Chain;

// A chain of `blocks` blocks: create(b) makes the model of block b, which is not compiled yet.
// Block 0 reads images; each other one begins with input_vector() and reads the output of the block
// before it. The last one ends in softmax(). All are trained by Adam. To be freed with chain_free.
Chain *chain(int blocks, Model *(*create)(int block), float learning_rate);
void chain_free(Chain *chain);

int chain_blocks(const Chain *chain);

// Begins with a batch, which must stay until the next one. No block has activations yet.
void chain_begin(Chain *chain, const Batch *batch);

// Computes a block from the activations of the block before it, block 0 from the batch. The block
// then has its activations: its output, and everything that its backward pass needs.
void block_forward(Chain *chain, int block);

// Drops a block's activations and frees their memory.
void block_drop(Chain *chain, int block);

// Whether it has activations.
bool block_has_activations(const Chain *chain, int block);

// Computes the gradients of a block's weights, and of its input, from its activations and from the
// gradient that the block after it has computed, the last block from the loss. Once for each block
// and batch, the last block first.
void block_backward(Chain *chain, int block);

// Updates the weights of all blocks, when all have their gradients.
void chain_update(Chain *chain);

// In these functions, a block that does not exist and a call whose data are missing make the
// program exit with an error message.

// Bytes of activations: the maximum so far.
size_t chain_max_activations(const Chain *chain);

// Sums over all batches since the last reset.
Metrics chain_metrics(const Chain *chain);
void chain_reset_metrics(Chain *chain);

#pragma GCC visibility pop

#endif
