// The layers that a model is built from. Each call adds one layer to a graph and returns its
// output, so that a model reads as a list of expressions:
//
//     Tensor x = input(28, 28, 1);
//     x = relu(conv2d(x, 32, 3));
//     x = dense(flatten(x), 10);
//
// Shapes are (height, width, channels), the batch left out; a flat tensor has height = width = 1.
// Initial values and constants are Keras's: kernels Glorot-uniform, biases zero; batch norm with
// momentum 0.99, epsilon 0.001; embeddings uniform between -0.05 and 0.05. A layer that does not
// fit its input makes the program exit with an error message that gives both shapes; so does NULL
// in place of a tensor, with one of its own. At most two layers may read the same tensor.

#ifndef HVDLAB_LAYERS_H
#define HVDLAB_LAYERS_H

#include <stddef.h>
#include "base/types.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Node *Tensor;

// The images that a model reads. The graph that begins here is freed with its model.
Tensor input(int height, int width, int channels);

// The tokens that a model reads, `length` of them for each example, instead of an image: numbers of
// words, as a rule. A batch's `images` are then count x length whole numbers (a float holds those
// up to 2^24); NO_TOKEN fills an example up that has fewer. Only embedding() can read them. Shape
// (1, length, 1).
Tensor input_tokens(int length);
enum { NO_TOKEN = -1 };

// A vector of `length` numbers for each example, instead of an image: what a part of a model that
// is cut passes to the next one (train/stages.h). One layer reads it. Shape (1, 1,
// length).
Tensor input_vector(int length);

// A vector for each token, the row with the token's number of a table of `vocabulary` rows, which
// is learned: (1, length, 1) -> (1, length, dimension). NO_TOKEN gives zeros. A token that is not
// one of 0 ... vocabulary - 1 makes the program exit with an error message when a batch with it
// comes. global_average_pool() behind it makes the mean of an example's vectors, divided by
// `length`: a bag of words.
USE_RESULT Tensor embedding(Tensor tokens, int vocabulary, int dimension);

// Convolution with a square kernel of odd size, at most 255, stride 1, zero padding that keeps
// height and width ('same'), and a bias: (h, w, c) -> (h, w, filters).
USE_RESULT Tensor conv2d(Tensor x, int filters, int kernel_size);

// Batch normalization over batch, height and width: gamma (x - mean) / sqrt(variance + 0.001) +
// beta (Ioffe and Szegedy, 2015). Training uses the batch's own mean and variance, and moves the
// moving ones by 1 % towards them (the variance in its unbiased form); evaluation uses the moving
// ones.
USE_RESULT Tensor batch_norm(Tensor x);

// Rectified linear unit: max(x, 0), element by element.
USE_RESULT Tensor relu(Tensor x);

// Training sets each element to 0 with probability `rate` and divides the others by 1 - rate
// (Srivastava et al., 2014); evaluation changes nothing.
USE_RESULT Tensor dropout(Tensor x, float rate);

// Elementwise sum of two tensors of one shape.
USE_RESULT Tensor add(Tensor a, Tensor b);

// Largest of each size x size window, stride `size`, without padding: (h, w, c) -> (h / size,
// w / size, c), rounded down. A window has 255 pixels at most.
USE_RESULT Tensor max_pool(Tensor x, int size);

// Mean over height and width: (h, w, c) -> (1, 1, c).
USE_RESULT Tensor global_average_pool(Tensor x);

// (h, w, c) -> (1, 1, h w c), in this order.
USE_RESULT Tensor flatten(Tensor x);

// Fully connected layer with bias: (1, 1, n) -> (1, 1, units).
USE_RESULT Tensor dense(Tensor x, int units);

// The same without the bias, as Keras's use_bias=False.
USE_RESULT Tensor dense_without_bias(Tensor x, int units);

// A layer of the program's own on a vector, of the same shape: `forward` replaces the values of the
// whole batch, `backward` the gradients of the output by those of the input; `count` is the batch's
// size times the vector's length. In host memory, on the thread that computes the model. From a GPU
// the values are copied there, and back.
typedef void (*LayerFunction)(float *values, size_t count);
USE_RESULT Tensor custom_layer(Tensor x, LayerFunction forward, LayerFunction backward);

// Turns a vector into probabilities, exp(x) / sum(exp(x)): (1, 1, n) -> (1, 1, n). Usually a
// model's last layer, but where the loss reads logits (model.h).
USE_RESULT Tensor softmax(Tensor x);

#pragma GCC visibility pop

#endif
