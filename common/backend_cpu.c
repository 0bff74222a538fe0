// The CPU backend: oneDNN computes convolutions, pooling, matrix products and changes of layout;
// passes.c computes what stands between them.
//
// Between the first convolution and the last pooling, activations stay in oneDNN's blocked layout
// of 16 or 8 channels side by side, so that nothing is reordered on the way. Kernels live in the
// arena in the layout that the convolutions read; an optimizer does not care which weight stands
// where.

#include "backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "device.h"
#include "onednn.h"
#include "passes.h"
#include "util.h"

#define NORM_MOMENTUM 0.99
#define NORM_EPSILON  1e-3

struct OpState {
    const Op *op;
    int batch;
    Layout in, out; // of the activations
    Call forward, backward_input, backward_kernel;
};

static const Passes *passes(void)
{
#ifndef GENERIC_ONLY
    static const Passes *chosen;
    if (!chosen)
        chosen =
            onednn_has_avx2() && __builtin_cpu_supports("fma") ? &passes_avx2 : &passes_generic;
    return chosen;
#else
    return &passes_generic;
#endif
}

// Channels side by side in the blocked layout.
static int lanes(void)
{
    return onednn_has_avx512() ? 16 : 8;
}

static int padded(int channels)
{
    return (channels + lanes() - 1) / lanes() * lanes();
}

static Layout layout_of(Shape shape, int batch, bool flat)
{
    if (flat)
        return (Layout){batch, 1, 1, shape.channels};
    return (Layout){batch, padded(shape.channels) / lanes(), shape.height * shape.width, lanes()};
}

static size_t layout_floats(Layout l)
{
    return (size_t)l.batch * (size_t)l.blocks * (size_t)l.pixels * (size_t)l.lanes;
}

static Desc activation_desc(Shape shape, int batch, dnnl_format_tag_t tag)
{
    int dims[] = {batch, shape.channels, shape.height, shape.width};
    return desc_create(4, dims, tag);
}

static dnnl_format_tag_t blocked_tag(void)
{
    return lanes() == 16 ? dnnl_nChw16c : dnnl_nChw8c;
}

// Images come as NHWC; with one channel that is NCHW as well, which oneDNN's first-layer kernels
// want.
static dnnl_format_tag_t image_tag(Shape shape)
{
    return shape.channels == 1 ? dnnl_nchw : dnnl_nhwc;
}

static dnnl_format_tag_t input_tag(const Op *op)
{
    return op->input_is_image ? image_tag(op->in) : blocked_tag();
}

// A first layer of few channels is computed without padding them to a block.
static bool few_channels(const Op *op)
{
    return op->input_is_image && op->in.channels <= 3;
}

static Desc kernel_desc(const Op *op, dnnl_format_tag_t tag)
{
    int dims[] = {op->out.channels, op->in.channels, op->size, op->size};
    return desc_create(4, dims, tag);
}

static dnnl_format_tag_t kernel_tag(const Op *op)
{
    if (few_channels(op))
        return lanes() == 16 ? dnnl_Ohwi16o : dnnl_Ohwi8o;
    return lanes() == 16 ? dnnl_OIhw16i16o : dnnl_OIhw8i8o;
}

// oneDNN's interface takes what it only reads as a pointer to non-const.
static void *unconst(const void *memory)
{
    return (void *)(uintptr_t)memory;
}

// Memory and copies.

#define HUGE_PAGE ((size_t)2 << 20)

// Large blocks ask for huge pages: fewer misses when addresses are translated. A wish that the
// kernel may refuse.
static void *cpu_allocate(size_t bytes)
{
    if (bytes < HUGE_PAGE)
        return allocate(1, bytes);
    size_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, rounded);
    if (!memory)
        die("out of memory: there are no %zu MiB left; a smaller --batch-size or --width needs less",
            rounded >> 20);
    madvise(memory, rounded, MADV_HUGEPAGE);
    return memset(memory, 0, rounded);
}

static void cpu_copy(void *to, const void *from, size_t bytes)
{
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
        Desc kernel = kernel_desc(op, kernel_tag(op));
        op->variables[KERNEL]->length = desc_bytes(kernel) / sizeof(float);
        desc_free(kernel);
    } else if (op->kind == OP_BATCH_NORM && !op->flat) {
        for (int i = 0; i < MAX_VARIABLES; i++)
            op->variables[i]->length = (size_t)padded(op->in.channels);
    }
}

// Copies a convolution's kernel between the arena and Keras's order (height, width, in, out).
static void copy_kernel(const Op *op, void *arena, void *keras, bool to_arena)
{
    Desc inside = kernel_desc(op, kernel_tag(op)), outside = kernel_desc(op, dnnl_hwio);
    Call call = to_arena ? call_reorder(outside, inside) : call_reorder(inside, outside);
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

static void write_variable(const Op *op, const Variable *v, float *arena, const float *from)
{
    if (v->ndims == 4)
        copy_kernel(op, arena + v->offset, unconst(from), true);
    else
        memcpy(arena + v->offset, from, real_length(v) * sizeof(float));
}

static void read_variable(const Op *op, const Variable *v, const float *arena, float *to)
{
    if (v->ndims == 4)
        copy_kernel(op, unconst(arena + v->offset), to, false);
    else
        memcpy(to, arena + v->offset, real_length(v) * sizeof(float));
}

static const float *weight(const Op *op, int index, const Arenas *arenas)
{
    return arenas->weights + op->variables[index]->offset;
}

static float *gradient(const Op *op, int index, const Arenas *arenas)
{
    return arenas->gradients + op->variables[index]->offset;
}

static float *statistic(const Op *op, int index, const Arenas *arenas)
{
    return arenas->statistics + op->variables[index]->offset;
}

// Convolution.

// The three directions of a convolution differ only in how they are described.
typedef dnnl_primitive_desc_t (*Describe)(const Convolution *, dnnl_primitive_desc_t hint);

static dnnl_primitive_desc_t describe_forward(const Convolution *c, dnnl_primitive_desc_t hint)
{
    (void)hint;
    return convolution_forward(c);
}

// Asks for an implementation that works on the layouts that we have. Where oneDNN has only its slow
// reference for them (old instruction sets), lets it choose the layouts, and the call reorders.
static dnnl_primitive_desc_t describe(Describe how, const Convolution *wish, const Op *op,
                                      int batch, dnnl_primitive_desc_t hint)
{
    dnnl_primitive_desc_t pd = how(wish, hint);
    if (pd && !is_reference(pd))
        return pd;
    Convolution any = *wish;
    any.input = activation_desc(op->in, batch, dnnl_format_tag_any);
    any.output = activation_desc(op->out, batch, dnnl_format_tag_any);
    any.algorithm = dnnl_convolution_direct;
    dnnl_primitive_desc_t other = how(&any, hint);
    desc_free(any.input);
    desc_free(any.output);
    if (!other)
        return pd;
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return other;
}

// The layouts around one convolution.
typedef struct {
    Desc image; // what the caller has; differs from `input` for a model's first layer
    Desc input, output;
    Desc kernel; // in the arena
    Desc any;    // the kernel, as the primitive likes it
    Desc bias;
} ConvolutionDescs;

static ConvolutionDescs convolution_descs(const Op *op, int batch)
{
    return (ConvolutionDescs){
        .image = activation_desc(op->in, batch, input_tag(op)),
        .input = activation_desc(op->in, batch, few_channels(op) ? dnnl_nchw : blocked_tag()),
        .output = activation_desc(op->out, batch, blocked_tag()),
        .kernel = kernel_desc(op, kernel_tag(op)),
        .any = kernel_desc(op, dnnl_format_tag_any),
        .bias = desc_create(1, &op->out.channels, dnnl_a),
    };
}

static void convolution_descs_free(ConvolutionDescs *d)
{
    desc_free(d->image);
    desc_free(d->input);
    desc_free(d->output);
    desc_free(d->kernel);
    desc_free(d->any);
    desc_free(d->bias);
}

static Call forward_call(dnnl_primitive_desc_t pd, const ConvolutionDescs *d)
{
    PortSpec ports[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, d->image, false},
                        {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, d->kernel, false},
                        {DNNL_ARG_BIAS, dnnl_query_weights_md, 1, d->bias, false},
                        {DNNL_ARG_DST, dnnl_query_dst_md, 0, d->output, true}};
    return call_prepare(pd, ports, 4);
}

static Call backward_input_call(dnnl_primitive_desc_t pd, const ConvolutionDescs *d)
{
    PortSpec ports[] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, d->output, false},
                        {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, d->kernel, false},
                        {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, d->input, true}};
    return call_prepare(pd, ports, 3);
}

static Call backward_kernel_call(dnnl_primitive_desc_t pd, const ConvolutionDescs *d, bool bias)
{
    PortSpec ports[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, d->image, false},
                        {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, d->output, false},
                        {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, d->kernel, true},
                        {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1, d->bias, true}};
    return call_prepare(pd, ports, bias ? 4 : 3);
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void conv2d_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    ConvolutionDescs d = convolution_descs(op, s->batch);
    bool train_bias = !op->variables[BIAS]->no_gradient;
    // "auto" is Winograd (Lavin and Gray, 2016) where oneDNN finds that it pays.
    Convolution c = {.algorithm =
                         few_channels(op) ? dnnl_convolution_direct : dnnl_convolution_auto,
                     .kernel_size = op->size,
                     .relu = op->relu,
                     .input = d.input,
                     .kernel = d.any,
                     .bias = d.bias,
                     .output = d.output};
    dnnl_primitive_desc_t forward = describe(describe_forward, &c, op, s->batch, NULL);
    if (!op->input_is_image)
        s->backward_input = backward_input_call(
            describe(convolution_backward_input, &c, op, s->batch, forward), &d);
    c.bias = train_bias ? d.bias : NULL;
    s->backward_kernel = backward_kernel_call(
        describe(convolution_backward_kernel, &c, op, s->batch, forward), &d, train_bias);
    s->forward = forward_call(forward, &d);

    sizes->input = desc_bytes(d.image);
    sizes->output = desc_bytes(d.output);
    sizes->scratch = largest(s->forward.scratch_bytes, largest(s->backward_input.scratch_bytes,
                                                               s->backward_kernel.scratch_bytes));
    convolution_descs_free(&d);
}

static void conv2d_forward(OpState *s, const ForwardArgs *a)
{
    void *memory[] = {unconst(a->input), unconst(weight(s->op, KERNEL, &a->arenas)),
                      unconst(weight(s->op, BIAS, &a->arenas)), a->output};
    call_run(&s->forward, a->scratch, memory);
}

static void conv2d_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    if (op->relu)
        passes()->relu_backward(a->output_gradient, a->output, layout_floats(s->out));
    void *kernel_memory[] = {unconst(a->input), a->output_gradient,
                             gradient(op, KERNEL, &a->arenas), gradient(op, BIAS, &a->arenas)};
    call_run(&s->backward_kernel, a->scratch, kernel_memory);
    if (a->input_gradient) {
        void *memory[] = {a->output_gradient, unconst(weight(op, KERNEL, &a->arenas)),
                          a->input_gradient};
        call_run(&s->backward_input, a->scratch, memory);
    }
}

// Batch norm, with what is fused to it. Saved: mean and 1 / sqrt(variance + epsilon) per channel.

static int norm_channels(const OpState *s)
{
    return s->out.blocks * s->out.lanes;
}

static void batch_norm_create(OpState *s, OpSizes *sizes)
{
    sizes->input = sizes->output = layout_floats(s->out) * sizeof(float);
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
    passes()->norm_statistics(s->out, a->input, a->scratch, mean, variance);
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
    passes()->norm_forward(&(NormForward){
        .layout = s->out,
        .relu = op->relu,
        .dropout_rate = a->training ? op->dropout_rate : 0,
        .dropout_key = a->dropout_key,
        .x = a->input,
        .mean = mean,
        .inv_std = inv_std,
        .gamma = weight(op, GAMMA, &a->arenas),
        .beta = weight(op, BETA, &a->arenas),
        .residual = a->residual,
        .output = a->output,
    });
}

static void batch_norm_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    const float *mean = a->saved;
    passes()->norm_backward(&(NormBackward){
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
}

// Layers that stand alone.

static void elementwise_create(OpState *s, OpSizes *sizes)
{
    sizes->input = sizes->output = layout_floats(s->out) * sizeof(float);
}

static void relu_forward(OpState *s, const ForwardArgs *a)
{
    passes()->relu(a->output, a->input, layout_floats(s->out));
}

static void relu_backward(OpState *s, const BackwardArgs *a)
{
    passes()->relu_backward(a->output_gradient, a->output, layout_floats(s->out));
}

static void dropout_forward(OpState *s, const ForwardArgs *a)
{
    float rate = a->training ? s->op->dropout_rate : 0;
    passes()->dropout(a->output, a->input, layout_floats(s->out), rate, a->dropout_key);
}

static void dropout_backward(OpState *s, const BackwardArgs *a)
{
    passes()->dropout(a->input_gradient, a->output_gradient, layout_floats(s->out),
                      s->op->dropout_rate, a->dropout_key);
}

static void add_forward(OpState *s, const ForwardArgs *a)
{
    passes()->add(a->output, a->input, a->residual, layout_floats(s->out));
}

// The gradient serves as the first input's where it is.
static void add_backward(OpState *s, const BackwardArgs *a)
{
    memcpy(a->residual_gradient, a->output_gradient, layout_floats(s->out) * sizeof(float));
}

// Pooling and flatten.

static void max_pool_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    Desc input = activation_desc(op->in, s->batch, blocked_tag());
    Desc output = activation_desc(op->out, s->batch, blocked_tag());
    dnnl_primitive_desc_t forward = max_pool_forward(input, output, op->size);
    dnnl_primitive_desc_t backward = max_pool_backward(input, output, op->size, forward);
    CHECK(forward && backward);
    Desc workspace = chosen_desc(forward, dnnl_query_workspace_md, 0);
    sizes->input = desc_bytes(input);
    sizes->output = desc_bytes(output);
    sizes->saved = desc_bytes(workspace);
    PortSpec ports[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, input, false},
                        {DNNL_ARG_DST, dnnl_query_dst_md, 0, output, true},
                        {DNNL_ARG_WORKSPACE, dnnl_query_workspace_md, 0, workspace, true}};
    PortSpec back[] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, output, false},
                       {DNNL_ARG_WORKSPACE, dnnl_query_workspace_md, 0, workspace, false},
                       {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, input, true}};
    s->backward_input = call_prepare(backward, back, 3);
    s->forward = call_prepare(forward, ports, 3);
    sizes->scratch = largest(s->forward.scratch_bytes, s->backward_input.scratch_bytes);
    desc_free(input);
    desc_free(output);
}

static void max_pool_run(OpState *s, const ForwardArgs *a)
{
    void *memory[] = {unconst(a->input), a->output, a->saved};
    call_run(&s->forward, a->scratch, memory);
}

static void max_pool_run_backward(OpState *s, const BackwardArgs *a)
{
    void *memory[] = {a->output_gradient, a->saved, a->input_gradient};
    if (a->input_gradient)
        call_run(&s->backward_input, a->scratch, memory);
}

static void global_average_pool_create(OpState *s, OpSizes *sizes)
{
    sizes->input = layout_floats(s->in) * sizeof(float);
    sizes->output = (size_t)s->batch * (size_t)s->op->out.channels * sizeof(float);
}

static void global_average_pool_forward(OpState *s, const ForwardArgs *a)
{
    passes()->pool_forward(s->in, s->op->in.channels, a->input, a->output);
}

static void global_average_pool_backward(OpState *s, const BackwardArgs *a)
{
    passes()->pool_backward(s->in, s->op->in.channels, a->output_gradient, a->input_gradient);
}

static void flatten_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    bool plain = op->input_is_image || op->flat;
    Desc input = activation_desc(op->in, s->batch, plain ? dnnl_nhwc : blocked_tag());
    Desc output = activation_desc(op->in, s->batch, dnnl_nhwc);
    s->forward = call_reorder(input, output);
    s->backward_input = call_reorder(output, input);
    sizes->input = desc_bytes(input);
    sizes->output = desc_bytes(output);
    desc_free(input);
    desc_free(output);
}

static void flatten_forward(OpState *s, const ForwardArgs *a)
{
    void *memory[] = {unconst(a->input), a->output};
    call_run(&s->forward, a->scratch, memory);
}

static void flatten_backward(OpState *s, const BackwardArgs *a)
{
    void *memory[] = {a->output_gradient, a->input_gradient};
    if (a->input_gradient)
        call_run(&s->backward_input, a->scratch, memory);
}

// Dense.

static void dense_create(OpState *s, OpSizes *sizes)
{
    sizes->input = (size_t)s->batch * (size_t)s->op->in.channels * sizeof(float);
    sizes->output = (size_t)s->batch * (size_t)s->op->out.channels * sizeof(float);
}

static void dense_forward(OpState *s, const ForwardArgs *a)
{
    const Op *op = s->op;
    int inputs = op->in.channels, units = op->out.channels;
    matrix_multiply(false, false, s->batch, units, inputs, a->input, weight(op, KERNEL, &a->arenas),
                    a->output);
    passes()->bias_relu(a->output, weight(op, BIAS, &a->arenas), s->batch, units, op->relu);
}

static void dense_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    int inputs = op->in.channels, units = op->out.channels;
    if (op->relu)
        passes()->relu_backward(a->output_gradient, a->output, layout_floats(s->out));
    matrix_multiply(true, false, inputs, units, s->batch, a->input, a->output_gradient,
                    gradient(op, KERNEL, &a->arenas));
    passes()->sum_rows(gradient(op, BIAS, &a->arenas), a->output_gradient, s->batch, units);
    if (a->input_gradient)
        matrix_multiply(false, true, s->batch, inputs, units, a->output_gradient,
                        weight(op, KERNEL, &a->arenas), a->input_gradient);
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
    [OP_MAX_POOL] = {max_pool_create, max_pool_run, max_pool_run_backward},
    [OP_GLOBAL_AVERAGE_POOL] = {global_average_pool_create, global_average_pool_forward,
                                global_average_pool_backward},
    [OP_FLATTEN] = {flatten_create, flatten_forward, flatten_backward},
    [OP_DENSE] = {dense_create, dense_forward, dense_backward},
};

static OpState *op_create(const Op *op, int batch, OpSizes *sizes)
{
    OpState *s = allocate(1, sizeof *s);
    bool flat_output = op->flat || op->kind == OP_DENSE;
    *s = (OpState){.op = op,
                   .batch = batch,
                   .in = layout_of(op->in, batch, op->flat),
                   .out = layout_of(op->out, batch, flat_output)};
    *sizes = (OpSizes){0};
    operations[op->kind].create(s, sizes);
    return s;
}

static void op_free(OpState *s)
{
    call_free(&s->forward);
    call_free(&s->backward_input);
    call_free(&s->backward_kernel);
    free(s);
}

static void op_forward(OpState *s, const ForwardArgs *args)
{
    operations[s->op->kind].forward(s, args);
}

static void op_backward(OpState *s, const BackwardArgs *args)
{
    operations[s->op->kind].backward(s, args);
}

static void accumulate(void *sum, const void *other, size_t bytes)
{
    passes()->add(sum, sum, other, bytes / sizeof(float));
}

// Loss. A few hundred numbers: not worth more than one thread.

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

static void softmax(const float *logits, float *probabilities, int batch, int classes)
{
    for (int row = 0; row < batch; row++)
        softmax_row(logits + row * classes, probabilities + row * classes, classes);
}

static void cross_entropy(const float *logits, const int *labels, float *gradient, int batch,
                          int classes, Metrics *metrics)
{
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
}

static void update(const Update *rule, const Segment *segments, int count)
{
    passes()->update(rule, segments, count);
}

static const Backend cpu = {
    .name = "cpu",
    .allocate = cpu_allocate,
    .release = free,
    .write = cpu_copy,
    .read = cpu_copy,
    .declare_variables = declare_variables,
    .write_variable = write_variable,
    .read_variable = read_variable,
    .op_create = op_create,
    .op_free = op_free,
    .forward = op_forward,
    .backward = op_backward,
    .accumulate = accumulate,
    .softmax = softmax,
    .cross_entropy = cross_entropy,
    .update = update,
};

const Backend *backend(void)
{
    device_start();
    return &cpu;
}
