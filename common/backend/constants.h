// Constants that both backends and the layers above share. For C and CUDA.

#ifndef HVDLAB_CONSTANTS_H
#define HVDLAB_CONSTANTS_H

// Batch norm, as Keras has it: how much of a moving statistic each batch leaves, and what is added
// to a variance.
#define NORM_MOMENTUM 0.99
#define NORM_EPSILON  1e-3

// The initial value of Adagrad's accumulators, as in TensorFlow; the slot holds the difference to
// it.
#define ADAGRAD_INITIAL_ACCUMULATOR 0.1f

// Pixels of a max pool's window, at most: which of them was the largest must fit into a byte, with
// one number to spare.
#define MAX_POOL 255

// Variables begin at multiples of so many floats in their arenas: 64 bytes.
#define ARENA_ALIGNMENT ((size_t)16)

#endif
