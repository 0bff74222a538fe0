// The CPU backend's dense layer: oneDNN's matrix products. With bfloat16 oneDNN converts its
// inputs, and returns floats.

#include "cpu/backend_cpu_inside.h"

// The matrices in floats, and in oneDNN's form.
typedef struct {
    Desc input, kernel, output;
    Desc short_input, short_output, any_kernel, any_gradient;
} DenseDescs;

static DenseDescs dense_descs(const Op *op, int batch)
{
    int input[] = {batch, op->in.channels}, output[] = {batch, op->out.channels};
    int kernel[] = {op->out.channels, op->in.channels};
    return (DenseDescs){
        .input = desc_create(2, input, dnnl_ab),
        .kernel = desc_create(2, kernel, dnnl_ba), // in the arena: (in, out)
        .output = desc_create(2, output, dnnl_ab),
        .short_input = desc_create_typed(2, input, dnnl_bf16, dnnl_ab),
        .short_output = desc_create_typed(2, output, dnnl_bf16, dnnl_ab),
        .any_kernel = desc_create_typed(2, kernel, dnnl_bf16, dnnl_format_tag_any),
        .any_gradient = desc_create(2, kernel, dnnl_format_tag_any),
    };
}

static void dense_descs_free(DenseDescs *d)
{
    desc_free(d->input);
    desc_free(d->kernel);
    desc_free(d->output);
    desc_free(d->short_input);
    desc_free(d->short_output);
    desc_free(d->any_kernel);
    desc_free(d->any_gradient);
}

static void create_calls(OpState *s, const DenseDescs *d, OpSizes *sizes)
{
    InnerProduct p = {s->dnn, d->short_input, d->any_kernel, NULL, d->output};
    dnnl_primitive_desc_t forward = inner_product_forward(&p);
    p = (InnerProduct){s->dnn, d->input, d->any_kernel, NULL, d->short_output};
    dnnl_primitive_desc_t back = inner_product_backward_input(&p, forward);
    p = (InnerProduct){s->dnn, d->short_input, d->any_gradient, NULL, d->short_output};
    dnnl_primitive_desc_t kernel = inner_product_backward_kernel(&p, forward);
    Desc copy = chosen_desc(forward, dnnl_query_weights_md, 0);
    sizes->saved = desc_bytes(copy);
    s->to_bfloat16 = call_reorder(s->dnn, d->kernel, copy);
    PortSpec ports[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, d->input, false},
                        {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, copy, false},
                        {DNNL_ARG_DST, dnnl_query_dst_md, 0, d->output, true}};
    PortSpec back_ports[] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, d->output, false},
                             {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, copy, false},
                             {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, d->input, true}};
    PortSpec kernel_ports[] = {
        {DNNL_ARG_SRC, dnnl_query_src_md, 0, d->input, false},
        {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, d->output, false},
        {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, d->kernel, true}};
    s->backward_input = call_prepare(s->dnn, back, back_ports, 3);
    s->backward_kernel = call_prepare(s->dnn, kernel, kernel_ports, 3);
    s->forward = call_prepare(s->dnn, forward, ports, 3);
}

// Saved with bfloat16: the kernel in it, in the layout that oneDNN wants.
void dense_create(OpState *s, OpSizes *sizes)
{
    sizes->input = layout_bytes(s->in);
    sizes->output = layout_bytes(s->out);
    if (!s->bfloat16)
        return;
    DenseDescs d = dense_descs(s->op, s->batch);
    create_calls(s, &d, sizes);
    sizes->scratch = calls_scratch(s);
    dense_descs_free(&d);
}

void dense_forward(OpState *s, const ForwardArgs *a)
{
    const Op *op = s->op;
    int inputs = op->in.channels, units = op->out.channels;
    const float *kernel = weight(op, KERNEL, &a->arenas);
    void *copy[] = {unconst(kernel), a->saved},
         *memory[] = {unconst(a->input), a->saved, a->output};
    if (s->bfloat16) {
        call_run(&s->to_bfloat16, NULL, copy);
        call_run(&s->forward, a->scratch, memory);
    } else {
        matrix_multiply(false, false, s->batch, units, inputs, a->input, kernel, a->output);
    }
    if (op->variables[BIAS])
        passes()->bias_relu(a->output, weight(op, BIAS, &a->arenas), s->batch, units, op->relu);
    else if (op->relu)
        passes()->relu(a->output, a->output, layout_elements(s->out));
}

static void kernel_gradient(OpState *s, const BackwardArgs *a)
{
    float *to = gradient(s->op, KERNEL, &a->arenas);
    void *memory[] = {unconst(a->input), a->output_gradient, to};
    if (s->bfloat16)
        call_run(&s->backward_kernel, a->scratch, memory);
    else
        matrix_multiply(true, false, s->op->in.channels, s->op->out.channels, s->batch, a->input,
                        a->output_gradient, to);
}

static void input_gradient(OpState *s, const BackwardArgs *a)
{
    void *memory[] = {a->output_gradient, a->saved, a->input_gradient};
    if (s->bfloat16)
        call_run(&s->backward_input, a->scratch, memory);
    else
        matrix_multiply(false, true, s->batch, s->op->in.channels, s->op->out.channels,
                        a->output_gradient, weight(s->op, KERNEL, &a->arenas), a->input_gradient);
}

void dense_backward(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    if (op->relu)
        passes()->relu_backward(a->output_gradient, a->output, layout_elements(s->out));
    kernel_gradient(s, a);
    if (op->variables[BIAS])
        passes()->sum_rows(gradient(op, BIAS, &a->arenas), a->output_gradient, s->batch,
                           op->out.channels);
    if (a->input_gradient)
        input_gradient(s, a);
}
