// Inside the CPU backend: what its operations share. An operation's state, how activations and
// kernels lie in memory, and where its variables are.
//
// With --precision bf16 images between layers are bfloat16. Vectors (what flatten, the average pool
// and dense layers give) are always floats, and so are the images that a model reads, weights,
// gradients of weights and statistics.

#ifndef HVDLAB_BACKEND_CPU_INSIDE_H
#define HVDLAB_BACKEND_CPU_INSIDE_H

#include "backend/backend.h"
#include "cpu/onednn.h"
#include "cpu/passes.h"
#include "cpu/winograd/winograd.h"

// How a convolution computes the gradient of its kernel: by oneDNN's convolution, by a pass over a
// first layer's images, or row by row as products of matrices (cpu_kernel_rows.c).
typedef enum { BY_CONVOLUTION, BY_PASS, BY_ROWS } KernelGradient;

struct OpState {
    const OneDnn *dnn; // of its device
    const Op *op;
    int batch;
    bool bfloat16;  // what its device computes with: else floats
    Layout in, out; // of the activations
    Call forward, backward_input, backward_kernel;
    Call to_bfloat16;         // of a dense layer's kernel
    Call to_arena;            // of a kernel's gradient by rows
    const Winograd *winograd; // of a convolution, instead of the calls: or NULL
    WinogradShape shape;
    KernelGradient kernel_gradient; // of a convolution without Winograd
    int threads;                    // of a first layer's own kernel gradient
};

// The passes of the widest instruction set that this machine has: over floats, and over a layout's
// elements.
const Passes *passes(void);
const Passes *passes_of(Layout layout);

// Likewise Winograd's convolution, for blocks of lanes() channels. NULL on an x86 processor without
// AVX2: it has too few registers for it.
const Winograd *winograd(void);

// Winograd's convolution of bfloat16, or NULL: where the processor has AMX, whose products of
// matrices are quicker.
const Winograd *winograd_of_bfloat16(void);

// Channels side by side in the blocked layout, and a number of channels rounded up to them.
int lanes(void);
int padded(int channels);

// How a value lies in memory: flat for vectors, else blocked; or NHWC, which AMX wants.
Layout layout_of(Shape shape, int batch, bool flat, bool bfloat16);
size_t layout_elements(Layout layout);
size_t layout_bytes(Layout layout);

// oneDNN's descriptions of activations and kernels. Free with desc_free.
Desc activation_desc(Shape shape, int batch, bool bfloat16, dnnl_format_tag_t tag);
Desc kernel_desc(const Op *op, bool bfloat16, dnnl_format_tag_t tag);
dnnl_format_tag_t blocked_tag(void);
dnnl_format_tag_t image_tag(bool bfloat16); // of images between layers
dnnl_format_tag_t kernel_tag(const Op *op); // of a convolution's kernel in the arena, in floats

// True for a model's first layer on images of few channels, which are not padded to a block.
bool few_channels(const Op *op);

// oneDNN's interface takes what it only reads as a pointer to non-const.
void *unconst(const void *memory);

// An operation's variables in their arenas.
const float *weight(const Op *op, int index, const Arenas *arenas);
float *gradient(const Op *op, int index, const Arenas *arenas);
float *statistic(const Op *op, int index, const Arenas *arenas);

// The working memory, in bytes, that forward, backward_input and backward_kernel need, which run
// one after another.
size_t calls_scratch(const OpState *s);
size_t larger(size_t a, size_t b);

// The gradient of a convolution's kernel by rows. True where it is quicker than oneDNN's, by shape
// alone; makes backward_kernel and to_arena, and returns the working memory that it needs, in
// bytes; computes it.
bool kernel_rows_pay(const OpState *s);
size_t kernel_rows_create(OpState *s);
void kernel_rows_gradient(OpState *s, const BackwardArgs *a);

// The operations that oneDNN has a part in (cpu_convolution.c, cpu_dense.c).
void conv2d_create(OpState *s, OpSizes *sizes);
void conv2d_forward(OpState *s, const ForwardArgs *a);
void conv2d_backward(OpState *s, const BackwardArgs *a);
void dense_create(OpState *s, OpSizes *sizes);
void dense_forward(OpState *s, const ForwardArgs *a);
void dense_backward(OpState *s, const BackwardArgs *a);
void flatten_create(OpState *s, OpSizes *sizes);
void flatten_forward(OpState *s, const ForwardArgs *a);
void flatten_backward(OpState *s, const BackwardArgs *a);

#endif
