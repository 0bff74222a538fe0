// Workloads: their words, the kit's training step, and the convolutions that it cannot do without.

#include "workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "base/rng.h"
#include "base/util.h"
#include "cpu/onednn.h"
#include "hvd/hvd.h"
#include "models/models.h"
#include "sys/device.h"
#include "train/mirrored.h"

enum { SIZE = 28, MAX_CONVOLUTIONS = 16, MOST_WIDTH = 64, MOST_BATCH = 1 << 20 };

const char *const device_names[] = {"auto", "cpu", "gpu"};
const char *const precision_names[] = {"default", "fp32", "tf32", "bf16"};

int find_name(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    die("bench: %s is not known here", word);
}

Workload parse_workload(const char *text)
{
    static const char *const models[] = {"wrn", "lenet"};
    Workload s = {0};
    int end = 0;
    for (int i = 0; i < 2; i++)
        if (strncmp(text, models[i], strlen(models[i])) == 0)
            s.model = models[i];
    if (!s.model || sscanf(text + strlen(s.model), ":%d:%d%n", &s.width, &s.batch, &end) != 2 ||
        text[strlen(s.model) + (size_t)end] || s.width < 1 || s.width > MOST_WIDTH || s.batch < 1 ||
        s.batch > MOST_BATCH)
        die("%s is not MODEL:WIDTH:BATCH, such as wrn:10:512 or lenet:1:128", text);
    return s;
}

void print_model(const Workload *s)
{
    if (strcmp(s->model, "wrn") == 0)
        printf("Wide ResNet 16-%d", s->width);
    else
        printf("LeNet");
}

void print_workload(const Workload *s)
{
    print_model(s);
    printf(", batch %d", s->batch);
}

// ---- Steps.

// One convolution's three directions, and the memory that each works on.
typedef struct {
    Call forward, backward_input, backward_kernel;
    void *input, *kernel, *kernel_for_input, *bias, *output;
    void *kernel_gradient, *bias_gradient, *input_gradient;
} ConvolutionPasses;

struct Steps {
    Model *model;       // NULL: convolutions alone,
    Mirrored *mirrored; // or replicas, unless this is NULL, too
    Batch batch;
    ConvolutionPasses convolutions[MAX_CONVOLUTIONS];
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

static Model *uncompiled(const Workload *workload)
{
    int k = workload->width;
    ModelShape shape = {.height = SIZE, .width = SIZE, .channels = 1, .dropout = true};
    Model *model = NULL;
    if (strcmp(workload->model, "lenet") == 0) {
        model = lenet(shape);
    } else {
        const int widths[] = {16, 16 * k, 32 * k, 64 * k};
        memcpy(shape.widths, widths, sizeof widths);
        model = wide_resnet(shape);
    }
    return l2_penalty(model, 5e-6f);
}

static Optimizer *plain_sgd(void)
{
    return sgd(0.01f);
}

Model *workload_model(const Workload *workload)
{
    Optimizer *optimizer = plain_sgd();
    if (launched())
        optimizer = hvd_distributed_optimizer(optimizer);
    return compile(uncompiled(workload), CATEGORICAL_CROSSENTROPY, optimizer);
}

Steps *prepare_training(const Workload *workload)
{
    Steps *steps = allocate(1, sizeof *steps);
    steps->model = workload_model(workload);
    steps->batch = random_batch(workload->batch);
    return steps;
}

// ---- Replicas.

static const Workload *mirrored_workload;

static Model *replica_model(void)
{
    return uncompiled(mirrored_workload);
}

Steps *prepare_mirrored(const Workload *workload)
{
    Steps *steps = allocate(1, sizeof *steps);
    mirrored_workload = workload;
    steps->mirrored = mirrored(replica_model, CATEGORICAL_CROSSENTROPY, plain_sgd, NULL, 0);
    steps->batch = random_batch(workload->batch * mirrored_devices(steps->mirrored));
    return steps;
}

static void train_part(Replica *replica, void *whole)
{
    Batch part = part_of_batch(replica, whole);
    compute_gradients(replica->model, &part);
    average_gradients(replica, part.count);
    apply_gradients(replica->model);
}

// ---- Convolutions alone.

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

static void need_scratch(Steps *steps, const Call *call)
{
    if (call->scratch_bytes > steps->scratch_bytes)
        steps->scratch_bytes = call->scratch_bytes;
}

// Adds a convolution from `in` to `out` channels at `size` x `size` pixels. The images' own gets no
// gradient of its input, and is left with one channel. A bias before a batch norm is not trained.
static void add_convolution(Steps *steps, int batch, int in, int out, int size, int kernel_size,
                            bool train_bias)
{
    CHECK(steps->count < MAX_CONVOLUTIONS);
    ConvolutionPasses *w = &steps->convolutions[steps->count++];
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
    need_scratch(steps, &w->forward);
    need_scratch(steps, &w->backward_input);
    need_scratch(steps, &w->backward_kernel);
}

Steps *prepare_convolutions(const Workload *workload)
{
    Steps *steps = allocate(1, sizeof *steps);
    int batch = workload->batch, k = workload->width;
    if (strcmp(workload->model, "lenet") == 0) {
        add_convolution(steps, batch, 1, 32, SIZE, 3, true);
        add_convolution(steps, batch, 32, 64, SIZE / 2, 3, true);
    } else {
        add_convolution(steps, batch, 1, 16, SIZE, 3, false);
        for (int group = 0, in = 16; group < 3; group++) {
            int out = (16 << group) * k, size = SIZE >> group;
            add_convolution(steps, batch, in, out, size, 1, true);
            add_convolution(steps, batch, in, out, size, 3, false);
            for (int i = 0; i < 3; i++)
                add_convolution(steps, batch, out, out, size, 3, false);
            in = out;
        }
    }
    steps->scratch = backend_cpu.allocate(device_current(), steps->scratch_bytes);
    return steps;
}

static void run_convolutions(Steps *steps)
{
    for (int i = 0; i < steps->count; i++) {
        ConvolutionPasses *w = &steps->convolutions[i];
        void *memory[] = {w->input, w->kernel, w->bias, w->output};
        call_run(&w->forward, steps->scratch, memory);
    }
    for (int i = steps->count - 1; i >= 0; i--) {
        ConvolutionPasses *w = &steps->convolutions[i];
        void *kernel_memory[] = {w->input, w->output, w->kernel_gradient, w->bias_gradient};
        call_run(&w->backward_kernel, steps->scratch, kernel_memory);
        void *memory[] = {w->output, w->kernel_for_input, w->input_gradient};
        if (w->input_gradient)
            call_run(&w->backward_input, steps->scratch, memory);
    }
}

Model *steps_model(Steps *steps)
{
    return steps->model;
}

void run_steps(Steps *steps, int count)
{
    for (int i = 0; i < count; i++)
        if (steps->model)
            train_on_batch(steps->model, &steps->batch);
        else if (steps->mirrored)
            on_each_device(steps->mirrored, train_part, &steps->batch);
        else
            run_convolutions(steps);
    if (steps->model)
        model_metrics(steps->model); // waits
    for (int i = 0; steps->mirrored && i < mirrored_devices(steps->mirrored); i++)
        model_metrics(mirrored_model(steps->mirrored, i));
}
