// What implements shards.h: its pieces, and what it keeps of them.

#ifndef HVDLAB_SHARDS_INSIDE_H
#define HVDLAB_SHARDS_INSIDE_H

#include "lessons/shards.h"

typedef struct Shards Shards;

struct Piece {
    Shards *shards;
    int number;            // of the piece
    size_t offset, length; // in the arena
    float *kept;           // gradients
    int kept_count;        // of them
    int begin, count;      // of the weights that have state; count -1: none has yet
    int part;              // of the optimizer's state
    float *own;            // weights that are kept; NULL: none
    int own_begin, own_count;
    bool whole; // all weights are there
};

struct Shards {
    Optimizer optimizer;
    const Parameters *parameters;
    Piece *pieces; // in the order of the backward pass
    int piece_count;
    Piece *ready_piece; // whose gradients are there now
    void (*ready)(Piece *piece);
    void (*update)(Piece *piece);
    void (*divide)(Piece *piece); // NULL: weights are not in shards
    void (*before)(Piece *piece);
    void (*after)(Piece *piece);
    size_t own_length, whole_length; // floats of weights: kept; of whole pieces
    int whole;                       // pieces
    int towards_next;                // from a piece's number: -1 in the forward pass, else 1
};

// The first call makes the pieces of the model.
void shards_make_pieces(Shards *shards, const Parameters *parameters);

// Gives these weights of a piece their state: zeros, where it has none yet; before an update what a
// checkpoint has restored.
void shards_need_state(Piece *piece, int begin, int count);

// Equal numbers at equal places of an array have equal hashes, and the sums of those of slices add
// up to that of the whole array.
uint64_t shards_hash(float value, int place);

#endif
