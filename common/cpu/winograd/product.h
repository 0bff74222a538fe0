// Inside Winograd's convolution: small matrix products, whose results stay in registers while the
// sum is taken.

#ifndef HVDLAB_WINOGRAD_PRODUCT_H
#define HVDLAB_WINOGRAD_PRODUCT_H

#include "cpu/simd.h"

// How a factor lies in memory, in floats: the sum is taken over `outer` x `inner` elements; `next`
// is from one row of the left factor, or one vector of the right one, to the next.
typedef struct {
    size_t outer, inner, next;
} Steps;

// c = a b, or c += a b: `rows` rows of `vectors` vectors, which all have registers: only without
// loops over them does gcc leave them there.
INLINE void product(int rows, int vectors, int outer, int inner, const float *a, Steps a_steps,
                    const float *b, Steps b_steps, float *c, size_t c_row, size_t c_vector,
                    bool add)
{
    Floats sum[STRIP][MAX_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            sum[r][v] = add ? load(c + (size_t)r * c_row + (size_t)v * c_vector) : (Floats){0};
    for (int o = 0; o < outer; o++, a += a_steps.outer, b += b_steps.outer)
        for (int i = 0; i < inner; i++) {
            Floats right[MAX_VECTORS];
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                right[v] = load(b + (size_t)i * b_steps.inner + (size_t)v * b_steps.next);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                float left = a[(size_t)i * a_steps.inner + (size_t)r * a_steps.next];
#pragma GCC unroll 16
                for (int v = 0; v < vectors; v++)
                    sum[r][v] += left * right[v];
            }
        }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            store(c + (size_t)r * c_row + (size_t)v * c_vector, sum[r][v]);
}

// A strip of tiles (blocks, STRIP, LANES) times kernels (blocks, LANES, vectors, LANES), to
// (vectors, STRIP, LANES).
INLINE void strip_product_of(int vectors, int blocks, const float *tiles, const float *kernels,
                             float *to, bool add)
{
    size_t row = (size_t)vectors * LANES;
    product(STRIP, vectors, blocks, LANES, tiles, (Steps){BLOCK, 1, LANES}, kernels,
            (Steps){LANES * row, row, LANES}, to, LANES, BLOCK, add);
}

static void strip_product(int vectors, int blocks, const float *tiles, const float *kernels,
                          float *to, bool add)
{
    if (vectors == GROUP)
        strip_product_of(GROUP, blocks, tiles, kernels, to, add);
    else
        strip_product_of(1, blocks, tiles, kernels, to, add);
}

// What a product of the kernel's gradient sums over: the strips of tiles of the input and of the
// output's gradient, which are so many floats apart.
typedef struct {
    int strips;
    size_t input_step, gradient_step;
} ProductSum;

// ROWS channels of the input by `vectors` vectors of the output's channels.
INLINE void kernel_product_of(int vectors, ProductSum sum, const float *input,
                              const float *gradient, float *to, size_t to_row, bool add)
{
    product(ROWS, vectors, sum.strips, STRIP, input, (Steps){sum.input_step, LANES, 1}, gradient,
            (Steps){sum.gradient_step, LANES, BLOCK}, to, to_row, LANES, add);
}

static void kernel_product(int vectors, ProductSum sum, const float *input, const float *gradient,
                           float *to, size_t to_row, bool add)
{
    if (vectors == 3)
        kernel_product_of(3, sum, input, gradient, to, to_row, add);
    else if (vectors == 2)
        kernel_product_of(2, sum, input, gradient, to, to_row, add);
    else
        kernel_product_of(1, sum, input, gradient, to, to_row, add);
}

#endif
