// Inside the CPU backend: 3x3 convolutions, stride 1, 'same', by Winograd's minimal filtering
// (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016), in the layouts that
// the backend has: activations (batch, blocks, pixels, lanes), kernels (blocks out, blocks in, 3,
// 3, lanes in, lanes out). winograd_set.c is compiled once per instruction set, as passes_set.c is,
// and once for activations in bfloat16: kernels, bias and all arithmetic are floats there, too.

#ifndef HVDLAB_WINOGRAD_H
#define HVDLAB_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include "base/types.h"

typedef struct {
    int batch, height, width;
    int in, out; // channels: multiples of the lanes
    int threads; // at most so many
} WinogradShape;

typedef struct {
    int lanes; // of the blocks

    // Floats of working memory, 64-byte aligned, that any direction needs.
    size_t (*scratch)(const WinogradShape *shape);

    // y = x * kernel + bias, ReLU of that if asked.
    void (*forward)(const WinogradShape *shape, const void *x, const float *kernel,
                    const float *bias, bool relu, void *y, float *scratch);
    // The gradient of x.
    void (*backward_input)(const WinogradShape *shape, const void *y_gradient, const float *kernel,
                           void *x_gradient, float *scratch);
    // The gradients of kernel and bias; the latter NULL: not wanted.
    void (*backward_kernel)(const WinogradShape *shape, const void *x, const void *y_gradient,
                            float *kernel_gradient, float *bias_gradient, float *scratch);
} Winograd;

IN_LIBRARY_ALL extern const Winograd winograd_generic;
#ifndef GENERIC_ONLY
IN_LIBRARY_ALL extern const Winograd winograd_avx2, winograd_avx512, winograd_bfloat16;
#endif

#endif
