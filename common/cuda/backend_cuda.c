// The CUDA backend: cuDNN computes convolutions (cuda_convolution.c), cuBLAS matrix products
// (cuda_blas.c), and the kit's own kernels (norm.cu, kernels.cu) the rest. All is queued on one
// stream; nothing in a training step allocates memory or waits for the GPU.

#include "cuda/backend_cuda_inside.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"

static float *statistic_of(const Op *op, int index, const Arenas *arenas)
{
    return arenas->statistics + op->variables[index]->offset;
}

static void copy(void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_stream()));
}

// ---- Memory. Every call of the backend takes its turn on the device that it is for.

static void *allocate_on_device(Device *device, size_t bytes)
{
    CudaTurn turn = cuda_take_turn(device);
    void *memory = cuda_allocate(bytes);
    cuda_end_turn(&turn);
    return memory;
}

static void release(Device *device, void *memory)
{
    CudaTurn turn = cuda_take_turn(device);
    cuda_release(memory);
    cuda_end_turn(&turn);
}

static void write_to_device(Device *device, void *to, const void *from, size_t bytes)
{
    CudaTurn turn = cuda_take_turn(device);
    cuda_write(to, from, bytes);
    cuda_end_turn(&turn);
}

static void read_from_device(Device *device, void *to, const void *from, size_t bytes)
{
    CudaTurn turn = cuda_take_turn(device);
    cuda_read(to, from, bytes);
    cuda_end_turn(&turn);
}

// ---- Variables.

static void declare_variables(const Op *op)
{
    for (int i = 0; i < MAX_VARIABLES && op->variables[i]; i++)
        op->variables[i]->length = variable_size(op->variables[i]);
}

// Between Keras's order of a kernel, (taps, in, out), and the arena's, (out, taps, in).
static void reorder_kernel(const Variable *v, float *to, const float *from, bool to_arena)
{
    size_t taps = (size_t)v->dims[0] * (size_t)v->dims[1];
    size_t inputs = (size_t)v->dims[2], outputs = (size_t)v->dims[3];
    for (size_t i = 0; i < taps * inputs; i++)
        for (size_t o = 0; o < outputs; o++) {
            size_t keras = i * outputs + o, arena = o * taps * inputs + i;
            to[to_arena ? arena : keras] = from[to_arena ? keras : arena];
        }
}

static void write_variable(Device *device, const Op *op, const Variable *v, float *arena,
                           const float *from)
{
    (void)op;
    if (v->ndims != 4) {
        write_to_device(device, arena + v->offset, from, v->length * sizeof(float));
        return;
    }
    float *kernel = allocate(v->length, sizeof *kernel);
    reorder_kernel(v, kernel, from, true);
    write_to_device(device, arena + v->offset, kernel, v->length * sizeof(float));
    free(kernel);
}

static void read_variable(Device *device, const Op *op, const Variable *v, const float *arena,
                          float *to)
{
    (void)op;
    if (v->ndims != 4) {
        read_from_device(device, to, arena + v->offset, v->length * sizeof(float));
        return;
    }
    float *kernel = allocate(v->length, sizeof *kernel);
    read_from_device(device, kernel, arena + v->offset, v->length * sizeof(float));
    reorder_kernel(v, to, kernel, false);
    free(kernel);
}

// ---- Batch norm, with what is fused to it. Saved: mean and 1 / sqrt(variance + epsilon).

static void batch_norm_create(OpState *s, OpSizes *sizes)
{
    CHECK(s->op->dropout_rate <= 0 || (s->op->relu && s->op->residual < 0));
    sizes->saved = 2 * (size_t)s->out.channels * sizeof(float);
    sizes->scratch = partial_sums_length(s->out) * sizeof(float);
}

static Norm norm_of(const OpState *s, const Arenas *arenas, const void *x, const float *mean,
                    float dropout_rate, const uint64_t *dropout_key)
{
    return (Norm){.shape = s->out,
                  .relu = s->op->relu,
                  .dropout_rate = dropout_rate,
                  .dropout_key = dropout_key,
                  .x = x,
                  .mean = mean,
                  .inv_std = mean + s->out.channels,
                  .gamma = weight_of(s->op, GAMMA, arenas),
                  .beta = weight_of(s->op, BETA, arenas)};
}

static void batch_norm_forward(OpState *s, const ForwardArgs *a)
{
    const Op *op = s->op;
    NormStatistics statistics = {
        .mean = a->saved,
        .inv_std = (float *)a->saved + s->out.channels,
        .moving_mean = statistic_of(op, MOVING_MEAN, &a->arenas),
        .moving_variance = statistic_of(op, MOVING_VARIANCE, &a->arenas),
        .input_bias = op->input_bias ? a->arenas.weights + op->input_bias->offset : NULL,
    };
    if (a->training)
        launch_batch_statistics(s->out, a->input, a->scratch, &statistics);
    else
        launch_moving_statistics(s->out.channels, &statistics);
    Norm norm = norm_of(s, &a->arenas, a->input, a->saved, a->training ? op->dropout_rate : 0,
                        a->dropout_key);
    launch_norm_forward(&norm, a->residual, a->output);
}

static void batch_norm_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    Norm norm = norm_of(s, &a->arenas, a->input, a->saved, op->dropout_rate, a->dropout_key);
    launch_norm_backward(&norm,
                         &(NormGradients){.output_gradient = a->output_gradient,
                                          .output_gradient2 = a->output_gradient2,
                                          .input_gradient = a->input_gradient,
                                          .gamma_gradient = gradient_of(op, GAMMA, &a->arenas),
                                          .beta_gradient = gradient_of(op, BETA, &a->arenas),
                                          .partial = a->scratch});
}

// ---- Layers that stand alone.

static void relu_forward(OpState *s, const ForwardArgs *a)
{
    launch_relu(s->out.element, a->output, a->input, elements_of(s->out));
}

static void relu_backward(OpState *s, const BackwardArgs *a)
{
    launch_relu_backward(s->out.element, a->output_gradient, a->output, elements_of(s->out));
}

static void dropout_forward(OpState *s, const ForwardArgs *a)
{
    launch_dropout(s->out.element, a->output, a->input, elements_of(s->out),
                   a->training ? s->op->dropout_rate : 0, a->dropout_key);
}

static void dropout_backward(OpState *s, const BackwardArgs *a)
{
    launch_dropout(s->out.element, a->input_gradient, a->output_gradient, elements_of(s->out),
                   s->op->dropout_rate, a->dropout_key);
}

static void add_forward(OpState *s, const ForwardArgs *a)
{
    launch_add(s->out.element, a->output, a->input, a->residual, elements_of(s->out));
}

// The first input's gradient is this gradient, in the same memory.
static void add_backward(OpState *s, const BackwardArgs *a)
{
    copy(a->residual_gradient, a->output_gradient, activation_bytes(s->out));
}

// ---- Pooling and flatten.

static Pool pool_of(const OpState *s)
{
    return (Pool){s->in.element, s->batch, s->op->in, s->op->out, s->op->size, s->op->relu};
}

static void max_pool_forward(OpState *s, const ForwardArgs *a)
{
    Pool pool = pool_of(s);
    launch_max_pool(&pool, a->input, a->output);
}

static void max_pool_backward(OpState *s, const BackwardArgs *a)
{
    Pool pool = pool_of(s);
    if (a->input_gradient)
        launch_max_pool_backward(&pool, a->input, a->output_gradient, a->input_gradient);
}

static int pixels_of(const OpState *s)
{
    return s->op->in.height * s->op->in.width;
}

static void average_forward(OpState *s, const ForwardArgs *a)
{
    launch_average(s->in.element, s->batch, pixels_of(s), s->in.channels, a->input, a->output);
}

static void average_backward(OpState *s, const BackwardArgs *a)
{
    launch_average_backward(s->in.element, s->batch, pixels_of(s), s->in.channels,
                            a->output_gradient, a->input_gradient);
}

static void flatten_forward(OpState *s, const ForwardArgs *a)
{
    launch_copy(s->out.element, a->output, s->in.element, a->input, elements_of(s->out));
}

static void flatten_backward(OpState *s, const BackwardArgs *a)
{
    if (a->input_gradient)
        launch_copy(s->in.element, a->input_gradient, s->out.element, a->output_gradient,
                    elements_of(s->out));
}

// ---- Dense. With bf16 cuBLAS reads copies; saved: that of the kernel, made before the forward
// pass.

// The matrices of a dense layer as cuBLAS reads them.
static size_t matrix_bytes(size_t count)
{
    return image_element() == ELEMENT_BF16 ? aligned_bytes(2 * count) : 0;
}

static const void *matrix(const float *values, size_t count, void *room)
{
    if (image_element() == ELEMENT_FLOAT)
        return values;
    launch_copy(ELEMENT_BF16, room, ELEMENT_FLOAT, values, count);
    return room;
}

static const void *dense_kernel(const Op *op, const Arenas *arenas, const void *saved)
{
    return image_element() == ELEMENT_BF16 ? saved : weight_of(op, KERNEL, arenas);
}

static void dense_create(OpState *s, OpSizes *sizes)
{
    cuda_blas_start(); // takes its memory before activations do
    sizes->saved = matrix_bytes(variable_size(s->op->variables[KERNEL]));
    sizes->scratch = matrix_bytes(elements_of(s->in)) + matrix_bytes(elements_of(s->out)) +
                     partial_sums_length(s->out) * sizeof(float);
}

static void dense_forward(OpState *s, const ForwardArgs *a)
{
    const Op *op = s->op;
    const void *input = matrix(a->input, elements_of(s->in), a->scratch);
    const void *kernel = dense_kernel(op, &a->arenas, a->saved);
    cuda_matrix_multiply(TRANSPOSED_NONE, s->batch, s->out.channels, s->in.channels, input, kernel,
                         a->output);
    if (op->variables[BIAS])
        launch_bias_forward(s->out, a->output, weight_of(op, BIAS, &a->arenas), op->relu);
    else if (op->relu)
        launch_relu(ELEMENT_FLOAT, a->output, a->output, elements_of(s->out));
}

static void dense_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    int inputs = s->in.channels, units = s->out.channels;
    char *scratch = a->scratch, *scratch2 = scratch + matrix_bytes(elements_of(s->in));
    float *partial = (float *)(scratch2 + matrix_bytes(elements_of(s->out)));
    launch_bias_backward(s->out, a->output_gradient, op->relu ? a->output : NULL, partial,
                         op->variables[BIAS] ? gradient_of(op, BIAS, &a->arenas) : NULL);
    const void *input = matrix(a->input, elements_of(s->in), scratch);
    const void *gradient = matrix(a->output_gradient, elements_of(s->out), scratch2);
    cuda_matrix_multiply(TRANSPOSED_A, inputs, units, s->batch, input, gradient,
                         gradient_of(op, KERNEL, &a->arenas));
    const void *kernel = dense_kernel(op, &a->arenas, a->saved);
    if (a->input_gradient)
        cuda_matrix_multiply(TRANSPOSED_B, s->batch, inputs, units, gradient, kernel,
                             a->input_gradient);
}

// ---- Embedding.

static EmbeddingTable table_of(const OpState *s)
{
    return (EmbeddingTable){s->out.element, s->out.rows, s->op->size, s->out.channels};
}

static void embedding_forward(OpState *s, const ForwardArgs *a)
{
    launch_embed(table_of(s), a->input, weight_of(s->op, EMBEDDINGS, &a->arenas), a->output);
}

static void embedding_backward(OpState *s, const BackwardArgs *a)
{
    launch_embed_backward(table_of(s), a->input, a->output_gradient,
                          gradient_of(s->op, EMBEDDINGS, &a->arenas));
}

// ---- Softmax as a layer.

static void softmax_forward(OpState *s, const ForwardArgs *a)
{
    launch_softmax(a->input, a->output, s->batch, s->out.channels);
}

static void softmax_backward(OpState *s, const BackwardArgs *a)
{
    launch_softmax_backward(a->output, a->output_gradient, s->batch, s->out.channels);
}

// ---- The program's own functions, on a copy in the host's memory.

static void call_on_host(const OpState *s, void *to, const void *from,
                         void (*call)(const Op *op, float *values, size_t count))
{
    float *values = allocate(elements_of(s->out), sizeof *values);
    cuda_read(values, from, activation_bytes(s->out));
    call(s->op, values, elements_of(s->out));
    cuda_write(to, values, activation_bytes(s->out));
    free(values);
}

static void custom_forward(OpState *s, const ForwardArgs *a)
{
    call_on_host(s, a->output, a->input, call_custom_forward);
}

static void custom_backward(OpState *s, const BackwardArgs *a)
{
    call_on_host(s, a->output_gradient, a->output_gradient, call_custom_backward);
}

// ---- The table of operations, one row each. Without a function to create it, an operation needs
// nothing but its input and output.

static const struct {
    void (*create)(OpState *, OpSizes *);
    void (*forward)(OpState *, const ForwardArgs *);
    void (*backward)(OpState *, const BackwardArgs *);
} operations[] = {
    [OP_CONV2D] = {cuda_conv2d_create, cuda_conv2d_forward, cuda_conv2d_backward},
    [OP_BATCH_NORM] = {batch_norm_create, batch_norm_forward, batch_norm_backward},
    [OP_RELU] = {NULL, relu_forward, relu_backward},
    [OP_DROPOUT] = {NULL, dropout_forward, dropout_backward},
    [OP_ADD] = {NULL, add_forward, add_backward},
    [OP_MAX_POOL] = {NULL, max_pool_forward, max_pool_backward},
    [OP_GLOBAL_AVERAGE_POOL] = {NULL, average_forward, average_backward},
    [OP_FLATTEN] = {NULL, flatten_forward, flatten_backward},
    [OP_DENSE] = {dense_create, dense_forward, dense_backward},
    [OP_EMBEDDING] = {NULL, embedding_forward, embedding_backward},
    [OP_SOFTMAX] = {NULL, softmax_forward, softmax_backward},
    [OP_CUSTOM] = {NULL, custom_forward, custom_backward},
};

static ActivationShape activation_of(Shape shape, int batch, bool floats)
{
    return (ActivationShape){floats ? ELEMENT_FLOAT : image_element(),
                             batch * shape.height * shape.width, shape.channels};
}

static OpState *op_create(Device *device, const Op *op, int batch, OpSizes *sizes)
{
    CudaTurn turn = cuda_take_turn(device);
    OpState *s = allocate(1, sizeof *s);
    *s = (OpState){.device = device,
                   .op = op,
                   .batch = batch,
                   .in = activation_of(op->in, batch, op->flat || op->input_is_image),
                   .out = activation_of(op->out, batch, op_writes_vector(op))};
    *sizes = (OpSizes){.input = activation_bytes(s->in), .output = activation_bytes(s->out)};
    if (operations[op->kind].create)
        operations[op->kind].create(s, sizes);
    cuda_end_turn(&turn);
    return s;
}

static void op_free(OpState *s)
{
    CudaTurn turn = cuda_take_turn(s->device);
    if (s->op->kind == OP_CONV2D)
        cuda_conv2d_free(s);
    cuda_end_turn(&turn);
    free(s);
}

static void op_forward(OpState *s, const ForwardArgs *a)
{
    CudaTurn turn = cuda_take_turn(s->device);
    operations[s->op->kind].forward(s, a);
    cuda_end_turn(&turn);
}

// Batch norm adds the second part of the gradient in the same pass over memory.
static void op_backward(OpState *s, const BackwardArgs *a)
{
    CudaTurn turn = cuda_take_turn(s->device);
    if (a->output_gradient2 && s->op->kind != OP_BATCH_NORM)
        launch_add(s->out.element, a->output_gradient, a->output_gradient, a->output_gradient2,
                   elements_of(s->out));
    operations[s->op->kind].backward(s, a);
    cuda_end_turn(&turn);
}

// Copies by one launch the kernels that bf16 reads as copies, or the gradients of those that cuDNN
// has left in the copies' place.
static void convert_kernels(Device *device, const Operations *ops, bool gradients)
{
    CudaTurn turn = cuda_take_turn(device);
    ArrayCopy *copies = allocate((size_t)ops->count, sizeof *copies);
    int count = 0;
    for (int i = 0; i < ops->count; i++) {
        const OpState *s = ops->states[i];
        bool dense = s->op->kind == OP_DENSE && image_element() == ELEMENT_BF16;
        bool convolution = s->op->kind == OP_CONV2D && cuda_conv2d_is_converted(s);
        if (!convolution && (!dense || gradients))
            continue;
        void *own = ops->block + ops->saved[i];
        ArrayCopy *copy = &copies[count++];
        copy->to = gradients ? gradient_of(s->op, KERNEL, &ops->arenas) : own;
        copy->from = gradients ? own : (const void *)weight_of(s->op, KERNEL, &ops->arenas);
        copy->length = variable_size(s->op->variables[KERNEL]);
    }
    launch_copies(gradients ? ELEMENT_FLOAT : ELEMENT_BF16,
                  gradients ? ELEMENT_BF16 : ELEMENT_FLOAT, copies, count);
    free(copies);
    cuda_end_turn(&turn);
}

static void begin_forward(Device *device, const Operations *ops)
{
    convert_kernels(device, ops, false);
}

static void end_backward(Device *device, const Operations *ops)
{
    convert_kernels(device, ops, true);
}

// ---- Loss and optimizers.

static void softmax(Device *device, const float *logits, float *probabilities, int batch,
                    int classes)
{
    CudaTurn turn = cuda_take_turn(device);
    launch_softmax(logits, probabilities, batch, classes);
    cuda_end_turn(&turn);
}

static void cross_entropy(Device *device, const float *logits, const int *labels, float *gradient,
                          int batch, int classes, Metrics *metrics)
{
    CudaTurn turn = cuda_take_turn(device);
    launch_cross_entropy(logits, labels, gradient, batch, classes, metrics);
    cuda_end_turn(&turn);
}

static void update(Device *device, const Update *rule, const Segment *segments, int count)
{
    CudaTurn turn = cuda_take_turn(device);
    launch_update(rule, segments, count);
    cuda_end_turn(&turn);
}

// A buffer of at least so many floats, kept for the next call.
static float *exchange_room(size_t floats)
{
    CudaParts *parts = cuda_parts();
    if (floats > parts->exchange_floats) {
        cuda_release(parts->exchange);
        parts->exchange = cuda_allocate(floats * sizeof *parts->exchange);
        parts->exchange_floats = floats;
    }
    return parts->exchange;
}

// Lets the current GPU reach the memory of another one directly, if the machine can do that. Else
// copies go through the host's memory.
static void reach(const Device *own, const Device *other)
{
    CudaParts *parts = cuda_parts();
    int number = other->gpu_number, can = 0;
    if (number == own->gpu_number || number >= 64 || (parts->asked >> number & 1))
        return;
    parts->asked |= (uint64_t)1 << number;
    CUDA(cudaDeviceCanAccessPeer(&can, own->gpu_number, number));
    cudaError_t error = can ? cudaDeviceEnablePeerAccess(number, 0) : cudaSuccess;
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError(); // it has been seen: later calls must not find it
    else
        CUDA(error);
}

static void copy_between(const Device *to_device, float *to, const Device *from_device,
                         const float *from, size_t count)
{
    CUDA(cudaMemcpyPeerAsync(to, to_device->gpu_number, from, from_device->gpu_number,
                             count * sizeof *to, cuda_stream()));
}

// In buffers of its own: a part of the sum, and the sum.
static void add_up(Device *device, const Addend *addends, int count, size_t begin, size_t end)
{
    CudaTurn turn = cuda_take_turn(device);
    size_t floats = end - begin;
    float *part = exchange_room(2 * floats), *sum = part + floats;
    CUDA(cudaMemsetAsync(sum, 0, floats * sizeof *sum, cuda_stream()));
    for (int i = 0; i < count; i++) {
        reach(device, addends[i].device);
        if (addends[i].factor == 0)
            continue;
        copy_between(device, part, addends[i].device, addends[i].values + begin, floats);
        launch_scale(part, ELEMENT_FLOAT, part, floats, addends[i].factor);
        launch_add(ELEMENT_FLOAT, sum, sum, part, floats);
    }
    for (int i = 0; i < count; i++)
        copy_between(addends[i].device, addends[i].values + begin, device, sum, floats);
    cuda_end_turn(&turn);
}

static void mark(Device *device)
{
    CudaTurn turn = cuda_take_turn(device);
    cuda_mark();
    cuda_end_turn(&turn);
}

static void follow(Device *device, const Device *other)
{
    CudaTurn turn = cuda_take_turn(device);
    cuda_follow(other);
    cuda_end_turn(&turn);
}

const Backend backend_cuda = {
    .name = "gpu",
    .allocate = allocate_on_device,
    .release = release,
    .write = write_to_device,
    .read = read_from_device,
    .declare_variables = declare_variables,
    .write_variable = write_variable,
    .read_variable = read_variable,
    .op_create = op_create,
    .op_free = op_free,
    .forward = op_forward,
    .backward = op_backward,
    .begin_forward = begin_forward,
    .end_backward = end_backward,
    .softmax = softmax,
    .cross_entropy = cross_entropy,
    .update = update,
    .add_up = add_up,
    .mark = mark,
    .follow = follow,
    .record = cuda_record,
    .play = cuda_play,
    .forget = cuda_forget,
};
