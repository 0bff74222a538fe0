// What every operation of backend.h computes, in plain double precision, for tests to compare a
// backend with. Only the forward pass: gradients are checked by finite differences of it. So that
// they are cheap, it can be evaluated for a box of outputs alone, and it knows which outputs one
// element of an input or of a variable can change.
//
// All values are in Keras's order: activations NHWC, kernels (height, width, in, out).

#ifndef HVDLAB_TESTS_REFERENCE_H
#define HVDLAB_TESTS_REFERENCE_H

#include "backend/backend.h"

// What an output depends on: the operation's variables by their indices, and these.
enum { INPUT = MAX_VARIABLES, RESIDUAL, SOURCES };

typedef struct {
    int begin, end; // one past the last
} Range;

typedef struct {
    Range n, y, x, c;
} Box;

typedef struct {
    const Op *op;
    int batch;
    bool training;
    double *sources[SOURCES]; // NULL where the operation has none
    double *kept;             // of dropout, for each output: 1 where it is kept, 0 where dropped
    double *output;           // what reference_forward writes
    double *distance;         // and how far each output is from a kink, for ReLU and max pooling
} Reference;

// Elements of an activation; and of a source, 0 where the operation has none.
size_t value_size(Shape shape, int batch);
size_t source_size(const Op *op, int batch, int source);

// All outputs; and those that may change with one element of a source.
Box all_outputs(const Reference *reference);
Box reach(const Reference *reference, int source, size_t element);

// Multiplications, roughly, that reference_forward needs for the box.
double reference_cost(const Reference *reference, Box box);

void reference_forward(const Reference *reference, Box box);

// Mean and biased variance of one channel of the input, as batch norm needs them.
void reference_moments(const Reference *reference, int channel, double *mean, double *variance);

// sum(weights * output) over the box, of outputs that it computes again.
double reference_loss(const Reference *reference, Box box, const double *weights);

#endif
