// The CPU backend's convolution, by oneDNN, by the kit's own Winograd, or, for the gradient of a
// kernel, by a pass (a first layer's) or as products of matrices (cpu_kernel_rows.c); and flatten,
// whose change of layout is oneDNN's.

#include "cpu/backend_cpu_inside.h"

#include <omp.h>

// The three directions of a convolution differ only in their descriptors.
typedef dnnl_primitive_desc_t (*Describe)(const Convolution *, dnnl_primitive_desc_t hint);

static dnnl_primitive_desc_t describe_forward(const Convolution *c, dnnl_primitive_desc_t hint)
{
    (void)hint;
    return convolution_forward(c);
}

// Asks for an implementation for our layouts. If oneDNN has only its slow reference for them (old
// instruction sets), lets it choose the layouts, and the call reorders.
static dnnl_primitive_desc_t describe(Describe how, const Convolution *wish, const OpState *s,
                                      dnnl_primitive_desc_t hint)
{
    dnnl_primitive_desc_t pd = how(wish, hint);
    if (pd && !is_reference(pd))
        return pd;
    Convolution any = *wish;
    any.input = activation_desc(s->op->in, s->batch, s->bfloat16, dnnl_format_tag_any);
    any.output = activation_desc(s->op->out, s->batch, s->bfloat16, dnnl_format_tag_any);
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
static Desc image_desc(const Op *op, int batch, bool bfloat16)
{
    if (op->input_is_image)
        return activation_desc(op->in, batch, false, op->in.channels == 1 ? dnnl_nchw : dnnl_nhwc);
    return activation_desc(op->in, batch, bfloat16, image_tag(bfloat16));
}

// The layouts around one convolution.
typedef struct {
    Desc image; // what the caller has; differs from `input` for a model's first layer
    Desc input, output;
    Desc kernel;            // in the arena
    Desc any, any_gradient; // the kernel and its gradient, as the primitive likes them
    Desc bias;
} ConvolutionDescs;

static ConvolutionDescs convolution_descs(const Op *op, int batch, bool bfloat16)
{
    dnnl_format_tag_t tag = image_tag(bfloat16);
    return (ConvolutionDescs){
        .image = image_desc(op, batch, bfloat16),
        .input = activation_desc(op->in, batch, bfloat16, few_channels(op) ? dnnl_nchw : tag),
        .output = activation_desc(op->out, batch, bfloat16, tag),
        .kernel = kernel_desc(op, false, kernel_tag(op)),
        .any = kernel_desc(op, bfloat16, dnnl_format_tag_any),
        .any_gradient = kernel_desc(op, false, dnnl_format_tag_any),
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
    desc_free(d->any_gradient);
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

// A first layer uses our own kernel if there are enough registers: oneDNN takes several times as
// long with AVX2.
static KernelGradient quickest_kernel_gradient(const OpState *s)
{
    if (!s->bfloat16 && few_channels(s->op) && s->op->size == 3 && winograd())
        return BY_PASS;
    return kernel_rows_pay(s) ? BY_ROWS : BY_CONVOLUTION;
}

static FirstLayer first_layer_of(const OpState *s)
{
    Shape in = s->op->in;
    return (FirstLayer){s->out, in.height, in.width, in.channels, s->op->out.channels, s->threads};
}

static void create_calls(OpState *s, const ConvolutionDescs *d)
{
    const Op *op = s->op;
    bool train_bias = !op->variables[BIAS]->no_gradient;
    // "auto" lets oneDNN use its own Winograd, in versions that have one, if it expects it to be
    // faster.
    Convolution c = {.dnn = s->dnn,
                     .algorithm =
                         few_channels(op) ? dnnl_convolution_direct : dnnl_convolution_auto,
                     .kernel_size = op->size,
                     .input = d->input,
                     .kernel = d->any,
                     .bias = d->bias,
                     .output = d->output};
    dnnl_primitive_desc_t forward = describe(describe_forward, &c, s, NULL);
    if (!op->input_is_image)
        s->backward_input =
            backward_input_call(s->dnn, describe(convolution_backward_input, &c, s, forward), d);
    c.kernel = d->any_gradient;
    c.bias = train_bias ? d->bias : NULL;
    if (s->kernel_gradient == BY_CONVOLUTION)
        s->backward_kernel = backward_kernel_call(
            s->dnn, describe(convolution_backward_kernel, &c, s, forward), d, train_bias);
    s->forward = forward_call(s->dnn, forward, d);
}

// True for shapes for which the kit's own convolution was measured to be faster than oneDNN's. By
// shape only, so that a layer is always computed in the same way.
static const Winograd *winograd_that_pays(const Op *op, int batch, bool bfloat16)
{
    enum { MIN_TILES = 32 };
    int tiles = batch * ((op->in.height + 3) / 4) * ((op->in.width + 3) / 4);
    bool pays = op->size == 3 && !op->input_is_image && op->in.channels % lanes() == 0 &&
                op->out.channels % lanes() == 0 && tiles >= MIN_TILES;
    return !pays ? NULL : bfloat16 ? winograd_of_bfloat16() : winograd();
}

// For convolutions that are not oneDNN's; returns the working memory in bytes.
static size_t create_kernel_gradient(OpState *s)
{
    if (s->kernel_gradient == BY_ROWS)
        return kernel_rows_create(s);
    if (s->kernel_gradient == BY_CONVOLUTION)
        return 0;
    s->threads = omp_get_max_threads();
    FirstLayer layer = first_layer_of(s);
    return first_layer_scratch(&layer) * sizeof(float);
}

void conv2d_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    ConvolutionDescs d = convolution_descs(op, s->batch, s->bfloat16);
    sizes->input = desc_bytes(d.image);
    sizes->output = desc_bytes(d.output);
    s->winograd = winograd_that_pays(op, s->batch, s->bfloat16);
    if (s->winograd) {
        s->shape = (WinogradShape){s->batch,        op->in.height,    op->in.width,
                                   op->in.channels, op->out.channels, omp_get_max_threads()};
        sizes->scratch = s->winograd->scratch(&s->shape) * sizeof(float);
    } else {
        s->kernel_gradient = quickest_kernel_gradient(s);
        create_calls(s, &d);
        sizes->scratch = larger(calls_scratch(s), create_kernel_gradient(s));
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
        passes_of(s->out)->relu(a->output, a->output, layout_elements(s->out));
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

static void kernel_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    float *kernel = gradient(op, KERNEL, &a->arenas), *bias = gradient(op, BIAS, &a->arenas);
    void *memory[] = {unconst(a->input), a->output_gradient, kernel, bias};
    FirstLayer layer = first_layer_of(s);
    switch (s->kernel_gradient) {
    case BY_CONVOLUTION:
        call_run(&s->backward_kernel, a->scratch, memory);
        break;
    case BY_PASS:
        passes()->first_kernel_gradient(&layer, a->input, a->output_gradient, kernel,
                                        op->variables[BIAS]->no_gradient ? NULL : bias, a->scratch);
        break;
    case BY_ROWS:
        kernel_rows_gradient(s, a);
    }
}

void conv2d_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    if (op->relu)
        passes_of(s->out)->relu_backward(a->output_gradient, a->output, layout_elements(s->out));
    if (s->winograd) {
        winograd_backward(s, a);
        return;
    }
    kernel_backward(s, a);
    void *memory[] = {a->output_gradient, unconst(weight(op, KERNEL, &a->arenas)),
                      a->input_gradient};
    if (a->input_gradient)
        call_run(&s->backward_input, a->scratch, memory);
}

// Flatten: from the layout of images to NHWC in floats.

void flatten_create(OpState *s, OpSizes *sizes)
{
    const Op *op = s->op;
    bool plain = op->input_is_image || op->flat;
    Desc input = activation_desc(op->in, s->batch, s->bfloat16 && !plain,
                                 plain ? dnnl_nhwc : image_tag(s->bfloat16));
    Desc output = activation_desc(op->in, s->batch, false, dnnl_nhwc);
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
