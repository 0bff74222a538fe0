// Inside the CUDA backend: what its operations share. An operation's state, and where its variables
// are.
//
// Images lie in memory as NHWC, as bfloat16 with --precision bf16, else as floats. Vectors (what
// flatten, the average pool and dense layers give) are always floats, and so are the images that a
// model reads, weights, gradients of weights and statistics.

#ifndef HVDLAB_BACKEND_CUDA_INSIDE_H
#define HVDLAB_BACKEND_CUDA_INSIDE_H

#include <cudnn.h>
#include "backend/backend.h"
#include "cuda/cuda_device.h"
#include "cuda/kernels.h"

// The three directions of a convolution.
typedef enum { FORWARD, BACKWARD_DATA, BACKWARD_FILTER, DIRECTIONS } Direction;

// One of cuDNN's algorithms for one direction.
typedef struct {
    int algorithm; // a cudnnConvolutionFwdAlgo_t, BwdDataAlgo_t or BwdFilterAlgo_t
    cudnnMathType_t math;
    size_t workspace; // bytes
} Algorithm;

typedef struct {
    cudnnTensorDescriptor_t input, output;
    cudnnFilterDescriptor_t kernel;
    cudnnConvolutionDescriptor_t description;
    Algorithm algorithms[DIRECTIONS];
    int channels;                     // of the input as cuDNN gets it
    bool convert_input;               // the model's images are not as cuDNN wants them,
    bool convert_kernel;              // the kernel in the arena isn't
    size_t input_bytes, kernel_bytes; // of the converted copies, 0 where there are none
    size_t partial_bytes;
} CudaConvolution;

struct OpState {
    Device *device;
    const Op *op;
    int batch;
    ActivationShape in, out;
    CudaConvolution convolution; // of OP_CONV2D
};

// What --precision asks for.
ElementType image_element(void);
bool may_use_tf32(void);

// Exits with an error message because a library does not start. It seldom says why, and the usual
// reason is that other processes have filled the GPU's memory.
_Noreturn void cuda_library_failed(const char *library, const char *words);

size_t element_bytes(ElementType element);
size_t elements_of(ActivationShape activation);
size_t activation_bytes(ActivationShape activation);

// A number of bytes such that what comes after it is aligned as kernels want it.
size_t aligned_bytes(size_t bytes);

// An operation's variables in their arenas.
const float *weight_of(const Op *op, int index, const Arenas *arenas);
float *gradient_of(const Op *op, int index, const Arenas *arenas);

// Matrix products (cuda_blas.c): c = a b, or with a or b transposed. All are dense, row by row; c
// is (rows, columns) of floats, a and b are as image_element() says, `inner` is what is summed
// over. cuda_blas_start readies them on the current GPU.
typedef enum { TRANSPOSED_NONE, TRANSPOSED_A, TRANSPOSED_B } Transposed;
void cuda_blas_start(void);
void cuda_matrix_multiply(Transposed transposed, int rows, int columns, int inner, const void *a,
                          const void *b, float *c);

// Recordings (cuda_graph.c), as backend.h has them.
Recording *cuda_record(Device *device, void (*queue)(const void *what), const void *what);
void cuda_play(const Recording *recording);
void cuda_forget(Recording *recording);

// Convolution (cuda_convolution.c).
void cuda_conv2d_create(OpState *s, OpSizes *sizes);
void cuda_conv2d_free(OpState *s);
void cuda_conv2d_forward(OpState *s, const ForwardArgs *a);
void cuda_conv2d_backward(OpState *s, const BackwardArgs *a);
// Of a convolution whose kernel is only converted for cuDNN, not padded: then the copy is made
// before the pass, and the kernel's gradient, in the copy's place, is converted after it.
bool cuda_conv2d_is_converted(const OpState *s);

#endif
