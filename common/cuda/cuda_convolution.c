// The CUDA backend's convolutions: cuDNN computes them, through its plain interface, on NHWC.
//
// Kernels lie in the arena as cuDNN wants them beside NHWC: (out, height, width, in). For bfloat16,
// cuDNN gets a copy of the kernel, made before the forward pass; the backward pass uses it again,
// and leaves the kernel's gradient in its place. Tensor cores want rows of 16 bytes: a model's
// images, of one or three channels, are copied into rows that long, filled up with zeros, and so is
// the kernel that meets them.

#include "cuda/backend_cuda_inside.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "run/args.h"
#include "base/error.h"
#include "base/memory.h"

// Algorithms may use as much working memory as this. A constant, so that with --deterministic the
// choice does not depend on how much memory is free.
#define WORKSPACE_BYTES ((size_t)256 << 20)

#define MAX_CANDIDATES 16 // more than cuDNN has algorithms for a direction

#define CUDNN(call)                                                                                \
    do {                                                                                           \
        cudnnStatus_t status = (call);                                                             \
        if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)                        \
            cuda_check(cudaErrorMemoryAllocation, #call, __FILE__, __LINE__);                      \
        cuda_check_words(status == CUDNN_STATUS_SUCCESS ? NULL : cudnnGetErrorString(status),      \
                         #call, __FILE__, __LINE__);                                               \
    } while (0)

// Measuring takes about a second per convolution, and a model has many of the same shape. The best
// algorithm for one batch size is used for others, too.
typedef struct {
    int height, width, inputs, outputs, size;
    bool image;
    int batch;
    Algorithm algorithms[DIRECTIONS];
} TunedConvolution;

// cuDNN on one GPU, with the measured algorithms.
struct CudaDnn {
    cudnnHandle_t handle;
    TunedConvolution *tuned;
    int tuned_count;
};

// On the current GPU.
static struct CudaDnn *dnn(void)
{
    CudaParts *parts = cuda_parts();
    if (!parts->dnn) {
        parts->dnn = allocate(1, sizeof *parts->dnn);
        cudnnStatus_t start = cudnnCreate(&parts->dnn->handle);
        if (start != CUDNN_STATUS_SUCCESS)
            cuda_library_failed("cuDNN", cudnnGetErrorString(start));
        CUDNN(cudnnSetStream(parts->dnn->handle, cuda_stream()));
    }
    return parts->dnn;
}

static cudnnHandle_t cudnn(void)
{
    return dnn()->handle;
}

// ---- Descriptions.

static cudnnDataType_t data_type(ElementType element)
{
    return element == ELEMENT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

static cudnnTensorDescriptor_t describe_activation(Shape shape, int batch, int channels)
{
    cudnnTensorDescriptor_t tensor;
    CUDNN(cudnnCreateTensorDescriptor(&tensor));
    CUDNN(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NHWC, data_type(image_element()), batch,
                                     channels, shape.height, shape.width));
    return tensor;
}

static cudnnFilterDescriptor_t describe_kernel(const Op *op, int channels)
{
    cudnnFilterDescriptor_t filter;
    CUDNN(cudnnCreateFilterDescriptor(&filter));
    CUDNN(cudnnSetFilter4dDescriptor(filter, data_type(image_element()), CUDNN_TENSOR_NHWC,
                                     op->out.channels, channels, op->size, op->size));
    return filter;
}

// 'same', stride 1.
static cudnnConvolutionDescriptor_t describe_convolution(const Op *op)
{
    cudnnConvolutionDescriptor_t description;
    int padding = op->size / 2;
    CUDNN(cudnnCreateConvolutionDescriptor(&description));
    CUDNN(cudnnSetConvolution2dDescriptor(description, padding, padding, 1, 1, 1, 1,
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    return description;
}

// The arithmetic that --precision allows: cuDNN's default for floats may round them to TF32.
static cudnnMathType_t allowed_math(void)
{
    if (image_element() == ELEMENT_BF16)
        return CUDNN_TENSOR_OP_MATH;
    return may_use_tf32() ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

static void set_math(const CudaConvolution *c, cudnnMathType_t math)
{
    CUDNN(cudnnSetConvolutionMathType(c->description, math));
}

// ---- Choosing algorithms.

// cuDNN's data of an algorithm, the same struct for all directions.
typedef struct {
    int algorithm;
    cudnnStatus_t status;
    cudnnMathType_t math;
    cudnnDeterminism_t determinism;
    size_t workspace;
} FoundAlgorithm;

// What an algorithm works on: the tensors (two are read, one is written), and its workspace.
typedef struct {
    void *input, *kernel, *output, *workspace;
} Buffers;

static cudnnStatus_t convolve(const CudaConvolution *c, Direction direction, const Algorithm *a,
                              const Buffers *b)
{
    static const float one = 1, zero = 0;
    set_math(c, a->math);
    if (direction == FORWARD)
        return cudnnConvolutionForward(cudnn(), &one, c->input, b->input, c->kernel, b->kernel,
                                       c->description, (cudnnConvolutionFwdAlgo_t)a->algorithm,
                                       b->workspace, a->workspace, &zero, c->output, b->output);
    if (direction == BACKWARD_DATA)
        return cudnnConvolutionBackwardData(cudnn(), &one, c->kernel, b->kernel, c->output,
                                            b->output, c->description,
                                            (cudnnConvolutionBwdDataAlgo_t)a->algorithm,
                                            b->workspace, a->workspace, &zero, c->input, b->input);
    return cudnnConvolutionBackwardFilter(cudnn(), &one, c->input, b->input, c->output, b->output,
                                          c->description,
                                          (cudnnConvolutionBwdFilterAlgo_t)a->algorithm,
                                          b->workspace, a->workspace, &zero, c->kernel, b->kernel);
}

static FoundAlgorithm candidate_of(int algorithm, cudnnStatus_t status, cudnnMathType_t math,
                                   cudnnDeterminism_t determinism, size_t workspace)
{
    return (FoundAlgorithm){algorithm, status, math, determinism, workspace};
}

// With a workspace cuDNN measures, else its estimate decides: with --deterministic, and where there
// is no memory. Its answers have a type for each direction, but the same fields.
#define KEEP_CANDIDATES(answers, count, candidates)                                                \
    for (int i = 0; i < (count); i++)                                                              \
    (candidates)[i] =                                                                              \
        candidate_of((int)(answers)[i].algo, (answers)[i].status, (answers)[i].mathType,           \
                     (answers)[i].determinism, (answers)[i].memory)

static int forward_candidates(const CudaConvolution *c, const Buffers *g,
                              FoundAlgorithm *candidates)
{
    cudnnConvolutionFwdAlgoPerf_t answers[MAX_CANDIDATES];
    int count;
    if (g->workspace)
        CUDNN(cudnnFindConvolutionForwardAlgorithmEx(
            cudnn(), c->input, g->input, c->kernel, g->kernel, c->description, c->output, g->output,
            MAX_CANDIDATES, &count, answers, g->workspace, WORKSPACE_BYTES));
    else
        CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(cudnn(), c->input, c->kernel, c->description,
                                                     c->output, MAX_CANDIDATES, &count, answers));
    KEEP_CANDIDATES(answers, count, candidates);
    return count;
}

static int backward_data_candidates(const CudaConvolution *c, const Buffers *g,
                                    FoundAlgorithm *candidates)
{
    cudnnConvolutionBwdDataAlgoPerf_t answers[MAX_CANDIDATES];
    int count;
    if (g->workspace)
        CUDNN(cudnnFindConvolutionBackwardDataAlgorithmEx(
            cudnn(), c->kernel, g->kernel, c->output, g->output, c->description, c->input, g->input,
            MAX_CANDIDATES, &count, answers, g->workspace, WORKSPACE_BYTES));
    else
        CUDNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnn(), c->kernel, c->output,
                                                          c->description, c->input, MAX_CANDIDATES,
                                                          &count, answers));
    KEEP_CANDIDATES(answers, count, candidates);
    return count;
}

static int backward_filter_candidates(const CudaConvolution *c, const Buffers *g,
                                      FoundAlgorithm *candidates)
{
    cudnnConvolutionBwdFilterAlgoPerf_t answers[MAX_CANDIDATES];
    int count;
    if (g->workspace)
        CUDNN(cudnnFindConvolutionBackwardFilterAlgorithmEx(
            cudnn(), c->input, g->input, c->output, g->output, c->description, c->kernel, g->kernel,
            MAX_CANDIDATES, &count, answers, g->workspace, WORKSPACE_BYTES));
    else
        CUDNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnn(), c->input, c->output,
                                                            c->description, c->kernel,
                                                            MAX_CANDIDATES, &count, answers));
    KEEP_CANDIDATES(answers, count, candidates);
    return count;
}

static bool is_allowed(const FoundAlgorithm *candidate)
{
    return candidate->status == CUDNN_STATUS_SUCCESS && candidate->workspace <= WORKSPACE_BYTES &&
           (!settings()->deterministic || candidate->determinism == CUDNN_DETERMINISTIC);
}

// An algorithm's workspace at this batch size and with this math; false if it can't be used.
static bool ask_workspace(const CudaConvolution *c, Direction direction, Algorithm *a)
{
    cudnnStatus_t status;
    set_math(c, a->math);
    if (direction == FORWARD)
        status = cudnnGetConvolutionForwardWorkspaceSize(
            cudnn(), c->input, c->kernel, c->description, c->output,
            (cudnnConvolutionFwdAlgo_t)a->algorithm, &a->workspace);
    else if (direction == BACKWARD_DATA)
        status = cudnnGetConvolutionBackwardDataWorkspaceSize(
            cudnn(), c->kernel, c->output, c->description, c->input,
            (cudnnConvolutionBwdDataAlgo_t)a->algorithm, &a->workspace);
    else
        status = cudnnGetConvolutionBackwardFilterWorkspaceSize(
            cudnn(), c->input, c->output, c->description, c->kernel,
            (cudnnConvolutionBwdFilterAlgo_t)a->algorithm, &a->workspace);
    return status == CUDNN_STATUS_SUCCESS && a->workspace <= WORKSPACE_BYTES;
}

// Runs an algorithm once: some that cuDNN lists do not run.
static bool runs(const CudaConvolution *c, Direction direction, const Algorithm *a,
                 const Buffers *b)
{
    Buffers own = *b;
    if (!b->workspace && a->workspace > 0)
        own.workspace = cuda_allocate(a->workspace);
    cudnnStatus_t status = convolve(c, direction, a, &own);
    if (own.workspace != b->workspace)
        cuda_release(own.workspace);
    cudaGetLastError(); // it has been seen: later calls must not find it
    return status == CUDNN_STATUS_SUCCESS;
}

// The fastest allowed one that runs; candidates are sorted.
static Algorithm choose(const OpState *s, const Buffers *buffers, Direction direction)
{
    static int (*const candidates_of[DIRECTIONS])(const CudaConvolution *, const Buffers *,
                                                  FoundAlgorithm *) = {
        forward_candidates, backward_data_candidates, backward_filter_candidates};
    const Op *op = s->op;
    const CudaConvolution *c = &s->convolution;
    FoundAlgorithm candidates[MAX_CANDIDATES];
    bool exact = allowed_math() == CUDNN_FMA_MATH;
    set_math(c, allowed_math());
    int count = candidates_of[direction](c, buffers, candidates);
    for (int i = 0; i < count; i++) {
        const FoundAlgorithm *candidate = &candidates[i];
        Algorithm a = {candidate->algorithm, exact ? CUDNN_FMA_MATH : candidate->math,
                       candidate->workspace};
        // A candidate of another math has another workspace, or none that works.
        if (is_allowed(candidate) &&
            (a.math == candidate->math || ask_workspace(c, direction, &a)) &&
            runs(c, direction, &a, buffers))
            return a;
    }
    die("cuDNN has no %salgorithm that runs for %s: images of %dx%dx%d to %d channels, size %d, "
        "batch %d%s",
        settings()->deterministic ? "deterministic " : "", op->variables[KERNEL]->name,
        op->in.height, op->in.width, op->in.channels, op->out.channels, op->size, s->batch,
        exact ? "" : "; try --precision fp32");
}

// Memory to try algorithms in; no workspace where nothing is to be measured, or nothing is left for
// it.
static Buffers take_trial_buffers(const OpState *s)
{
    const CudaConvolution *c = &s->convolution;
    const Op *op = s->op;
    size_t element = element_bytes(image_element());
    size_t pixels = (size_t)s->batch * (size_t)op->in.height * (size_t)op->in.width;
    size_t taps = (size_t)op->size * (size_t)op->size * (size_t)op->out.channels;
    return (Buffers){.input = cuda_allocate(pixels * (size_t)c->channels * element),
                     .kernel = cuda_allocate(taps * (size_t)c->channels * element),
                     .output = cuda_allocate(activation_bytes(s->out)),
                     .workspace =
                         settings()->deterministic ? NULL : cuda_try_allocate(WORKSPACE_BYTES)};
}

static void release_trial_buffers(const Buffers *g)
{
    cuda_release(g->input);
    cuda_release(g->kernel);
    cuda_release(g->output);
    cuda_release(g->workspace);
}

static bool is_alike(const TunedConvolution *a, const TunedConvolution *b)
{
    return a->height == b->height && a->width == b->width && a->inputs == b->inputs &&
           a->outputs == b->outputs && a->size == b->size && a->image == b->image;
}

// The one that was measured for this batch size, else for another one, else NULL.
static const TunedConvolution *find_tuned(const TunedConvolution *like)
{
    const struct CudaDnn *d = dnn();
    const TunedConvolution *found = NULL;
    for (int i = 0; i < d->tuned_count; i++)
        if (is_alike(&d->tuned[i], like) && (!found || d->tuned[i].batch == like->batch))
            found = &d->tuned[i];
    return found;
}

static const TunedConvolution *remember(const TunedConvolution *new)
{
    struct CudaDnn *d = dnn();
    d->tuned = enlarge(d->tuned, (size_t)d->tuned_count + 1, sizeof *d->tuned);
    d->tuned[d->tuned_count] = *new;
    return &d->tuned[d->tuned_count++];
}

// Uses the algorithms of another batch size; false if they do not run for this one.
static bool adapt(const CudaConvolution *c, const Buffers *buffers, const TunedConvolution *from,
                  TunedConvolution *to)
{
    memcpy(to->algorithms, from->algorithms, sizeof to->algorithms);
    for (Direction d = FORWARD; d < DIRECTIONS; d++)
        if ((d != BACKWARD_DATA || !to->image) &&
            (!ask_workspace(c, d, &to->algorithms[d]) || !runs(c, d, &to->algorithms[d], buffers)))
            return false;
    return true;
}

static const Algorithm *algorithms_for(const OpState *s)
{
    const Op *op = s->op;
    TunedConvolution new = {.height = op->in.height,
                            .width = op->in.width,
                            .inputs = s->convolution.channels,
                            .outputs = op->out.channels,
                            .size = op->size,
                            .image = op->input_is_image,
                            .batch = s->batch};
    const TunedConvolution *before = find_tuned(&new);
    if (before && before->batch == new.batch)
        return before->algorithms;
    Buffers buffers = take_trial_buffers(s);
    bool adapted = before && adapt(&s->convolution, &buffers, before, &new);
    for (Direction d = FORWARD; d < DIRECTIONS && !adapted; d++)
        if (d != BACKWARD_DATA || !op->input_is_image)
            new.algorithms[d] = choose(s, &buffers, d);
    release_trial_buffers(&buffers);
    return remember(&new)->algorithms;
}

// ---- The operation.

// The kernel, or its gradient, in the arena and in the copy for cuDNN: rows of input channels.
static ActivationShape kernel_in_arena(const Op *op)
{
    return (ActivationShape){ELEMENT_FLOAT, op->out.channels * op->size * op->size,
                             op->in.channels};
}

static ActivationShape kernel_for_cudnn(const OpState *s)
{
    return (ActivationShape){image_element(), kernel_in_arena(s->op).rows, s->convolution.channels};
}

static ActivationShape input_for_cudnn(const OpState *s)
{
    return (ActivationShape){image_element(), s->in.rows, s->convolution.channels};
}

// cuDNN counts a tensor's elements in an int.
static void check_size(ActivationShape a)
{
    if (elements_of(a) > INT_MAX)
        die("a convolution's images are %zu numbers, and cuDNN takes %d; a smaller --batch-size or "
            "--width needs less",
            elements_of(a), INT_MAX);
}

static bool is_padded(const OpState *s)
{
    return s->convolution.channels != s->op->in.channels;
}

bool cuda_conv2d_is_converted(const OpState *s)
{
    return s->convolution.convert_kernel && !is_padded(s);
}

void cuda_conv2d_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    CudaConvolution *c = &s->convolution;
    int row = (int)(16 / element_bytes(image_element()));
    c->channels = op->in.channels;
    if (op->input_is_image)
        c->channels = (c->channels + row - 1) / row * row;
    check_size(input_for_cudnn(s));
    check_size(s->out);
    c->convert_kernel = is_padded(s) || image_element() != ELEMENT_FLOAT;
    c->convert_input = op->input_is_image && c->convert_kernel;
    c->input = describe_activation(op->in, s->batch, c->channels);
    c->output = describe_activation(op->out, s->batch, op->out.channels);
    c->kernel = describe_kernel(op, c->channels);
    c->description = describe_convolution(op);
    memcpy(c->algorithms, algorithms_for(s), sizeof c->algorithms);

    if (c->convert_input)
        c->input_bytes = aligned_bytes(activation_bytes(input_for_cudnn(s)));
    if (c->convert_kernel)
        c->kernel_bytes = aligned_bytes(activation_bytes(kernel_for_cudnn(s)));
    if (!op->variables[BIAS]->no_gradient)
        c->partial_bytes = aligned_bytes(partial_sums_length(s->out) * sizeof(float));
    size_t workspace = 0;
    for (Direction d = FORWARD; d < DIRECTIONS; d++)
        if (c->algorithms[d].workspace > workspace)
            workspace = c->algorithms[d].workspace;
    sizes->saved = c->kernel_bytes;
    sizes->scratch = c->input_bytes + c->partial_bytes + workspace;
}

void cuda_conv2d_free(OpState *s)
{
    CudaConvolution *c = &s->convolution;
    CUDNN(cudnnDestroyTensorDescriptor(c->input));
    CUDNN(cudnnDestroyTensorDescriptor(c->output));
    CUDNN(cudnnDestroyFilterDescriptor(c->kernel));
    CUDNN(cudnnDestroyConvolutionDescriptor(c->description));
}

// The contents of the scratch memory.
typedef struct {
    void *input, *workspace;
    float *partial;
} ConvolutionMemory;

static ConvolutionMemory scratch_of(const CudaConvolution *c, void *memory)
{
    ConvolutionMemory scratch = {.input = memory};
    scratch.partial = (float *)((char *)memory + c->input_bytes);
    scratch.workspace = (char *)scratch.partial + c->partial_bytes;
    return scratch;
}

// The input, or a copy of it, as cuDNN wants it.
static const void *cudnn_input(const OpState *s, const void *input,
                               const ConvolutionMemory *scratch)
{
    if (!s->convolution.convert_input)
        return input;
    launch_copy_rows(input_for_cudnn(s), scratch->input, s->in, input);
    return scratch->input;
}

void cuda_conv2d_forward(OpState *s, const ForwardArgs *a)
{
    const Op *op = s->op;
    const CudaConvolution *c = &s->convolution;
    ConvolutionMemory scratch = scratch_of(c, a->scratch);
    const void *input = cudnn_input(s, a->input, &scratch);
    const void *kernel = weight_of(op, KERNEL, &a->arenas);
    if (is_padded(s))
        launch_copy_rows(kernel_for_cudnn(s), a->saved, kernel_in_arena(op), kernel);
    if (c->convert_kernel)
        kernel = a->saved;
    Buffers buffers = {(void *)input, (void *)kernel, a->output, scratch.workspace};
    CUDNN(convolve(c, FORWARD, &c->algorithms[FORWARD], &buffers));
    if (!op->bias_in_batch_norm)
        launch_bias_forward(s->out, a->output, weight_of(op, BIAS, &a->arenas), op->relu);
}

static void kernel_backward(const OpState *s, const BackwardArgs *a,
                            const ConvolutionMemory *scratch)
{
    const Op *op = s->op;
    const CudaConvolution *c = &s->convolution;
    const void *input = cudnn_input(s, a->input, scratch);
    float *gradient = gradient_of(op, KERNEL, &a->arenas);
    void *result = c->convert_kernel ? a->saved : gradient;
    Buffers buffers = {(void *)input, result, a->output_gradient, scratch->workspace};
    CUDNN(convolve(c, BACKWARD_FILTER, &c->algorithms[BACKWARD_FILTER], &buffers));
    if (is_padded(s))
        launch_copy_rows(kernel_in_arena(op), gradient, kernel_for_cudnn(s), result);
}

static void input_backward(const OpState *s, const BackwardArgs *a,
                           const ConvolutionMemory *scratch)
{
    const CudaConvolution *c = &s->convolution;
    const void *kernel = c->convert_kernel ? a->saved : weight_of(s->op, KERNEL, &a->arenas);
    Buffers buffers = {a->input_gradient, (void *)kernel, a->output_gradient, scratch->workspace};
    CUDNN(convolve(c, BACKWARD_DATA, &c->algorithms[BACKWARD_DATA], &buffers));
}

void cuda_conv2d_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    ConvolutionMemory scratch = scratch_of(&s->convolution, a->scratch);
    bool train_bias = !op->variables[BIAS]->no_gradient;
    launch_bias_backward(s->out, a->output_gradient, op->relu ? a->output : NULL, scratch.partial,
                         train_bias ? gradient_of(op, BIAS, &a->arenas) : NULL);
    if (a->input_gradient)
        input_backward(s, a, &scratch);
    kernel_backward(s, a, &scratch); // in the place of the kernel
}
