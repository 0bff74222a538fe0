// The CPU backend: oneDNN computes convolutions, matrix products and changes of layout;
// winograd_set.c the 3x3 convolutions where it is quicker, and passes_set.c the operations between
// them (cpu_convolution.c says how the gradient of a kernel is computed).
//
// Between the first convolution and the last pooling, activations stay in oneDNN's blocked layout
// of 16 or 8 channels side by side (in NHWC where AMX computes), so that nothing is reordered on
// the way. Kernels live in the arena in the layout that the convolutions of floats read; an
// optimizer does not care which weight stands where.

#include "cpu/backend_cpu_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "backend/constants.h"
#include "base/error.h"
#include "base/memory.h"
#include "observe/trace.h"

// Memory and copies.

#define HUGE_PAGE ((size_t)2 << 20)

// Large blocks use huge pages, for fewer TLB misses. The kernel may refuse.
static void *cpu_allocate(Device *device, size_t bytes)
{
    (void)device;
    if (bytes < HUGE_PAGE)
        return allocate(1, bytes);
    size_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, rounded);
    if (!memory)
        die("out of memory: there are no %zu MiB left; a smaller --batch-size or --width "
            "needs less",
            rounded >> 20);
    madvise(memory, rounded, MADV_HUGEPAGE);
    return memset(memory, 0, rounded);
}

static void cpu_release(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

static void cpu_copy(Device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
}

// Variables.

static void declare_variables(const Op *op)
{
    for (int i = 0; i < MAX_VARIABLES && op->variables[i]; i++) {
        Variable *v = op->variables[i];
        v->length = 1;
        for (int d = 0; d < v->ndims; d++)
            v->length *= (size_t)v->dims[d];
    }
    if (op->kind == OP_CONV2D) {
        Desc kernel = kernel_desc(op, false, kernel_tag(op));
        op->variables[KERNEL]->length = desc_bytes(kernel) / sizeof(float);
        desc_free(kernel);
    } else if (op->kind == OP_BATCH_NORM && !op->flat) {
        for (int i = 0; i < MAX_VARIABLES; i++)
            op->variables[i]->length = (size_t)padded(op->in.channels);
    }
}

// Copies a convolution's kernel between the arena and Keras's order (height, width, in, out).
static void copy_kernel(Device *device, const Op *op, void *arena, void *keras, bool to_arena)
{
    Desc inside = kernel_desc(op, false, kernel_tag(op)),
         outside = kernel_desc(op, false, dnnl_hwio);
    const OneDnn *dnn = onednn_of(device);
    Call call = to_arena ? call_reorder(dnn, outside, inside) : call_reorder(dnn, inside, outside);
    void *memory[] = {to_arena ? keras : arena, to_arena ? arena : keras};
    call_run(&call, NULL, memory);
    call_free(&call);
    desc_free(inside);
    desc_free(outside);
}

static size_t real_length(const Variable *v)
{
    return v->ndims == 1 ? (size_t)v->dims[0] : v->length;
}

static void write_variable(Device *device, const Op *op, const Variable *v, float *arena,
                           const float *from)
{
    if (v->ndims == 4)
        copy_kernel(device, op, arena + v->offset, unconst(from), true);
    else
        memcpy(arena + v->offset, from, real_length(v) * sizeof(float));
}

static void read_variable(Device *device, const Op *op, const Variable *v, const float *arena,
                          float *to)
{
    if (v->ndims == 4)
        copy_kernel(device, op, unconst(arena + v->offset), to, false);
    else
        memcpy(to, arena + v->offset, real_length(v) * sizeof(float));
}

// Batch norm, with its fused layers. Saved: mean and 1 / sqrt(variance + epsilon) per channel.

static int norm_channels(const OpState *s)
{
    return s->out.blocks * s->out.lanes;
}

static void batch_norm_create(OpState *s, OpSizes *sizes)
{
    CHECK(s->op->dropout_rate <= 0 || (s->op->relu && s->op->residual < 0));
    sizes->input = sizes->output = layout_bytes(s->out);
    sizes->saved = 2 * (size_t)norm_channels(s) * sizeof(float);
    sizes->scratch = (norm_partial_size(s->out) + (size_t)norm_channels(s)) * sizeof(float);
}

static void inverse_deviation(float *inv_std, const float *variance, int channels)
{
    for (int c = 0; c < channels; c++)
        inv_std[c] = (float)(1 / sqrt((double)variance[c] + NORM_EPSILON));
}

static void move_towards(float *moving, const float *batch, double factor, int channels)
{
    for (int c = 0; c < channels; c++)
        moving[c] = (float)(NORM_MOMENTUM * (double)moving[c] +
                            (1 - NORM_MOMENTUM) * factor * (double)batch[c]);
}

// Statistics of this batch; the moving variance gets the unbiased one.
static void batch_statistics(const OpState *s, const ForwardArgs *a, float *mean, float *inv_std)
{
    int channels = norm_channels(s);
    float *variance = (float *)a->scratch + norm_partial_size(s->out);
    passes_of(s->out)->norm_statistics(s->out, a->input, a->scratch, mean, variance);
    inverse_deviation(inv_std, variance, channels);
    double count = (double)s->batch * s->out.pixels;
    double unbiased = count > 1 ? count / (count - 1) : 1;
    move_towards(statistic(s->op, MOVING_MEAN, &a->arenas), mean, 1, channels);
    move_towards(statistic(s->op, MOVING_VARIANCE, &a->arenas), variance, unbiased, channels);
}

static void moving_statistics(const OpState *s, const ForwardArgs *a, float *mean, float *inv_std)
{
    int channels = norm_channels(s);
    memcpy(mean, statistic(s->op, MOVING_MEAN, &a->arenas), (size_t)channels * sizeof *mean);
    inverse_deviation(inv_std, statistic(s->op, MOVING_VARIANCE, &a->arenas), channels);
}

static void batch_norm_forward(OpState *s, const ForwardArgs *a)
{
    const Op *op = s->op;
    float *mean = a->saved, *inv_std = mean + norm_channels(s);
    if (a->training)
        batch_statistics(s, a, mean, inv_std);
    else
        moving_statistics(s, a, mean, inv_std);
    passes_of(s->out)->norm_forward(&(NormForward){
        .layout = s->out,
        .relu = op->relu,
        .dropout_rate = a->training ? op->dropout_rate : 0,
        .dropout_key = op->dropout_rate > 0 ? *a->dropout_key : 0,
        .x = a->input,
        .mean = mean,
        .inv_std = inv_std,
        .gamma = weight(op, GAMMA, &a->arenas),
        .beta = weight(op, BETA, &a->arenas),
        .residual = a->residual,
        .output = a->output,
    });
}

// A variable is longer than the kernels' channels if it was padded to blocks.
static void clear_padding(const OpState *s, int index, const Arenas *arenas)
{
    size_t channels = (size_t)norm_channels(s), length = s->op->variables[index]->length;
    memset(gradient(s->op, index, arenas) + channels, 0, (length - channels) * sizeof(float));
}

static void batch_norm_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    const float *mean = a->saved;
    passes_of(s->out)->norm_backward(&(NormBackward){
        .layout = s->out,
        .relu = op->relu,
        .dropout_rate = op->dropout_rate,
        .x = a->input,
        .mean = mean,
        .inv_std = mean + norm_channels(s),
        .gamma = weight(op, GAMMA, &a->arenas),
        .beta = weight(op, BETA, &a->arenas),
        .output = a->output,
        .output_gradient = a->output_gradient,
        .output_gradient2 = a->output_gradient2,
        .input_gradient = a->input_gradient,
        .gamma_gradient = gradient(op, GAMMA, &a->arenas),
        .beta_gradient = gradient(op, BETA, &a->arenas),
        .partial = a->scratch,
    });
    clear_padding(s, GAMMA, &a->arenas);
    clear_padding(s, BETA, &a->arenas);
}

// Layers that are not fused.

static void elementwise_create(OpState *s, OpSizes *sizes)
{
    sizes->input = sizes->output = layout_bytes(s->out);
}

static void relu_forward(OpState *s, const ForwardArgs *a)
{
    passes_of(s->out)->relu(a->output, a->input, layout_elements(s->out));
}

static void relu_backward(OpState *s, const BackwardArgs *a)
{
    passes_of(s->out)->relu_backward(a->output_gradient, a->output, layout_elements(s->out));
}

static void dropout_forward(OpState *s, const ForwardArgs *a)
{
    float rate = a->training ? s->op->dropout_rate : 0;
    passes_of(s->out)->dropout(a->output, a->input, layout_elements(s->out), rate, *a->dropout_key);
}

static void dropout_backward(OpState *s, const BackwardArgs *a)
{
    passes_of(s->out)->dropout(a->input_gradient, a->output_gradient, layout_elements(s->out),
                               s->op->dropout_rate, *a->dropout_key);
}

static void add_forward(OpState *s, const ForwardArgs *a)
{
    passes_of(s->out)->add(a->output, a->input, a->residual, layout_elements(s->out));
}

// The first input's gradient is this gradient, in the same memory.
static void add_backward(OpState *s, const BackwardArgs *a)
{
    memcpy(a->residual_gradient, a->output_gradient, layout_bytes(s->out));
}

// Max pooling. Saved: the index of each window's maximum.

static void max_pool_create(OpState *s, OpSizes *sizes)
{
    CHECK(s->op->size <= MAX_POOL / s->op->size);
    sizes->input = layout_bytes(s->in);
    sizes->output = layout_bytes(s->out);
    sizes->saved = layout_elements(s->out);
}

static MaxPool max_pool_of(const OpState *s)
{
    const Op *op = s->op;
    return (MaxPool){
        s->batch * s->in.blocks, op->in.height, op->in.width, s->in.lanes, op->size, op->relu};
}

static void max_pool_forward(OpState *s, const ForwardArgs *a)
{
    MaxPool pool = max_pool_of(s);
    passes_of(s->out)->max_pool(&pool, a->input, a->output, a->saved);
}

static void max_pool_backward(OpState *s, const BackwardArgs *a)
{
    MaxPool pool = max_pool_of(s);
    if (a->input_gradient)
        passes_of(s->out)->max_pool_backward(&pool, a->output_gradient, a->saved,
                                             a->input_gradient);
}

// Global average pooling.

static void global_average_pool_create(OpState *s, OpSizes *sizes)
{
    sizes->input = layout_bytes(s->in);
    sizes->output = (size_t)s->batch * (size_t)s->op->out.channels * sizeof(float);
}

static void global_average_pool_forward(OpState *s, const ForwardArgs *a)
{
    passes_of(s->in)->pool_forward(s->in, s->op->in.channels, a->input, a->output);
}

static void global_average_pool_backward(OpState *s, const BackwardArgs *a)
{
    passes_of(s->in)->pool_backward(s->in, s->op->in.channels, a->output_gradient,
                                    a->input_gradient);
}

// Embedding.

static void embedding_create(OpState *s, OpSizes *sizes)
{
    sizes->input = (size_t)s->batch * (size_t)s->op->in.width * sizeof(float);
    sizes->output = layout_bytes(s->out);
    sizes->scratch = s->op->variables[EMBEDDINGS]->length * sizeof(float);
}

static void embedding_forward(OpState *s, const ForwardArgs *a)
{
    passes_of(s->out)->embed(s->out, s->op->out.channels, a->input,
                             weight(s->op, EMBEDDINGS, &a->arenas), a->output);
}

static void embedding_backward(OpState *s, const BackwardArgs *a)
{
    passes_of(s->out)->embed_backward(s->out, s->op->out.channels, s->op->size, a->input,
                                      a->output_gradient, gradient(s->op, EMBEDDINGS, &a->arenas),
                                      a->scratch);
}

// The rows of the loss and of softmax are short: one thread is enough.

static int most_likely(const float *row, int classes)
{
    int best = 0;
    for (int c = 1; c < classes; c++)
        if (row[c] > row[best])
            best = c;
    return best;
}

// Writes the softmax of one row, shifted by its maximum against overflow; returns log of the sum of
// exponentials.
static double softmax_row(const float *logits, float *probabilities, int classes)
{
    double maximum = (double)logits[most_likely(logits, classes)], sum = 0;
    for (int c = 0; c < classes; c++)
        sum += exp((double)logits[c] - maximum);
    for (int c = 0; c < classes; c++)
        probabilities[c] = (float)(exp((double)logits[c] - maximum) / sum);
    return maximum + log(sum);
}

static void softmax(Device *device, const float *logits, float *probabilities, int batch,
                    int classes)
{
    (void)device;
    for (int row = 0; row < batch; row++)
        softmax_row(logits + row * classes, probabilities + row * classes, classes);
}

static void softmax_forward(OpState *s, const ForwardArgs *a)
{
    softmax(NULL, a->input, a->output, s->batch, s->op->out.channels);
}

// dx = p (dy - sum(p dy)), over dy.
static void softmax_backward(OpState *s, const BackwardArgs *a)
{
    int classes = s->op->out.channels;
    for (int row = 0; row < s->batch; row++) {
        const float *p = (const float *)a->output + row * classes;
        float *gradient = (float *)a->output_gradient + row * classes;
        double sum = 0;
        for (int c = 0; c < classes; c++)
            sum += (double)p[c] * (double)gradient[c];
        for (int c = 0; c < classes; c++)
            gradient[c] = (float)((double)p[c] * ((double)gradient[c] - sum));
    }
}

// The program's own functions, in the place of the output and of its gradient.

static void custom_forward(OpState *s, const ForwardArgs *a)
{
    memcpy(a->output, a->input, layout_bytes(s->out));
    call_custom_forward(s->op, a->output, layout_elements(s->out));
}

static void custom_backward(OpState *s, const BackwardArgs *a)
{
    call_custom_backward(s->op, a->output_gradient, layout_elements(s->out));
}

// One row of functions per operation.
static const struct {
    void (*create)(OpState *, OpSizes *);
    void (*forward)(OpState *, const ForwardArgs *);
    void (*backward)(OpState *, const BackwardArgs *);
} operations[] = {
    [OP_CONV2D] = {conv2d_create, conv2d_forward, conv2d_backward},
    [OP_BATCH_NORM] = {batch_norm_create, batch_norm_forward, batch_norm_backward},
    [OP_RELU] = {elementwise_create, relu_forward, relu_backward},
    [OP_DROPOUT] = {elementwise_create, dropout_forward, dropout_backward},
    [OP_ADD] = {elementwise_create, add_forward, add_backward},
    [OP_MAX_POOL] = {max_pool_create, max_pool_forward, max_pool_backward},
    [OP_GLOBAL_AVERAGE_POOL] = {global_average_pool_create, global_average_pool_forward,
                                global_average_pool_backward},
    [OP_FLATTEN] = {flatten_create, flatten_forward, flatten_backward},
    [OP_DENSE] = {dense_create, dense_forward, dense_backward},
    [OP_EMBEDDING] = {embedding_create, embedding_forward, embedding_backward},
    [OP_SOFTMAX] = {elementwise_create, softmax_forward, softmax_backward},
    [OP_CUSTOM] = {elementwise_create, custom_forward, custom_backward},
};

static OpState *op_create(Device *device, const Op *op, int batch, OpSizes *sizes)
{
    OpState *s = allocate(1, sizeof *s);
    bool bfloat16 = device->precision == PRECISION_BF16;
    *s = (OpState){.dnn = onednn_of(device),
                   .op = op,
                   .batch = batch,
                   .bfloat16 = bfloat16,
                   .in = layout_of(op->in, batch, op->flat, bfloat16),
                   .out = layout_of(op->out, batch, op_writes_vector(op), bfloat16)};
    *sizes = (OpSizes){0};
    operations[op->kind].create(s, sizes);
    return s;
}

static void op_free(OpState *s)
{
    call_free(&s->forward);
    call_free(&s->backward_input);
    call_free(&s->backward_kernel);
    call_free(&s->to_bfloat16);
    call_free(&s->to_arena);
    free(s);
}

static void op_forward(OpState *s, const ForwardArgs *args)
{
    operations[s->op->kind].forward(s, args);
}

// Batch norm adds the second part of the gradient in the same pass over memory.
static void op_backward(OpState *s, const BackwardArgs *args)
{
    if (args->output_gradient2 && s->op->kind != OP_BATCH_NORM)
        passes_of(s->out)->add(args->output_gradient, args->output_gradient, args->output_gradient2,
                               layout_elements(s->out));
    operations[s->op->kind].backward(s, args);
}

static void cross_entropy(Device *device, const float *logits, const int *labels, float *gradient,
                          int batch, int classes, Metrics *metrics)
{
    (void)device;
    for (int row = 0; row < batch; row++) {
        const float *z = logits + row * classes;
        float *g = gradient + row * classes;
        double log_sum = softmax_row(z, g, classes);
        metrics->loss += log_sum - (double)z[labels[row]];
        metrics->correct += most_likely(z, classes) == labels[row];
        g[labels[row]] -= 1;
        for (int c = 0; c < classes; c++)
            g[c] /= (float)batch;
    }
    metrics->images += batch;
    metrics->batches++;
    metrics->finite += isfinite(metrics->loss); // once it is not, it remains so
}

static void update(Device *device, const Update *rule, const Segment *segments, int count)
{
    (void)device;
    passes()->update(rule, segments, count);
}

enum { BLOCK = 2048 }; // floats, which stay in the cache

static void add_block(const Addend *addends, int count, size_t begin, size_t length)
{
    float sum[BLOCK] = {0};
    for (int i = 0; i < count; i++) {
        const float *values = addends[i].values + begin;
        float factor = addends[i].factor;
        for (size_t k = 0; k < length && factor != 0; k++)
            sum[k] += factor * values[k];
    }
    for (int i = 0; i < count; i++)
        memcpy(addends[i].values + begin, sum, length * sizeof *sum);
}

static void add_up(Device *device, const Addend *addends, int count, size_t begin, size_t end)
{
    (void)device;
#pragma omp parallel for schedule(static)
    for (size_t b = begin; b < end; b += BLOCK)
        add_block(addends, count, b, end - b < BLOCK ? end - b : BLOCK);
}

const Backend backend_cpu = {
    .name = "cpu",
    .allocate = cpu_allocate,
    .release = cpu_release,
    .write = cpu_copy,
    .read = cpu_copy,
    .declare_variables = declare_variables,
    .write_variable = write_variable,
    .read_variable = read_variable,
    .op_create = op_create,
    .op_free = op_free,
    .forward = op_forward,
    .backward = op_backward,
    .softmax = softmax,
    .cross_entropy = cross_entropy,
    .update = update,
    .add_up = add_up,
};
