// Inside the CPU backend: what its operations share. An operation's state, how activations and
// kernels lie in memory, and where its variables are.

#ifndef HVDLAB_CPU_OP_H
#define HVDLAB_CPU_OP_H

#include "backend/backend.h"
#include "cpu/onednn.h"
#include "cpu/passes.h"
#include "cpu/winograd.h"

struct OpState {
    const OneDnn *dnn; // of its device
    const Op *op;
    int batch;
    Layout in, out; // of the activations
    Call forward, backward_input, backward_kernel;
    const Winograd *winograd; // of a convolution, instead of the calls: or NULL
    WinogradShape shape;
};

// The passes of the widest instruction set that this machine has.
const Passes *passes(void);

// Likewise Winograd's convolution, for blocks of lanes() channels. NULL on an x86 processor without
// AVX2: it has too few registers for it.
const Winograd *winograd(void);

// Channels side by side in the blocked layout, and a number of channels rounded up to them.
int lanes(void);
int padded(int channels);

// How a value lies in memory: blocked, or flat for vectors.
Layout layout_of(Shape shape, int batch, bool flat);
size_t layout_floats(Layout layout);

// oneDNN's descriptions of activations and kernels. Free with desc_free.
Desc activation_desc(Shape shape, int batch, dnnl_format_tag_t tag);
Desc kernel_desc(const Op *op, dnnl_format_tag_t tag);
dnnl_format_tag_t blocked_tag(void);
dnnl_format_tag_t kernel_tag(const Op *op); // of a convolution's kernel in the arena

// True for a model's first layer on images of few channels, which are not padded to a block.
bool few_channels(const Op *op);

// oneDNN's interface takes what it only reads as a pointer to non-const.
void *unconst(const void *memory);

// An operation's variables in their arenas.
const float *weight(const Op *op, int index, const Arenas *arenas);
float *gradient(const Op *op, int index, const Arenas *arenas);
float *statistic(const Op *op, int index, const Arenas *arenas);

// The operations that are oneDNN's own (cpu_convolution.c).
void conv2d_create(OpState *s, OpSizes *sizes);
void conv2d_forward(OpState *s, const ForwardArgs *a);
void conv2d_backward(OpState *s, const BackwardArgs *a);
void max_pool_create(OpState *s, OpSizes *sizes);
void max_pool_run(OpState *s, const ForwardArgs *a);
void max_pool_run_backward(OpState *s, const BackwardArgs *a);
void flatten_create(OpState *s, OpSizes *sizes);
void flatten_forward(OpState *s, const ForwardArgs *a);
void flatten_backward(OpState *s, const BackwardArgs *a);

#endif
