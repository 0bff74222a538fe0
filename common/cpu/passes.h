// Inside the CPU backend: the passes over memory between oneDNN's convolutions. passes.c is
// compiled once per instruction set, and the backend chooses when the program starts, so that one
// binary is fast on a new machine and runs on an old one.
//
// Activations lie in memory as (batch, blocks, pixels, lanes): `lanes` channels side by side for
// each pixel, as oneDNN's nChw16c and nChw8c have them. Channels beyond the last real one are zero,
// and stay so because their gamma and beta are zero. A flat tensor has one pixel and as many lanes
// as channels.

#ifndef HVDLAB_PASSES_H
#define HVDLAB_PASSES_H

#include "base/types.h"

typedef struct {
    int batch, blocks, pixels, lanes;
} Layout;

// Batch norm over one layer's activations. Vectors have blocks x lanes elements.
typedef struct {
    Layout layout;
    bool relu;
    float dropout_rate;
    uint64_t dropout_key;
    const float *x;       // what is normalized
    const float *mean;    // per channel
    const float *inv_std; // 1 / sqrt(variance + epsilon), per channel
    const float *gamma, *beta;
    const float *residual; // added after ReLU, or NULL
    float *output;
} NormForward;

typedef struct {
    Layout layout;
    bool relu;
    float dropout_rate;
    const float *x, *mean, *inv_std, *gamma, *beta;
    const float *output;           // read only where dropout_rate > 0: zero where dropped
    float *output_gradient;        // overwritten with what the second pass needs
    const float *output_gradient2; // a second part of it, or NULL
    float *input_gradient;         // may be output_gradient itself
    float *gamma_gradient, *beta_gradient;
    float *partial; // norm_partial_size floats
} NormBackward;

typedef struct {
    // Mean and biased variance of each channel. `partial` holds norm_partial_size floats.
    void (*norm_statistics)(Layout layout, const float *x, float *partial, float *mean,
                            float *variance);
    void (*norm_forward)(const NormForward *pass);
    void (*norm_backward)(const NormBackward *pass);

    // In place: y = max(y + bias, 0) for (rows, columns), ReLU only if asked.
    void (*bias_relu)(float *y, const float *bias, int rows, int columns, bool relu);
    // gradient = 0 where output is 0.
    void (*relu_backward)(float *gradient, const float *output, size_t count);
    void (*relu)(float *out, const float *in, size_t count);
    // out = in / (1 - rate) or 0; the same key gives the same choice again.
    void (*dropout)(float *out, const float *in, size_t count, float rate, uint64_t key);
    void (*add)(float *sum, const float *a, const float *b, size_t count);
    // Sums the rows of (rows, columns).
    void (*sum_rows)(float *sum, const float *x, int rows, int columns);
    // Mean over pixels: to (batch, channels) floats without padding, and back.
    void (*pool_forward)(Layout layout, int channels, const float *x, float *mean);
    void (*pool_backward)(Layout layout, int channels, const float *mean_gradient, float *gradient);

    // For each pixel the row of the table (rows, channels) with the number that is its token, zeros
    // for a number below 0; and back: all of the table's gradient is written, each row being the
    // sum of its pixels' gradients in their order.
    void (*embed)(Layout layout, int channels, const float *tokens, const float *table, float *y);
    void (*embed_backward)(Layout layout, int channels, int rows, const float *tokens,
                           const float *y_gradient, float *table_gradient);

    void (*update)(const Update *update, const Segment *segments, int count);
} Passes;

static inline size_t norm_partial_size(Layout layout)
{
    return (size_t)layout.batch * (size_t)layout.blocks * (size_t)layout.lanes * 2;
}

extern const Passes passes_generic;
#ifndef GENERIC_ONLY
extern const Passes passes_avx2;
#endif

#endif
