// The CPU backend's convolution, by oneDNN or by the kit's own Winograd, and the other operations
// that oneDNN computes: max pooling, flatten.

#include "cpu/cpu_op.h"

#include <omp.h>
#include "base/util.h"

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

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

static Call forward_call(const OneDnn *dnn, dnnl_primitive_desc_t pd, const ConvolutionDescs *d)
{
    PortSpec ports[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, d->image, false},
                        {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, d->kernel, false},
                        {DNNL_ARG_BIAS, dnnl_query_weights_md, 1, d->bias, false},
                        {DNNL_ARG_DST, dnnl_query_dst_md, 0, d->output, true}};
    return call_prepare(dnn, pd, ports, 4);
}

static Call backward_input_call(const OneDnn *dnn, dnnl_primitive_desc_t pd,
                                const ConvolutionDescs *d)
{
    PortSpec ports[] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, d->output, false},
                        {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, d->kernel, false},
                        {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, d->input, true}};
    return call_prepare(dnn, pd, ports, 3);
}

static Call backward_kernel_call(const OneDnn *dnn, dnnl_primitive_desc_t pd,
                                 const ConvolutionDescs *d, bool bias)
{
    PortSpec ports[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, d->image, false},
                        {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, d->output, false},
                        {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, d->kernel, true},
                        {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1, d->bias, true}};
    return call_prepare(dnn, pd, ports, bias ? 4 : 3);
}

static void create_calls(OpState *s, const ConvolutionDescs *d)
{
    const Op *op = s->op;
    bool train_bias = !op->variables[BIAS]->no_gradient;
    // "auto" is oneDNN's own Winograd, in versions that have one, where it finds that it pays.
    Convolution c = {.dnn = s->dnn,
                     .algorithm =
                         few_channels(op) ? dnnl_convolution_direct : dnnl_convolution_auto,
                     .kernel_size = op->size,
                     .input = d->input,
                     .kernel = d->any,
                     .bias = d->bias,
                     .output = d->output};
    dnnl_primitive_desc_t forward = describe(describe_forward, &c, op, s->batch, NULL);
    if (!op->input_is_image)
        s->backward_input = backward_input_call(
            s->dnn, describe(convolution_backward_input, &c, op, s->batch, forward), d);
    c.bias = train_bias ? d->bias : NULL;
    s->backward_kernel = backward_kernel_call(
        s->dnn, describe(convolution_backward_kernel, &c, op, s->batch, forward), d, train_bias);
    s->forward = forward_call(s->dnn, forward, d);
}

// Where the kit's own convolution is quicker than oneDNN's: from what was measured, by shape alone,
// so that a layer is always computed in the same way.
static bool winograd_pays(const Op *op, int batch)
{
    enum { LEAST_TILES = 32 };
    int tiles = batch * ((op->in.height + 3) / 4) * ((op->in.width + 3) / 4);
    return winograd() && op->size == 3 && !op->input_is_image && op->in.channels % lanes() == 0 &&
           op->out.channels % lanes() == 0 && tiles >= LEAST_TILES;
}

void conv2d_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    ConvolutionDescs d = convolution_descs(op, s->batch);
    sizes->input = desc_bytes(d.image);
    sizes->output = desc_bytes(d.output);
    if (winograd_pays(op, s->batch)) {
        s->winograd = winograd();
        s->shape = (WinogradShape){s->batch,        op->in.height,    op->in.width,
                                   op->in.channels, op->out.channels, omp_get_max_threads()};
        sizes->scratch = s->winograd->scratch(&s->shape) * sizeof(float);
    } else {
        create_calls(s, &d);
        sizes->scratch =
            largest(s->forward.scratch_bytes,
                    largest(s->backward_input.scratch_bytes, s->backward_kernel.scratch_bytes));
    }
    convolution_descs_free(&d);
}

void conv2d_forward(OpState *s, const ForwardArgs *a)
{
    const float *kernel = weight(s->op, KERNEL, &a->arenas);
    const float *bias = weight(s->op, BIAS, &a->arenas);
    if (s->winograd) {
        s->winograd->forward(&s->shape, a->input, kernel, bias, s->op->relu, a->output, a->scratch);
        return;
    }
    void *memory[] = {unconst(a->input), unconst(kernel), unconst(bias), a->output};
    call_run(&s->forward, a->scratch, memory);
    // Not part of the primitive: oneDNN's own ReLU turns NaN into 0, which would hide a training
    // that has diverged.
    if (s->op->relu)
        passes()->relu(a->output, a->output, layout_floats(s->out));
}

static void winograd_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    float *bias = op->variables[BIAS]->no_gradient ? NULL : gradient(op, BIAS, &a->arenas);
    s->winograd->backward_kernel(&s->shape, a->input, a->output_gradient,
                                 gradient(op, KERNEL, &a->arenas), bias, a->scratch);
    if (a->input_gradient)
        s->winograd->backward_input(&s->shape, a->output_gradient, weight(op, KERNEL, &a->arenas),
                                    a->input_gradient, a->scratch);
}

void conv2d_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    if (op->relu)
        passes()->relu_backward(a->output_gradient, a->output, layout_floats(s->out));
    if (s->winograd) {
        winograd_backward(s, a);
        return;
    }
    void *kernel_memory[] = {unconst(a->input), a->output_gradient,
                             gradient(op, KERNEL, &a->arenas), gradient(op, BIAS, &a->arenas)};
    call_run(&s->backward_kernel, a->scratch, kernel_memory);
    if (a->input_gradient) {
        void *memory[] = {a->output_gradient, unconst(weight(op, KERNEL, &a->arenas)),
                          a->input_gradient};
        call_run(&s->backward_input, a->scratch, memory);
    }
}

// Max pooling.

void max_pool_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    Desc input = activation_desc(op->in, s->batch, blocked_tag());
    Desc output = activation_desc(op->out, s->batch, blocked_tag());
    dnnl_primitive_desc_t forward = max_pool_forward(s->dnn, input, output, op->size);
    dnnl_primitive_desc_t backward = max_pool_backward(s->dnn, input, output, op->size, forward);
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
    s->backward_input = call_prepare(s->dnn, backward, back, 3);
    s->forward = call_prepare(s->dnn, forward, ports, 3);
    sizes->scratch = largest(s->forward.scratch_bytes, s->backward_input.scratch_bytes);
    desc_free(input);
    desc_free(output);
}

void max_pool_run(OpState *s, const ForwardArgs *a)
{
    void *memory[] = {unconst(a->input), a->output, a->saved};
    call_run(&s->forward, a->scratch, memory);
}

void max_pool_run_backward(OpState *s, const BackwardArgs *a)
{
    void *memory[] = {a->output_gradient, a->saved, a->input_gradient};
    if (a->input_gradient)
        call_run(&s->backward_input, a->scratch, memory);
}

// Flatten: from blocks to NHWC.

void flatten_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    bool plain = op->input_is_image || op->flat;
    Desc input = activation_desc(op->in, s->batch, plain ? dnnl_nhwc : blocked_tag());
    Desc output = activation_desc(op->in, s->batch, dnnl_nhwc);
    s->forward = call_reorder(s->dnn, input, output);
    s->backward_input = call_reorder(s->dnn, output, input);
    sizes->input = desc_bytes(input);
    sizes->output = desc_bytes(output);
    desc_free(input);
    desc_free(output);
}

void flatten_forward(OpState *s, const ForwardArgs *a)
{
    void *memory[] = {unconst(a->input), a->output};
    call_run(&s->forward, a->scratch, memory);
}

void flatten_backward(OpState *s, const BackwardArgs *a)
{
    void *memory[] = {a->output_gradient, a->input_gradient};
    if (a->input_gradient)
        call_run(&s->backward_input, a->scratch, memory);
}
