// Inside the CUDA backend: its own kernels (norm.cu, kernels.cu), for the operations between
// cuDNN's convolutions and cuBLAS's matrix products. Each function queues its work on cuda_stream()
// and returns. Pointers are to device memory.
//
// Activations lie as rows of channels, one row per pixel of each image (NHWC), elements being
// floats or bfloat16; all else is float. Accesses are of 16 bytes where the number of channels
// allows it, and memory begins at multiples of that.

#ifndef HVDLAB_KERNELS_H
#define HVDLAB_KERNELS_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { ELEMENT_FLOAT, ELEMENT_BF16 } ElementType;

typedef struct {
    ElementType element;
    int rows, channels;
} ActivationShape;

// Floats of working memory (`partial` below) that sums over rows need.
size_t partial_sums_length(ActivationShape shape);

// ---- Batch norm (norm.cu).

typedef struct {
    float *mean, *inv_std; // of each channel: what this step normalizes with
    float *moving_mean, *moving_variance;
    const float
        *input_bias; // what x lacks of batch norm's input, as the moving mean sees it; or NULL
} NormStatistics;

// Mean and 1 / sqrt(variance + epsilon) of x; moves the moving statistics towards them.
void launch_batch_statistics(ActivationShape shape, const void *x, float *partial,
                             const NormStatistics *statistics);

// The same from the moving statistics.
void launch_moving_statistics(int channels, const NormStatistics *statistics);

// The common arguments of both passes of batch norm, with its fused layers.
typedef struct {
    ActivationShape shape;
    bool relu;
    float dropout_rate;          // 0: no dropout
    const uint64_t *dropout_key; // in device memory, as everything
    const void *x;
    const float *mean, *inv_std, *gamma, *beta; // of each channel
} Norm;

// output = residual + dropout(relu((x - mean) gamma inv_std + beta)); residual may be NULL.
void launch_norm_forward(const Norm *norm, const void *residual, void *output);

typedef struct {
    void *output_gradient;        // gets the sum of both parts
    const void *output_gradient2; // or NULL
    void *input_gradient;         // may be output_gradient itself
    float *gamma_gradient, *beta_gradient;
    float *partial;
} NormGradients;

void launch_norm_backward(const Norm *norm, const NormGradients *gradients);

// ---- Biases (norm.cu, since they are sums over rows, too).

// y += bias, and ReLU if asked.
void launch_bias_forward(ActivationShape shape, void *y, const float *bias, bool relu);

// Where `output` is not NULL, gradient = 0 where output is 0, for ReLU. Then the bias's gradient is
// the sum of the gradient's rows, unless it is NULL.
void launch_bias_backward(ActivationShape shape, void *gradient, const void *output, float *partial,
                          float *bias_gradient);

// ---- Elementwise (kernels.cu).

void launch_relu(ElementType element, void *out, const void *in, size_t count);
// gradient = 0 where output is 0.
void launch_relu_backward(ElementType element, void *gradient, const void *output, size_t count);
// out = in / (1 - rate), or 0; the same key gives the same choice again.
void launch_dropout(ElementType element, void *out, const void *in, size_t count, float rate,
                    const uint64_t *key);
void launch_add(ElementType element, void *sum, const void *a, const void *b, size_t count);
// A copy that changes the type of the elements, or does not.
void launch_copy(ElementType to_element, void *to, ElementType from_element, const void *from,
                 size_t count);
// Many such copies by one launch. `copies` is the host's memory.
typedef struct {
    void *to;
    const void *from;
    size_t length; // elements
} ArrayCopy;
void launch_copies(ElementType to_element, ElementType from_element, const ArrayCopy *copies,
                   int count);
// to = factor from, as floats; to may be from.
void launch_scale(float *to, ElementType from_element, const void *from, size_t count,
                  float factor);
// A copy, row by row, into rows of another length: cut, or filled up with zeros.
void launch_copy_rows(ActivationShape to_shape, void *to, ActivationShape from_shape,
                      const void *from);

// ---- Pooling (kernels.cu).

typedef struct {
    ElementType element;
    int batch;
    Shape in, out;
    int size; // of the windows, which do not overlap
    bool relu;
} Pool;

void launch_max_pool(const Pool *pool, const void *x, void *y);
// The first of the largest in each window gets the gradient, if the ReLU lets it through. All of
// input_gradient is written.
void launch_max_pool_backward(const Pool *pool, const void *x, const void *output_gradient,
                              void *input_gradient);
// The mean over the pixels of each image: (batch, pixels, channels) to (batch, channels) floats.
void launch_average(ElementType element, int batch, int pixels, int channels, const void *x,
                    float *mean);
void launch_average_backward(ElementType element, int batch, int pixels, int channels,
                             const float *mean_gradient, void *gradient);

// ---- Embedding (kernels.cu).

typedef struct {
    ElementType element; // of the vectors; the table is of floats
    int tokens;          // of the batch, each a float; below 0: none
    int rows, channels;
} EmbeddingTable;

// y (tokens, channels) = for each token the table's row with that number; zeros for none.
void launch_embed(EmbeddingTable shape, const float *tokens, const float *table, void *y);
// Each row of the table's gradient is the sum of its tokens' gradients, in the order of the tokens.
// All of it is written.
void launch_embed_backward(EmbeddingTable shape, const float *tokens, const void *y_gradient,
                           float *table_gradient);

// The GPUs that the kernels were compiled for, as a number such as 90; less than the current GPU's
// where its driver compiles an older form (PTX) of them.
int kernels_made_for(void);

// ---- Loss (loss.cu) and optimizers (update.cu). As backend.h has them.

void launch_softmax(const float *logits, float *probabilities, int batch, int classes);
// Makes the probabilities' gradient the logits', where it is.
void launch_softmax_backward(const float *probabilities, float *gradient, int batch, int classes);
void launch_cross_entropy(const float *logits, const int *labels, float *gradient, int batch,
                          int classes, Metrics *metrics);
// `segments` is the host's memory.
void launch_update(const Update *update, const Segment *segments, int count);

#ifdef __cplusplus
}
#endif

#endif
