// A network's convolutions, each prepared by oneDNN for itself.

#include "convolutions.h"

#include <string.h>
#include "backend/backend.h"
#include "base/bfloat16.h"
#include "base/error.h"
#include "base/memory.h"
#include "cpu/onednn.h"
#include "run/device.h"

enum { MAX_PASSES = 16 };

// One convolution's three directions, and the memory that each works on.
typedef struct {
    Call forward, backward_input, backward_kernel;
    void *input, *kernel, *kernel_for_input, *bias, *output;
    void *kernel_gradient, *bias_gradient, *input_gradient;
} Passes;

struct Convolutions {
    int batch;
    dnnl_data_type_t type; // of what they read and write: f32 or bf16
    Passes passes[MAX_PASSES];
    int count;
    void *scratch;
    size_t scratch_bytes;
};

// How the directions are computed; `backward_input` is NULL where the input has no gradient.
typedef struct {
    dnnl_primitive_desc_t forward, backward_input, backward_kernel;
} Chosen;

// ---- Memory.

static size_t bytes_of(dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return pd ? desc_bytes(chosen_desc(pd, what, 0)) : 0;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void *random_bf16s(size_t bytes)
{
    size_t count = bytes / sizeof(Bfloat16);
    float *floats = random_floats(count * sizeof *floats);
    Bfloat16 *values = backend_cpu.allocate(device_current(), bytes);
    for (size_t i = 0; i < count; i++)
        values[i] = bfloat16_of(floats[i]);
    backend_cpu.release(device_current(), floats);
    return values;
}

static void *values(const Convolutions *all, size_t bytes)
{
    return all->type == dnnl_bf16 ? random_bf16s(bytes) : random_floats(bytes);
}

// Directions may want other layouts of the same image, and padding may make one of them longer.
static void allocate_values(const Convolutions *all, const Chosen *c, Passes *p)
{
    size_t input = larger(bytes_of(c->forward, dnnl_query_src_md),
                          bytes_of(c->backward_kernel, dnnl_query_src_md));
    size_t output = larger(larger(bytes_of(c->forward, dnnl_query_dst_md),
                                  bytes_of(c->backward_input, dnnl_query_diff_dst_md)),
                           bytes_of(c->backward_kernel, dnnl_query_diff_dst_md));
    p->input = values(all, input);
    p->output = values(all, output);
    p->kernel = values(all, bytes_of(c->forward, dnnl_query_weights_md));
    p->kernel_gradient = random_floats(bytes_of(c->backward_kernel, dnnl_query_diff_weights_md));
    if (!c->backward_input)
        return;
    p->kernel_for_input = values(all, bytes_of(c->backward_input, dnnl_query_weights_md));
    p->input_gradient = values(all, bytes_of(c->backward_input, dnnl_query_diff_src_md));
}

// ---- Preparing.

static Call call_of(Convolutions *all, dnnl_primitive_desc_t pd, const int (*arguments)[3],
                    int count)
{
    PortSpec ports[MAX_PORTS];
    for (int i = 0; i < count; i++) {
        dnnl_query_t what = (dnnl_query_t)arguments[i][1];
        ports[i] = (PortSpec){arguments[i][0], what, arguments[i][2],
                              chosen_desc(pd, what, arguments[i][2]), false};
    }
    Call call = call_prepare(onednn_of(device_current()), pd, ports, count);
    all->scratch_bytes = larger(all->scratch_bytes, call.scratch_bytes);
    return call;
}

static void prepare_calls(Convolutions *all, const Chosen *c, bool train_bias, Passes *p)
{
    static const int forward[][3] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                     {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                     {DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
                                     {DNNL_ARG_DST, dnnl_query_dst_md, 0}};
    static const int input[][3] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                   {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                   {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0}};
    static const int kernel[][3] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                    {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                    {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0},
                                    {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1}};
    if (c->backward_input)
        p->backward_input = call_of(all, c->backward_input, input, 3);
    p->backward_kernel = call_of(all, c->backward_kernel, kernel, train_bias ? 4 : 3);
    p->forward = call_of(all, c->forward, forward, 4);
}

// Adds a convolution from `in` to `out` channels at `size` x `size` pixels. The images' own gets no
// gradient of its input, and is left with one channel. A bias before a batch norm is not trained.
static void add_one(Convolutions *all, int in, int out, int size, int kernel_size, bool train_bias)
{
    CHECK(all->count < MAX_PASSES);
    Passes *p = &all->passes[all->count++];
    bool first = in == 1;
    int inputs[] = {all->batch, in, size, size}, outputs[] = {all->batch, out, size, size};
    int kernels[] = {out, in, kernel_size, kernel_size};
    dnnl_format_tag_t any = dnnl_format_tag_any;
    Convolution c = {.dnn = onednn_of(device_current()),
                     .algorithm = first ? dnnl_convolution_direct : dnnl_convolution_auto,
                     .kernel_size = kernel_size,
                     .input = desc_create_typed(4, inputs, all->type, first ? dnnl_nchw : any),
                     .kernel = desc_create_typed(4, kernels, all->type, any),
                     .bias = desc_create(1, &out, dnnl_a),
                     .output = desc_create_typed(4, outputs, all->type, any)};
    Convolution gradient = c;
    gradient.kernel = desc_create(4, kernels, any);
    gradient.bias = train_bias ? c.bias : NULL;
    Chosen chosen = {.forward = convolution_forward(&c)};
    CHECK(chosen.forward);
    chosen.backward_input = first ? NULL : convolution_backward_input(&c, chosen.forward);
    chosen.backward_kernel = convolution_backward_kernel(&gradient, chosen.forward);
    CHECK(chosen.backward_kernel && (first || chosen.backward_input));
    allocate_values(all, &chosen, p);
    p->bias = random_floats(desc_bytes(c.bias));
    p->bias_gradient = random_floats(desc_bytes(c.bias));
    prepare_calls(all, &chosen, train_bias, p);
}

Convolutions *convolutions_of(const Workload *workload)
{
    Convolutions *all = allocate(1, sizeof *all);
    all->batch = workload->batch;
    all->type = workload->precision == PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
    if (strcmp(workload->model, "lenet") == 0) {
        add_one(all, 1, 32, IMAGE_SIZE, 3, true);
        add_one(all, 32, 64, IMAGE_SIZE / 2, 3, true);
    } else {
        add_one(all, 1, 16, IMAGE_SIZE, 3, false);
        for (int group = 0, in = 16; group < 3; group++) {
            int out = (16 << group) * workload->width, size = IMAGE_SIZE >> group;
            add_one(all, in, out, size, 1, true);
            add_one(all, in, out, size, 3, false);
            for (int i = 0; i < 3; i++)
                add_one(all, out, out, size, 3, false);
            in = out;
        }
    }
    all->scratch = backend_cpu.allocate(device_current(), all->scratch_bytes);
    return all;
}

// ---- Running.

void convolutions_run(Convolutions *all)
{
    for (int i = 0; i < all->count; i++) {
        Passes *p = &all->passes[i];
        void *memory[] = {p->input, p->kernel, p->bias, p->output};
        call_run(&p->forward, all->scratch, memory);
    }
    for (int i = all->count - 1; i >= 0; i--) {
        Passes *p = &all->passes[i];
        void *kernel_memory[] = {p->input, p->output, p->kernel_gradient, p->bias_gradient};
        call_run(&p->backward_kernel, all->scratch, kernel_memory);
        void *memory[] = {p->output, p->kernel_for_input, p->input_gradient};
        if (p->input_gradient)
            call_run(&p->backward_input, all->scratch, memory);
    }
}
