// Training in which each worker keeps a part of the optimizer's state, of the gradients, and of the
// weights (lab 10; Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models", 2020; Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data
// Parallel", 2023). The optimizer passes the layers to the program one by one, as pieces, and the
// program decides which part of a piece this worker keeps.

#ifndef HVDLAB_SHARDS_H
#define HVDLAB_SHARDS_H

#include "nn/model.h"
#include "run/args.h"

#pragma GCC visibility push(default) // a step may call what follows

// The weights of a layer: its kernel, then its bias. A layer is the same piece in all calls. Traces
// number pieces from 0, the last layer, as their gradients become complete.
typedef struct Piece Piece;

// How many weights and gradients a piece has; all its weights, in the host's memory; and the gradients
// from this worker's batch, whose memory is used for the next piece when `ready` returns.
int piece_count(const Piece *piece);
float *piece_weights(const Piece *piece);
const float *piece_gradients(const Piece *piece);

// Memory for the `count` gradients of a piece that this worker keeps until the update. It is the
// same memory in every step, as long as the count stays the same.
float *kept_gradients(Piece *piece, int count);

// Updates the weights begin ... begin + count - 1 of a piece, by the optimizer, from the gradients
// that were kept, which must be `count` as well. The optimizer's state for these weights is
// allocated at the first call; a later call with another part makes the program exit with an error
// message.
void update_weights(Piece *piece, int begin, int count);

// An optimizer that keeps no gradients itself: `ready` gets each piece when its gradients are
// complete, during the backward pass; `update` gets each piece before the next forward pass, in the
// same order. To be passed to compile(), and to no other optimizer. It owns `optimizer`. In the
// host's memory only, so without --device the CPU computes, even where there is a GPU. In a
// checkpoint the state is in the ranks' parts (hvd/checkpoint.h).
USE_RESULT Optimizer *optimizer_in_shards(Optimizer *optimizer, void (*ready)(Piece *piece),
                                          void (*update)(Piece *piece));

// ---- Weights in shards, too.

// With an optimizer of optimizer_in_shards(), which it returns: a piece has all its weights in
// memory only where the program wants it. `divide` gets each piece once, before the first pass, when
// all its weights are there. `before` gets a piece before its forward and before its backward pass,
// in training and in tests, and must leave it with all its weights; `after` gets it after each.
USE_RESULT Optimizer *weights_in_shards(Optimizer *optimizer, void (*divide)(Piece *piece),
                                        void (*before)(Piece *piece), void (*after)(Piece *piece));

// For `before` and `after`: the piece of the next layer in the pass over the model that goes on; NULL:
// this is the last one, of the forward or of the backward pass.
Piece *next_piece(const Piece *piece);

// Copies the weights begin ... begin + count - 1 of a piece, which must be there, to memory that
// this worker keeps: kept_weights(). update_weights() updates these, and needs the same `begin` and
// `count`.
void keep_weights(Piece *piece, int begin, int count);
const float *kept_weights(const Piece *piece);

// Memory for all weights of a piece; zeros, until they are written. Where they are there already,
// it is their memory. piece_weights() is the same, but makes the program exit where they are not.
float *allocate_weights(Piece *piece);

// Gives this memory back to the system.
void free_weights(Piece *piece);

#pragma GCC visibility pop

#endif
