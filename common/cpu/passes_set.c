// Batch norm, ReLU, dropout, residual sums, pooling and the optimizers' updates for the CPU,
// written with the compilers' vector extensions. A pass is limited by memory, not by arithmetic:
// what counts is how often each activation is read and written, and how many bytes it has.
//
// Compiled several times: PASSES names the table of this build. With BFLOAT16 (simd.h) only what
// activations need is in it.

#include "cpu/passes.h"

#include <string.h>

#ifdef BFLOAT16
#define VECTOR 16
#else
#define VECTOR 8
#include "cpu/passes_first_layer.h"
#include "cpu/passes_floats.h"
#endif
#include "cpu/passes_max_pool.h"
#include "cpu/passes_norm.h"
#include "cpu/passes_parts.h"
#include "cpu/simd.h"

static void relu(void *to, const void *from, size_t count)
{
    const Activation *in = from;
    Activation *out = to;
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        out[i] = widened(in[i]) <= 0 ? 0 : in[i];
}

static void relu_backward(void *gradients, const void *outputs, size_t count)
{
    const Activation *output = outputs;
    Activation *gradient = gradients;
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        gradient[i] = widened(output[i]) <= 0 ? 0 : gradient[i];
}

static void dropout(void *to, const void *from, size_t count, float rate, uint64_t key)
{
    const Activation *in = from;
    Activation *out = to;
    Dropout d = dropout_of(rate, key);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        out[i] = keep_mask(d, (uint32_t)i)[0] ? rounded(widened(in[i]) * d.scale) : 0;
}

static void add(void *sums, const void *left, const void *right, size_t count)
{
    const Activation *a = left, *b = right;
    Activation *sum = sums;
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        sum[i] = rounded(widened(a[i]) + widened(b[i]));
}

// A vector of channels at a time, where they fill one.
static void pool_forward(Layout layout, int channels, const void *activations, float *mean)
{
    const Activation *x = activations;
    int lanes = layout.lanes;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < chunk_count(layout); i++) {
        const Activation *from = x + (size_t)i * chunk_size(layout);
        int first = i % layout.blocks * lanes, lane = 0;
        int count = channels - first < lanes ? channels - first : lanes;
        float *to = mean + i / layout.blocks * channels + first;
        for (; lane + VECTOR <= count; lane += VECTOR) {
            Total all = {{0}, {0}};
            for (int p = 0, end; p < layout.pixels;) {
                Floats sum = {0};
                for (end = run_end(p, layout.pixels); p < end; p++)
                    sum += load_activations(from + (size_t)p * (size_t)lanes + lane);
                total_add(&all, sum);
            }
            store(to + lane, all.sum / (float)layout.pixels);
        }
        for (; lane < count; lane++) {
            double sum = 0;
            for (int p = 0; p < layout.pixels; p++)
                sum += (double)widened(from[(size_t)p * (size_t)lanes + (size_t)lane]);
            to[lane] = (float)(sum / layout.pixels);
        }
    }
}

static void pool_backward(Layout layout, int channels, const float *mean_gradient, void *gradients)
{
    Activation *gradient = gradients;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < chunk_count(layout); i++) {
        int n = i / layout.blocks, first = i % layout.blocks * layout.lanes;
        Activation *to = gradient + (size_t)i * chunk_size(layout);
        for (int p = 0; p < layout.pixels; p++)
            for (int lane = 0; lane < layout.lanes; lane++) {
                int c = first + lane;
                to[p * layout.lanes + lane] =
                    c < channels ? rounded(mean_gradient[n * channels + c] / (float)layout.pixels)
                                 : 0;
            }
    }
}

static void embed(Layout layout, int channels, const float *tokens, const float *table,
                  void *outputs)
{
    Activation *y = outputs;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < chunk_count(layout); i++) {
        int n = i / layout.blocks, first = i % layout.blocks * layout.lanes;
        Activation *to = y + (size_t)i * chunk_size(layout);
        for (int p = 0; p < layout.pixels; p++) {
            int token = (int)tokens[n * layout.pixels + p];
            const float *row = table + (token < 0 ? 0 : (size_t)token * (size_t)channels);
            for (int lane = 0; lane < layout.lanes; lane++) {
                int c = first + lane;
                to[p * layout.lanes + lane] = token >= 0 && c < channels ? rounded(row[c]) : 0;
            }
        }
    }
}

// Adds the gradient of pixel p of image n to the row of its token; `rest` is what rounding has
// taken from the row so far (Kahan, 1965), since a token may be a frequent one.
static void add_to_row(Layout layout, int channels, int n, int p, const Activation *y_gradient,
                       float *row, float *rest)
{
    for (int c = 0; c < channels; c++) {
        size_t chunk = (size_t)(n * layout.blocks + c / layout.lanes);
        size_t i = chunk * chunk_size(layout) + (size_t)(p * layout.lanes + c % layout.lanes);
        float part = widened(y_gradient[i]) - rest[c], sum = row[c] + part;
        rest[c] = (sum - row[c]) - part;
        row[c] = sum;
    }
}

// Each row belongs to one thread, which looks at all tokens: so the sums do not depend on the
// number of threads.
static void embed_backward(Layout layout, int channels, int rows, const float *tokens,
                           const void *gradients, float *table_gradient, float *rest)
{
    const Activation *y_gradient = gradients;
    int pixels = layout.batch * layout.pixels;
#pragma omp parallel
    {
        int threads = omp_get_num_threads(), me = omp_get_thread_num();
        for (int row = me; row < rows; row += threads) {
            size_t begin = (size_t)row * (size_t)channels, bytes = (size_t)channels * sizeof *rest;
            memset(table_gradient + begin, 0, bytes);
            memset(rest + begin, 0, bytes);
        }
        for (int i = 0; i < pixels; i++) {
            int row = (int)tokens[i];
            if (row >= 0 && row % threads == me)
                add_to_row(layout, channels, i / layout.pixels, i % layout.pixels, y_gradient,
                           table_gradient + (size_t)row * (size_t)channels,
                           rest + (size_t)row * (size_t)channels);
        }
    }
}

const Passes PASSES = {
    .norm_statistics = norm_statistics,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .relu_backward = relu_backward,
    .relu = relu,
    .dropout = dropout,
    .add = add,
    .max_pool = max_pool_forward,
    .max_pool_backward = max_pool_backward,
    .pool_forward = pool_forward,
    .pool_backward = pool_backward,
    .embed = embed,
    .embed_backward = embed_backward,
#ifndef BFLOAT16
    .bias_relu = bias_relu,
    .sum_rows = sum_rows,
    .first_kernel_gradient = first_kernel_gradient,
    .update = update_all,
#endif
};
