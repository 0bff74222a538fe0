// The kit's training step, and the convolutions that it cannot do without.

#include "work.h"

#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "sys/device.h"
#include "hvd/hvd.h"
#include "models/models.h"
#include "cpu/onednn.h"
#include "base/rng.h"
#include "base/util.h"

#define SIZE             28
#define MAX_CONVOLUTIONS 16

// One convolution's three directions, and the memory that each works on.
typedef struct {
    Call forward, backward_input, backward_kernel;
    void *input, *kernel, *kernel_for_input, *bias, *output;
    void *kernel_gradient, *bias_gradient, *input_gradient;
} ConvolutionWork;

struct Work {
    Model *model; // NULL: convolutions alone
    Batch batch;
    ConvolutionWork convolutions[MAX_CONVOLUTIONS];
    int count;
    void *scratch;
    size_t scratch_bytes;
};

// The host's memory, as the kit's own arenas on a CPU have it.
static float *random_floats(size_t bytes)
{
    float *values = backend_cpu.allocate(device_current(), bytes);
    Rng rng = rng_stream_of(1, RNG_SYNTHETIC_DATA, 0);
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = 0.1f * (rng_uniform(&rng) - 0.5f);
    return values;
}

static Batch random_batch(int count)
{
    int *labels = allocate((size_t)count, sizeof *labels);
    for (int i = 0; i < count; i++)
        labels[i] = i % 10;
    size_t bytes = (size_t)count * SIZE * SIZE * sizeof(float);
    return (Batch){random_floats(bytes), labels, count};
}

Model *subject_model(const Subject *subject)
{
    int k = subject->width;
    ModelShape shape = {.height = SIZE, .width = SIZE, .channels = 1, .dropout = true};
    Model *model = NULL;
    if (strcmp(subject->model, "lenet") == 0) {
        model = lenet(shape);
    } else {
        const int widths[] = {16, 16 * k, 32 * k, 64 * k};
        memcpy(shape.widths, widths, sizeof widths);
        model = wide_resnet(shape);
    }
    Optimizer *optimizer = sgd(0.01f);
    if (launched())
        optimizer = hvd_distributed_optimizer(optimizer);
    return compile(l2_penalty(model, 5e-6f), CATEGORICAL_CROSSENTROPY, optimizer);
}

Work *training_step(const Subject *subject)
{
    Work *work = allocate(1, sizeof *work);
    work->model = subject_model(subject);
    work->batch = random_batch(subject->batch);
    return work;
}

static void *like(dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
    return random_floats(desc_bytes(chosen_desc(pd, what, index)));
}

static Call call_of(dnnl_primitive_desc_t pd, const int (*arguments)[3], int count)
{
    PortSpec ports[MAX_PORTS];
    for (int i = 0; i < count; i++) {
        dnnl_query_t what = (dnnl_query_t)arguments[i][1];
        ports[i] = (PortSpec){arguments[i][0], what, arguments[i][2],
                              chosen_desc(pd, what, arguments[i][2]), false};
    }
    return call_prepare(onednn_of(device_current()), pd, ports, count);
}

static void need_scratch(Work *work, const Call *call)
{
    if (call->scratch_bytes > work->scratch_bytes)
        work->scratch_bytes = call->scratch_bytes;
}

// Adds a convolution from `in` to `out` channels at `size` x `size` pixels. The images' own gets no
// gradient of its input, and is left with one channel. A bias before a batch norm is not trained.
static void add_convolution(Work *work, int batch, int in, int out, int size, int kernel_size,
                            bool train_bias)
{
    CHECK(work->count < MAX_CONVOLUTIONS);
    ConvolutionWork *w = &work->convolutions[work->count++];
    bool first = in == 1;
    int inputs[] = {batch, in, size, size}, outputs[] = {batch, out, size, size};
    int kernels[] = {out, in, kernel_size, kernel_size};
    Convolution c = {.dnn = onednn_of(device_current()),
                     .algorithm = first ? dnnl_convolution_direct : dnnl_convolution_auto,
                     .kernel_size = kernel_size,
                     .input = desc_create(4, inputs, first ? dnnl_nchw : dnnl_format_tag_any),
                     .kernel = desc_create(4, kernels, dnnl_format_tag_any),
                     .bias = desc_create(1, &out, dnnl_a),
                     .output = desc_create(4, outputs, dnnl_format_tag_any)};
    dnnl_primitive_desc_t forward = convolution_forward(&c);
    w->input = like(forward, dnnl_query_src_md, 0);
    w->kernel = like(forward, dnnl_query_weights_md, 0);
    w->bias = like(forward, dnnl_query_weights_md, 1);
    w->output = like(forward, dnnl_query_dst_md, 0);
    if (!first) {
        dnnl_primitive_desc_t pd = convolution_backward_input(&c, forward);
        w->kernel_for_input = like(pd, dnnl_query_weights_md, 0);
        w->input_gradient = like(pd, dnnl_query_diff_src_md, 0);
        const int arguments[][3] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                    {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                    {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0}};
        w->backward_input = call_of(pd, arguments, 3);
    }
    Desc bias = c.bias;
    c.bias = train_bias ? bias : NULL;
    dnnl_primitive_desc_t pd = convolution_backward_kernel(&c, forward);
    w->kernel_gradient = like(pd, dnnl_query_diff_weights_md, 0);
    w->bias_gradient = random_floats(desc_bytes(bias));
    const int kernel_arguments[][3] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                       {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                       {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0},
                                       {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1}};
    w->backward_kernel = call_of(pd, kernel_arguments, train_bias ? 4 : 3);
    const int arguments[][3] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                {DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
                                {DNNL_ARG_DST, dnnl_query_dst_md, 0}};
    w->forward = call_of(forward, arguments, 4);
    need_scratch(work, &w->forward);
    need_scratch(work, &w->backward_input);
    need_scratch(work, &w->backward_kernel);
}

Work *convolutions_only(const Subject *subject)
{
    Work *work = allocate(1, sizeof *work);
    int batch = subject->batch, k = subject->width;
    if (strcmp(subject->model, "lenet") == 0) {
        add_convolution(work, batch, 1, 32, SIZE, 3, true);
        add_convolution(work, batch, 32, 64, SIZE / 2, 3, true);
    } else {
        add_convolution(work, batch, 1, 16, SIZE, 3, false);
        for (int group = 0, in = 16; group < 3; group++) {
            int out = (16 << group) * k, size = SIZE >> group;
            add_convolution(work, batch, in, out, size, 1, true);
            add_convolution(work, batch, in, out, size, 3, false);
            for (int i = 0; i < 3; i++)
                add_convolution(work, batch, out, out, size, 3, false);
            in = out;
        }
    }
    work->scratch = backend_cpu.allocate(device_current(), work->scratch_bytes);
    return work;
}

static void run_convolutions(Work *work)
{
    for (int i = 0; i < work->count; i++) {
        ConvolutionWork *w = &work->convolutions[i];
        void *memory[] = {w->input, w->kernel, w->bias, w->output};
        call_run(&w->forward, work->scratch, memory);
    }
    for (int i = work->count - 1; i >= 0; i--) {
        ConvolutionWork *w = &work->convolutions[i];
        void *kernel_memory[] = {w->input, w->output, w->kernel_gradient, w->bias_gradient};
        call_run(&w->backward_kernel, work->scratch, kernel_memory);
        void *memory[] = {w->output, w->kernel_for_input, w->input_gradient};
        if (w->input_gradient)
            call_run(&w->backward_input, work->scratch, memory);
    }
}

void work_run(Work *work)
{
    if (work->model)
        train_on_batch(work->model, &work->batch);
    else
        run_convolutions(work);
}

void work_finish(Work *work)
{
    if (work->model)
        model_metrics(work->model);
}
