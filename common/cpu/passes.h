// Inside the CPU backend: the passes over memory between oneDNN's convolutions. passes_set.c is
// compiled once per instruction set, and the backend chooses when the program starts, so that one
// binary is fast on a new machine and runs on an old one.
//
// Activations lie in memory as (batch, blocks, pixels, lanes): `lanes` channels side by side for
// each pixel, as oneDNN's nChw16c and nChw8c have them. Channels beyond the last real one are zero,
// and stay so because their gamma and beta are zero. A flat tensor has one pixel and as many lanes
// as channels; NHWC is one block of them.

#ifndef HVDLAB_PASSES_H
#define HVDLAB_PASSES_H

#include "backend/constants.h"
#include "base/types.h"

typedef struct {
    int batch, blocks, pixels, lanes;
    bool bfloat16; // else floats
} Layout;

// Batch norm over one layer's activations. Vectors have blocks x lanes elements.
typedef struct {
    Layout layout;
    bool relu;
    float dropout_rate;
    uint64_t dropout_key;
    const void *x;        // what is normalized
    const float *mean;    // per channel
    const float *inv_std; // 1 / sqrt(variance + epsilon), per channel
    const float *gamma, *beta;
    const void *residual; // added after ReLU, or NULL
    void *output;
} NormForward;

typedef struct {
    Layout layout;
    bool relu;
    float dropout_rate;
    const void *x;
    const float *mean, *inv_std, *gamma, *beta;
    const void *output;           // read only where dropout_rate > 0: zero where dropped
    void *output_gradient;        // overwritten with what the second pass needs
    const void *output_gradient2; // a second part of it, or NULL
    void *input_gradient;         // may be output_gradient itself
    float *gamma_gradient, *beta_gradient;
    float *partial; // norm_partial_size floats
} NormBackward;

// A 3x3 convolution of images (height, width, channels).
enum { FIRST_LAYER_TAPS = 9 };
typedef struct {
    Layout layout; // of its output, whose lanes fill vectors
    int height, width, channels, filters;
    int threads; // at most so many
} FirstLayer;

// Max pooling of (chunks, height, width, lanes) to (chunks, height / size, width / size, lanes).
typedef struct {
    int chunks; // images times blocks of channels
    int height, width, lanes;
    int size;  // of the windows: MAX_POOL pixels at most
    bool relu; // of what comes out
} MaxPool;

typedef struct {
    // Mean and biased variance of each channel. `partial` holds norm_partial_size floats.
    void (*norm_statistics)(Layout layout, const void *x, float *partial, float *mean,
                            float *variance);
    void (*norm_forward)(const NormForward *pass);
    void (*norm_backward)(const NormBackward *pass);

    // gradient = 0 where output is 0.
    void (*relu_backward)(void *gradient, const void *output, size_t count);
    void (*relu)(void *out, const void *in, size_t count);
    // out = in / (1 - rate) or 0; the same key gives the same choice again.
    void (*dropout)(void *out, const void *in, size_t count, float rate, uint64_t key);
    void (*add)(void *sum, const void *a, const void *b, size_t count);
    // The largest of each window, and its place there, counted line by line; and back. A byte for
    // each element of y: MAX_POOL where the ReLU is closed. All of x_gradient is written.
    void (*max_pool)(const MaxPool *pool, const void *x, void *y, uint8_t *places);
    void (*max_pool_backward)(const MaxPool *pool, const void *y_gradient, const uint8_t *places,
                              void *x_gradient);
    // Mean over pixels: to (batch, channels) floats without padding, and back.
    void (*pool_forward)(Layout layout, int channels, const void *x, float *mean);
    void (*pool_backward)(Layout layout, int channels, const float *mean_gradient, void *gradient);

    // For each pixel the row of the table (rows, channels) with the number that is its token, zeros
    // for a number below 0; and back: all of the table's gradient is written, each row being the
    // sum of its pixels' gradients in their order. `rest` has as many floats as the table.
    void (*embed)(Layout layout, int channels, const float *tokens, const float *table, void *y);
    void (*embed_backward)(Layout layout, int channels, int rows, const float *tokens,
                           const void *y_gradient, float *table_gradient, float *rest);

    // What is floats in any case; not in the tables for bfloat16.

    // In place: y = max(y + bias, 0) for (rows, columns), ReLU only if asked.
    void (*bias_relu)(float *y, const float *bias, int rows, int columns, bool relu);
    // Sums the rows of (rows, columns).
    void (*sum_rows)(float *sum, const float *x, int rows, int columns);
    // The gradients of a first layer's kernel (blocks out, 3, 3, channels, lanes out) and of its
    // bias, which may be NULL: from images (batch, height, width, channels) and the gradient of the
    // output, in the layer's layout. `scratch` holds first_layer_scratch floats.
    void (*first_kernel_gradient)(const FirstLayer *layer, const float *images,
                                  const float *y_gradient, float *kernel_gradient,
                                  float *bias_gradient, float *scratch);
    void (*update)(const Update *update, const Segment *segments, int count);
} Passes;

static inline size_t norm_partial_size(Layout layout)
{
    return (size_t)layout.batch * (size_t)layout.blocks * (size_t)layout.lanes * 2;
}

// Floats of an image with a border of one pixel; a multiple of 16.
static inline size_t bordered_size(const FirstLayer *l)
{
    size_t floats = (size_t)(l->height + 2) * (size_t)(l->width + 2) * (size_t)l->channels;
    return (floats + 15) / 16 * 16;
}

// Floats of what an image adds to a block of the gradient: all taps of all channels, and the bias.
static inline size_t first_layer_sums(const FirstLayer *l)
{
    return ((size_t)FIRST_LAYER_TAPS * (size_t)l->channels + 1) * (size_t)l->layout.lanes;
}

static inline size_t first_layer_scratch(const FirstLayer *l)
{
    return (size_t)l->threads * bordered_size(l) +
           (size_t)l->layout.batch * (size_t)l->layout.blocks * first_layer_sums(l);
}

extern const Passes passes_generic;
#ifndef GENERIC_ONLY
extern const Passes passes_avx2;
IN_LIBRARY_ALL extern const Passes passes_bfloat16; // only where the processor has AVX512_BF16
#endif

#endif
