// Wide ResNet's 3x3 convolutions one by one: the kit's Winograd beside oneDNN's best, in the same
// layouts, and the least that Winograd's multiplications take at the rate of a large matrix
// product.

#include "bench.h"

#include <omp.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "cpu/backend_cpu_inside.h"
#include "run/device.h"

enum { DIRECTIONS = 3 };
static const char *const direction_names[] = {"forward", "input's gradient", "kernel's gradient"};

static float *values(size_t count)
{
    float *v = backend_cpu.allocate(device_current(), (count + 16) * sizeof *v);
    for (size_t i = 0; i < count; i++)
        v[i] = 0.01f * (float)(i % 97) - 0.5f;
    return v;
}

// Multiplications and additions in a second, of large matrices.
static double product_rate(int rounds)
{
    enum { N = 1024 };
    float *a = values(N * N), *b = values(N * N), *c = values(N * N);
    double seconds[MAX_ROUNDS];
    for (int r = -1; r < rounds; r++) {
        double begin = seconds_now();
        matrix_multiply(false, false, N, N, N, a, b, c);
        seconds[r < 0 ? 0 : r] = seconds_now() - begin;
    }
    backend_cpu.release(device_current(), a);
    backend_cpu.release(device_current(), b);
    backend_cpu.release(device_current(), c);
    return 2.0 * N * N * N / median(seconds, rounds);
}

// Products in a row of so many pixels: six for a tile of four, five for one of three.
static int row_products(int pixels)
{
    int tiles = (pixels + 3) / 4, spare = tiles * 4 - pixels;
    return 6 * tiles - (spare < tiles ? spare : tiles);
}

// One layer: activations and kernels in the kit's layouts.
typedef struct {
    WinogradShape shape;
    float *x, *kernel, *y, *scratch; // gradients are written where the values are
    Call calls[DIRECTIONS];
    void *call_scratch;
} Layer;

static Call call_of(const Convolution *c, int direction)
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
    dnnl_primitive_desc_t forward = convolution_forward(c), pd = forward;
    if (direction == 1)
        pd = convolution_backward_input(c, forward);
    else if (direction == 2)
        pd = convolution_backward_kernel(c, forward);
    PortSpec ports[3];
    for (int i = 0; i < 3; i++) // the kernel in the layout that oneDNN likes
        ports[i] =
            (PortSpec){roles[direction][i].argument, roles[direction][i].what, 0,
                       chosen_desc(pd, roles[direction][i].what, 0), i == written[direction]};
    Call call = call_prepare(c->dnn, pd, ports, 3);
    if (pd != forward)
        dnnl_primitive_desc_destroy(forward);
    return call;
}

static Layer layer_create(WinogradShape s)
{
    size_t pixels = (size_t)s.batch * (size_t)s.height * (size_t)s.width;
    Layer l = {.shape = s,
               .x = values(pixels * (size_t)s.in),
               .kernel = values((size_t)(9 * s.in * s.out)),
               .y = values(pixels * (size_t)s.out),
               .scratch = values(winograd()->scratch(&s))};
    Convolution c = {
        .dnn = onednn_of(device_current()),
        .algorithm = dnnl_convolution_auto,
        .kernel_size = 3,
        .input = desc_create(4, (int[]){s.batch, s.in, s.height, s.width}, blocked_tag()),
        .kernel = desc_create(4, (int[]){s.out, s.in, 3, 3}, dnnl_format_tag_any),
        .output = desc_create(4, (int[]){s.batch, s.out, s.height, s.width}, blocked_tag())};
    size_t bytes = 1;
    for (int d = 0; d < DIRECTIONS; d++) {
        l.calls[d] = call_of(&c, d);
        bytes = l.calls[d].scratch_bytes > bytes ? l.calls[d].scratch_bytes : bytes;
    }
    l.call_scratch = backend_cpu.allocate(device_current(), bytes);
    desc_free(c.input);
    desc_free(c.kernel);
    desc_free(c.output);
    return l;
}

static void layer_free(Layer *l)
{
    void *all[] = {l->x, l->kernel, l->y, l->scratch, l->call_scratch};
    for (int i = 0; i < 5; i++)
        backend_cpu.release(device_current(), all[i]);
    for (int d = 0; d < DIRECTIONS; d++)
        call_free(&l->calls[d]);
}

static void run_own(Layer *l, int direction)
{
    const Winograd *w = winograd();
    if (direction == 0)
        w->forward(&l->shape, l->x, l->kernel, NULL, false, l->y, l->scratch);
    else if (direction == 1)
        w->backward_input(&l->shape, l->y, l->kernel, l->x, l->scratch);
    else
        w->backward_kernel(&l->shape, l->x, l->y, l->kernel, NULL, l->scratch);
}

// In turns, so that a busy moment meets both.
static void time_layer(WinogradShape s, int rounds, double rate)
{
    Layer l = layer_create(s);
    void *memory[] = {l.x, l.kernel, l.y};
    double least = 2.0 * s.batch * row_products(s.height) * row_products(s.width) * s.in * s.out;
    for (int d = 0; d < DIRECTIONS; d++) {
        double own[MAX_ROUNDS], theirs[MAX_ROUNDS];
        for (int r = -1; r < rounds; r++) {
            double begin = seconds_now();
            run_own(&l, d);
            double between = seconds_now();
            call_run(&l.calls[d], l.call_scratch, memory);
            own[r < 0 ? 0 : r] = between - begin;
            theirs[r < 0 ? 0 : r] = seconds_now() - between;
        }
        printf("%2d x %2d x %2d, %3d channels  %-18s %8.2f %8.2f %8.2f %6.2f x\n", s.batch,
               s.height, s.width, s.in, direction_names[d], 1e3 * median(own, rounds),
               1e3 * median(theirs, rounds), 1e3 * least / rate,
               median(theirs, rounds) / median(own, rounds));
        fflush(stdout);
    }
    layer_free(&l);
}

void bench_layers(bool quick)
{
    static const int layers[][3] = {{64, 28, 16},  {64, 14, 32},  {64, 7, 64},
                                    {32, 28, 160}, {32, 14, 320}, {32, 7, 640}};
    if (!winograd())
        die("--layers: the kit has none of its own for a processor without AVX2");
    int rounds = quick ? 3 : MAX_ROUNDS, count = quick ? 3 : 6;
    double rate = product_rate(rounds);
    printf("Convolutions 3x3, %d lanes; matrix products: %.0f Gflop/s\n", lanes(), 1e-9 * rate);
    printf("%-27s %-18s %8s %8s %8s %8s\n", "layer", "milliseconds", "hvdlab", "oneDNN", "limit",
           "faster");
    for (int i = 0; i < count; i++) {
        const int *l = layers[i];
        time_layer((WinogradShape){l[0], l[1], l[1], l[2], l[2], omp_get_max_threads()}, rounds,
                   rate);
    }
}
