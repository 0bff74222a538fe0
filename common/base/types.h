// The types that all layers of the library speak of: shapes, variables, metrics, and what an update
// of the weights is.

#ifndef HVDLAB_TYPES_H
#define HVDLAB_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A call of such a function without using its result does nothing: the compiler warns.
#define USE_RESULT __attribute__((warn_unused_result))

// Defined in library-all.o alone (Makefile): in a program that is linked without it the address is NULL.
#define IN_LIBRARY_ALL __attribute__((weak))

typedef struct {
    int height, width, channels; // a flat vector has height = width = 1
} Shape;

// INIT_UNIFORM: between -0.05 and 0.05.
typedef enum { INIT_ZEROS, INIT_ONES, INIT_GLOROT_UNIFORM, INIT_UNIFORM } Initializer;

// A tensor that outlives a step: a weight or a moving statistic.
typedef struct {
    char name[48]; // as Keras names it: conv2d_1/kernel
    int ndims;
    int dims[4];      // in Keras's order
    bool trainable;   // false: a moving statistic
    bool penalized;   // the L2 penalty applies: a kernel
    bool no_gradient; // the bias of a convolution that feeds a batch norm: its gradient is zero
    Initializer initializer;
    size_t length; // floats it takes in its arena, padding included; set by the backend
    size_t offset; // of its first float in its arena
} Variable;

// Elements of a variable.
static inline size_t variable_size(const Variable *variable)
{
    size_t size = 1;
    for (int i = 0; i < variable->ndims; i++)
        size *= (size_t)variable->dims[i];
    return size;
}

// Sums over the batches since they were last set to zero.
typedef struct {
    double loss;    // of cross-entropy
    double correct; // of images whose most likely class is the label
    double images;
    double batches;
    double finite; // batches before the first one whose loss was infinite or not a number
} Metrics;

typedef enum { SGD, ADAM, ADADELTA, ADAGRAD, RMSPROP } UpdateKind;

// One update of a stretch of the weights' arena. g is the gradient + 2 l2 w.
typedef struct {
    UpdateKind kind;
    float learning_rate;
    float momentum, beta_1, beta_2, rho, epsilon;
    bool nesterov;
    int64_t step; // 1 for the first update
    float *weights;
    const float *gradients;
    float *slots[2]; // as many as the optimizer has
} Update;

// A stretch of an arena with one L2 coefficient.
typedef struct {
    size_t offset, length;
    float l2;
} Segment;

// The gradient of an embedding's table, as the rows that a batch named.
typedef struct {
    int count;     // of rows
    int dimension; // how many floats a row has
    int *rows;     // their numbers in the table, owned
    float *values; // count x dimension, owned
} SparseGradient;

#endif
