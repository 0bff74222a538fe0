// Convolution against the double-precision reference: small and awkward shapes, then the large
// batches where the backend changes to Winograd, and what that costs in digits. Through backend.h,
// so that every backend has to pass; only the direct convolution beside Winograd is oneDNN's own.

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "comparison.h"
#include "cpu/backend_cpu_inside.h"
#include "operation.h"
#include "reference.h"
#include "base/memory.h"

// Winograd rounds in its transforms too.
#define WINOGRAD_TOLERANCE 2e-5

START_TEST(conv2d_is_right)
{
    static const Spec shapes[] = {
        {.batch = 1, .in = {1, 1, 1}, .filters = 1, .size = 3},
        {.batch = 2, .in = {5, 7, 17}, .filters = 33, .size = 3},
        {.batch = 3, .in = {4, 3, 8}, .filters = 9, .size = 1},
        {.batch = 1, .in = {7, 6, 33}, .filters = 5, .size = 3},
        {.batch = 3, .in = {3, 5, 16}, .filters = 16, .size = 3},
        {.batch = 40, .in = {3, 3, 16}, .filters = 16, .size = 3}, // Winograd, short tiles alone
        // With bfloat16 and AMX by a kernel's rows.
        {.batch = 3, .in = {5, 7, 64}, .filters = 80, .size = 3},
        {.batch = 2, .in = {3, 14, 144}, .filters = 128, .size = 3},
        {.batch = 3, .in = {4, 1, 96}, .filters = 64, .size = 3},
        {.batch = 2, .in = {6, 6, 9}, .filters = 17, .size = 5},
        {.batch = 2, .in = {2, 1, 5}, .filters = 3, .size = 3},
        {.batch = 1, .in = {1, 7, 3}, .filters = 8, .size = 1},
        {.batch = 2, .in = {7, 5, 1}, .filters = 8, .size = 3, .image = true},
        {.batch = 3, .in = {5, 6, 3}, .filters = 16, .size = 3, .image = true},
        {.batch = 2, .in = {3, 1, 2}, .filters = 33, .size = 3, .image = true},
        {.batch = 2, .in = {6, 5, 3}, .filters = 17, .size = 1, .image = true},
        {.batch = 1, .in = {7, 7, 1}, .filters = 33, .size = 5, .image = true},
        {.batch = 2, .in = {4, 7, 5}, .filters = 9, .size = 3, .image = true},
        {.batch = 1, .in = {3, 3, 17}, .filters = 1, .size = 3, .image = true},
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        Spec spec = shapes[i];
        spec.kind = OP_CONV2D;
        check_spec(spec);
        spec.relu = true;
        check_spec(spec);
        spec.relu = false;
        spec.no_gradient = true;
        check_spec(spec);
    }
}
END_TEST

// Wide ResNet's convolutions, at batch sizes where the backend changes to Winograd. Shortcuts have
// a kernel of 1.
START_TEST(conv2d_is_right_in_wide_resnet)
{
    static const Spec specs[] = {
        {OP_CONV2D, .batch = 64, .in = {28, 28, 1}, .filters = 16, .size = 3, .image = true},
        {OP_CONV2D, .batch = 32, .in = {28, 28, 3}, .filters = 16, .size = 3, .image = true},
        {OP_CONV2D, .batch = 32, .in = {28, 28, 16}, .filters = 16, .size = 3, .no_gradient = true},
        {OP_CONV2D, .batch = 64, .in = {28, 28, 16}, .filters = 16, .size = 1},
        {OP_CONV2D, .batch = 64, .in = {14, 14, 16}, .filters = 32, .size = 3, .no_gradient = true},
        {OP_CONV2D, .batch = 64, .in = {14, 14, 16}, .filters = 32, .size = 1},
        {OP_CONV2D, .batch = 64, .in = {14, 14, 32}, .filters = 32, .size = 3, .relu = true},
        {OP_CONV2D, .batch = 32, .in = {14, 14, 32}, .filters = 32, .size = 3},
        {OP_CONV2D, .batch = 32, .in = {7, 7, 32}, .filters = 64, .size = 1},
        {OP_CONV2D, .batch = 64, .in = {7, 7, 64}, .filters = 64, .size = 3, .no_gradient = true},
    };
    CHECK_SPECS(specs);
}
END_TEST

// A cheap shape, of odd size, for Winograd.
#define WIDE .batch = 16, .in = {7, 7, 256}, .filters = 256, .size = 3

START_TEST(conv2d_is_right_with_winograd_in_all_directions)
{
    backend();
    omp_set_num_threads(2);
    check_spec((Spec){OP_CONV2D, WIDE, .no_gradient = true});
}
END_TEST

// How far Winograd is from the truth, beside direct convolution.

typedef enum { FORWARD, INPUT_GRADIENT, KERNEL_GRADIENT, DIRECTIONS } Direction;
static const char *const direction_names[] = {"output", "input's gradient", "kernel's gradient"};

// The input's gradient is a convolution too: of the output's gradient, with the kernel turned by
// half a turn and its channels swapped.
static double *exact_input_gradient(const Trial *t, const Reference *forward_pass)
{
    const Op *op = &t->op;
    int in = op->in.channels, out = op->out.channels, taps = op->size * op->size;
    Op turned = *op;
    turned.in = op->out;
    turned.out = op->in;
    Reference r = {.op = &turned, .batch = t->batch};
    size_t count = value_size(turned.out, t->batch);
    r.output = doubles(count);
    r.sources[INPUT] = widen(t->output_gradient[0], value_size(turned.in, t->batch));
    r.sources[BIAS] = doubles((size_t)in);
    r.sources[KERNEL] = doubles((size_t)taps * (size_t)in * (size_t)out);
    for (int tap = 0; tap < taps; tap++)
        for (int i = 0; i < in; i++)
            for (int o = 0; o < out; o++)
                r.sources[KERNEL][((taps - 1 - tap) * out + o) * in + i] =
                    forward_pass->sources[KERNEL][(tap * in + i) * out + o];
    reference_forward(&r, all_outputs(&r));
    for (int source = 0; source < SOURCES; source++)
        free(r.sources[source]);
    return r.output;
}

// What one pixel of the output's gradient adds to the gradient of the kernel.
static void add_kernel_gradient(const Reference *r, const double *gradient, int n, int y, int x,
                                double *sum)
{
    const Op *op = r->op;
    int in = op->in.channels, out = op->out.channels;
    for (int tap = 0; tap < op->size * op->size; tap++) {
        int from_y = y + tap / op->size - op->size / 2, from_x = x + tap % op->size - op->size / 2;
        if (from_y < 0 || from_y >= op->in.height || from_x < 0 || from_x >= op->in.width)
            continue;
        const double *pixel =
            r->sources[INPUT] + ((n * op->in.height + from_y) * op->in.width + from_x) * in;
        for (int i = 0; i < in; i++)
            for (int o = 0; o < out; o++)
                sum[(tap * in + i) * out + o] += pixel[i] * gradient[o];
    }
}

static double *exact_kernel_gradient(const Trial *t, const Reference *r)
{
    Shape out = t->op.out;
    double *sum = doubles(source_size(&t->op, t->batch, KERNEL));
    double *gradient = widen(t->output_gradient[0], value_size(out, t->batch)), *pixel = gradient;
    for (int n = 0; n < t->batch; n++)
        for (int y = 0; y < out.height; y++)
            for (int x = 0; x < out.width; x++, pixel += out.channels)
                add_kernel_gradient(r, pixel, n, y, x, sum);
    free(gradient);
    return sum;
}

// One direction of a direct convolution by oneDNN, in the layouts that it likes. It reads two
// tensors and writes the third: NHWC activations and the kernel in Keras's order.
static dnnl_primitive_desc_t direct_convolution(const Trial *t, Direction direction)
{
    Shape in = t->op.in, out = t->op.out;
    int inputs[] = {t->batch, in.channels, in.height, in.width};
    int outputs[] = {t->batch, out.channels, out.height, out.width};
    int kernel[] = {out.channels, in.channels, t->op.size, t->op.size};
    Convolution c = {.dnn = onednn_of(device_current()),
                     .algorithm = dnnl_convolution_direct,
                     .kernel_size = t->op.size,
                     .input = desc_create(4, inputs, dnnl_format_tag_any),
                     .output = desc_create(4, outputs, dnnl_format_tag_any),
                     .kernel = desc_create(4, kernel, dnnl_format_tag_any)};
    dnnl_primitive_desc_t first = convolution_forward(&c), pd = first;
    if (direction == INPUT_GRADIENT)
        pd = convolution_backward_input(&c, first);
    else if (direction == KERNEL_GRADIENT)
        pd = convolution_backward_kernel(&c, first);
    if (pd != first)
        dnnl_primitive_desc_destroy(first);
    desc_free(c.input);
    desc_free(c.output);
    desc_free(c.kernel);
    return pd;
}

static void run_direct(const Trial *t, Direction direction, float *result)
{
    static const struct {
        int argument;
        dnnl_query_t what;
    } roles[DIRECTIONS][3] = {
        {{DNNL_ARG_SRC, dnnl_query_src_md},
         {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
         {DNNL_ARG_DST, dnnl_query_dst_md}},
        {{DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md},
         {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
         {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md}},
        {{DNNL_ARG_SRC, dnnl_query_src_md},
         {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md},
         {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md}},
    };
    static const int written[] = {2, 0, 1};
    Shape in = t->op.in, out = t->op.out;
    Desc outside[] = {
        desc_create(4, (int[]){t->batch, in.channels, in.height, in.width}, dnnl_nhwc),
        desc_create(4, (int[]){out.channels, in.channels, t->op.size, t->op.size}, dnnl_hwio),
        desc_create(4, (int[]){t->batch, out.channels, out.height, out.width}, dnnl_nhwc)};
    void *memory[] = {t->sources[INPUT], t->sources[KERNEL], t->output_gradient[0]};
    PortSpec ports[3];
    for (int i = 0; i < 3; i++)
        ports[i] = (PortSpec){roles[direction][i].argument, roles[direction][i].what, 0, outside[i],
                              i == written[direction]};
    memory[written[direction]] = result;
    Call call =
        call_prepare(onednn_of(device_current()), direct_convolution(t, direction), ports, 3);
    void *scratch = allocate(1, call.scratch_bytes + 1);
    call_run(&call, scratch, memory);
    call_free(&call);
    free(scratch);
    for (int i = 0; i < 3; i++)
        desc_free(outside[i]);
}

static void check_winograd(Spec spec)
{
    Trial *t = trial_create(&spec);
    memset(t->sources[BIAS], 0, (size_t)spec.filters * sizeof(float));
    Reference r = reference_create(t);
    reference_forward(&r, all_outputs(&r));
    trial_run(t);
    double *exact[] = {r.output, exact_input_gradient(t, &r), exact_kernel_gradient(t, &r)};
    const float *results[] = {t->output, t->gradients[INPUT], t->gradients[KERNEL]};
    size_t counts[] = {value_size(t->op.out, t->batch), value_size(t->op.in, t->batch),
                       source_size(&t->op, t->batch, KERNEL)};
    for (Direction d = FORWARD; d < DIRECTIONS; d++) {
        float *direct = floats(counts[d]);
        run_direct(t, d, direct);
        double error = largest_error(results[d], exact[d], counts[d]);
        double direct_error = largest_error(direct, exact[d], counts[d]);
        printf("%s: error of the %s %.1e, in direct convolution %.1e\n", describe(&spec),
               direction_names[d], error, direct_error);
        check_error(&spec, direction_names[d], error, WINOGRAD_TOLERANCE);
        check_error(&spec, "direct convolution", direct_error, WINOGRAD_TOLERANCE);
        free(direct);
    }
    free(exact[INPUT_GRADIENT]);
    free(exact[KERNEL_GRADIENT]);
    reference_free(&r);
    trial_free(t);
}

START_TEST(winograd_keeps_enough_digits)
{
    backend();
    omp_set_num_threads(2);
    check_winograd((Spec){OP_CONV2D, .batch = 64, .in = {14, 14, 32}, .filters = 32, .size = 3});
    check_winograd((Spec){OP_CONV2D, WIDE});
}
END_TEST

// One job or many, and several chunks: other threads than before take the pieces, and no sum is
// taken in another order.
START_TEST(winograd_gives_the_same_bits_with_any_number_of_threads)
{
    static const Spec specs[] = {
        {OP_CONV2D, .batch = 16, .in = {14, 13, 16}, .filters = 16, .size = 3},
        {OP_CONV2D, .batch = 64, .in = {28, 28, 16}, .filters = 32, .size = 3},
        {OP_CONV2D, .batch = 32, .in = {7, 7, 96}, .filters = 48, .size = 3},
        {OP_CONV2D, .batch = 7, .in = {9, 10, 3}, .filters = 33, .size = 3, .image = true},
    };
    backend();
    bool ours = !device_is_gpu() && device_precision() == PRECISION_FP32 && winograd();
    for (size_t i = 0; i < COUNT(specs) && ours; i++) {
        Trial *t = trial_create(&specs[i]);
        uint64_t alone = 0;
        for (int threads = 1; threads <= 5; threads++) {
            omp_set_num_threads(threads);
            trial_run(t);
            alone = threads == 1 ? trial_fingerprint(t) : alone;
            ck_assert_msg(trial_fingerprint(t) == alone, "%s: other bits with %d threads",
                          describe(&specs[i]), threads);
        }
        trial_free(t);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("convolution");

    TCase *convolution = operation_case(suite, "convolution");
    tcase_add_test(convolution, conv2d_is_right);
    tcase_add_test(convolution, conv2d_is_right_in_wide_resnet);
    tcase_add_test(convolution, conv2d_is_right_with_winograd_in_all_directions);
    const char *device = getenv("HVDLAB_TEST_DEVICE");
    if (!device || strcmp(device, "cpu") == 0) {
        tcase_add_test(convolution, winograd_keeps_enough_digits);
        tcase_add_test(convolution, winograd_gives_the_same_bits_with_any_number_of_threads);
    }

    return run_suite(suite);
}
