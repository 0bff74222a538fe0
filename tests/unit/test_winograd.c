// Winograd's convolution alone, in each form that this machine can run, whatever the backend would
// choose: all directions against the definition in double precision, for odd sizes, for all ways
// of dividing the work, and with the same bits from any number of threads.

#include <math.h>
#include <string.h>

#include "child.h"
#include "cpu/winograd/winograd.h"
#include "operation.h"

#define TOLERANCE 2e-5
enum { TAPS = 9, SAMPLES = 1500 };

typedef enum { FORWARD, INPUT_GRADIENT, KERNEL_GRADIENT, DIRECTIONS } Direction;
static const char *const direction_names[] = {"output", "input's gradient", "kernel's gradient"};

typedef struct {
    const Winograd *winograd;
    WinogradShape shape;
    float *x, *kernel, *bias, *y_gradient;                   // what it reads
    float *y, *x_gradient, *kernel_gradient, *bias_gradient; // and gives
    size_t x_size, y_size, kernel_size;
} Layer;

static float *random_values(Rng *rng, size_t count)
{
    float *values = floats(count);
    fill_normal(rng, values, count, 0, 1);
    return values;
}

static Layer layer_create(const Winograd *w, WinogradShape s)
{
    size_t pixels = (size_t)s.batch * (size_t)s.height * (size_t)s.width;
    Layer l = {.winograd = w,
               .shape = s,
               .x_size = pixels * (size_t)s.in,
               .y_size = pixels * (size_t)s.out,
               .kernel_size = (size_t)(TAPS * s.in * s.out)};
    Rng rng = rng_stream_of(3, RNG_SYNTHETIC_DATA, 0);
    l.x = random_values(&rng, l.x_size);
    l.y_gradient = random_values(&rng, l.y_size);
    l.kernel = random_values(&rng, l.kernel_size);
    l.bias = random_values(&rng, (size_t)s.out);
    l.y = floats(l.y_size);
    l.x_gradient = floats(l.x_size);
    l.kernel_gradient = floats(l.kernel_size);
    l.bias_gradient = floats((size_t)s.out);
    return l;
}

static void layer_free(Layer *l)
{
    float *all[] = {l->x,          l->kernel,          l->bias,         l->y_gradient, l->y,
                    l->x_gradient, l->kernel_gradient, l->bias_gradient};
    for (size_t i = 0; i < COUNT(all); i++)
        free(all[i]);
}

// Runs all directions in working memory full of NaN, behind which nothing may be written.
static void layer_run(Layer *l, bool relu)
{
    const Winograd *w = l->winograd;
    size_t size = w->scratch(&l->shape), guard = 64;
    float *scratch = aligned_alloc(64, (size + guard + 15) / 16 * 64);
    ck_assert_ptr_nonnull(scratch);
    for (int d = FORWARD; d < DIRECTIONS; d++) {
        for (size_t i = 0; i < size + guard; i++)
            scratch[i] = NAN;
        if (d == FORWARD)
            w->forward(&l->shape, l->x, l->kernel, l->bias, relu, l->y, scratch);
        else if (d == INPUT_GRADIENT)
            w->backward_input(&l->shape, l->y_gradient, l->kernel, l->x_gradient, scratch);
        else
            w->backward_kernel(&l->shape, l->x, l->y_gradient, l->kernel_gradient, l->bias_gradient,
                               scratch);
        for (size_t i = size; i < size + guard; i++)
            ck_assert_msg(isnan(scratch[i]), "%s: wrote behind its memory", direction_names[d]);
    }
    free(scratch);
}

// Where an element lies, and its value; outside of the image it is 0.
static size_t at(const Layer *l, int channels, int n, int c, int y, int x)
{
    int lanes = l->winograd->lanes, blocks = channels / lanes;
    int chunk = n * blocks + c / lanes, pixel = y * l->shape.width + x;
    return ((size_t)chunk * (size_t)(l->shape.height * l->shape.width) + (size_t)pixel) *
               (size_t)lanes +
           (size_t)(c % lanes);
}

static double value(const Layer *l, const float *values, int channels, int n, int c, int y, int x)
{
    if (y < 0 || y >= l->shape.height || x < 0 || x >= l->shape.width)
        return 0;
    return (double)values[at(l, channels, n, c, y, x)];
}

static size_t kernel_at(const Layer *l, int in, int out, int tap)
{
    int lanes = l->winograd->lanes, blocks = l->shape.in / lanes;
    int block = (out / lanes * blocks + in / lanes) * TAPS + tap;
    return ((size_t)block * (size_t)lanes + (size_t)(in % lanes)) * (size_t)lanes +
           (size_t)(out % lanes);
}

// One place in what a direction gives.
typedef struct {
    int n, y, x, in, out, tap;
} Element;

static double exact(const Layer *l, Direction d, Element p)
{
    const WinogradShape *s = &l->shape;
    double sum = d == FORWARD ? (double)l->bias[p.out] : 0;
    for (int i = 0; d == FORWARD && i < s->in; i++)
        for (int t = 0; t < TAPS; t++)
            sum += value(l, l->x, s->in, p.n, i, p.y + t / 3 - 1, p.x + t % 3 - 1) *
                   (double)l->kernel[kernel_at(l, i, p.out, t)];
    for (int o = 0; d == INPUT_GRADIENT && o < s->out; o++)
        for (int t = 0; t < TAPS; t++)
            sum += value(l, l->y_gradient, s->out, p.n, o, p.y - t / 3 + 1, p.x - t % 3 + 1) *
                   (double)l->kernel[kernel_at(l, p.in, o, t)];
    for (int n = 0; d == KERNEL_GRADIENT && n < s->batch; n++)
        for (int y = 0; y < s->height; y++)
            for (int x = 0; x < s->width; x++)
                sum += value(l, l->y_gradient, s->out, n, p.out, y, x) *
                       value(l, l->x, s->in, n, p.in, y + p.tap / 3 - 1, x + p.tap % 3 - 1);
    return sum;
}

static double given(const Layer *l, Direction d, Element p)
{
    if (d == FORWARD)
        return (double)l->y[at(l, l->shape.out, p.n, p.out, p.y, p.x)];
    if (d == INPUT_GRADIENT)
        return (double)l->x_gradient[at(l, l->shape.in, p.n, p.in, p.y, p.x)];
    return (double)l->kernel_gradient[kernel_at(l, p.in, p.out, p.tap)];
}

static int below(Rng *rng, int count)
{
    return (int)(rng_uniform(rng) * (float)count) % count;
}

// Samples, since every element of a wide layer would take minutes. Images' corners are among them:
// there the padding is.
static void check_direction(const Layer *l, Direction d)
{
    const WinogradShape *s = &l->shape;
    Rng rng = rng_stream_of(7, RNG_SYNTHETIC_DATA, 0);
    double error = 0, largest = 0;
    for (int i = 0; i < SAMPLES; i++) {
        Element p = {below(&rng, s->batch), below(&rng, s->height), below(&rng, s->width),
                     below(&rng, s->in),    below(&rng, s->out),    below(&rng, TAPS)};
        if (i % 4 == 0) {
            p.y = p.y % 2 * (s->height - 1);
            p.x = p.x % 2 * (s->width - 1);
        }
        double wanted = exact(l, d, p), off = fabs(given(l, d, p) - wanted);
        error = off <= error ? error : off; // NaN stays
        largest = fmax(largest, fabs(wanted));
    }
    ck_assert_msg(error <= TOLERANCE * largest,
                  "%d lanes, %d x %d x %d, %d to %d channels, %s: off by %.1e of %.1e",
                  l->winograd->lanes, s->batch, s->height, s->width, s->in, s->out,
                  direction_names[d], error, largest);
}

static void check_bias(const Layer *l)
{
    const WinogradShape *s = &l->shape;
    for (int o = 0; o < s->out; o++) {
        double sum = 0, size = 0;
        for (int n = 0; n < s->batch; n++)
            for (int i = 0; i < s->height * s->width; i++) {
                double v = value(l, l->y_gradient, s->out, n, o, i / s->width, i % s->width);
                sum += v;
                size += fabs(v);
            }
        ck_assert_double_eq_tol((double)l->bias_gradient[o], sum, 1e-6 * size);
    }
}

// The forms of this machine.
static int forms(const Winograd **all)
{
    int count = 0;
    all[count++] = &winograd_generic;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        all[count++] = &winograd_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        all[count++] = &winograd_avx512;
#endif
    return count;
}

// Kernels that fit into a cache, and such that don't; sums in one part and in two; all tiles at
// once, in chunks, and in segments; tiles of all kinds; blocks of channels that come in pairs, and
// one left over.
static const WinogradShape shapes[] = {
    {1, 1, 1, 16, 16, 1},    {1, 3, 4, 16, 48, 2},    {2, 5, 9, 32, 16, 1},
    {3, 7, 7, 48, 32, 2},    {5, 9, 5, 16, 80, 3},    {1, 28, 28, 16, 16, 2},
    {2, 14, 13, 64, 16, 1},  {64, 7, 7, 32, 32, 2},   {3, 2, 17, 16, 16, 2},
    {2, 7, 7, 176, 176, 2},  {3, 5, 5, 352, 352, 2},  {2, 6, 11, 96, 352, 3},
    {33, 14, 14, 16, 32, 2}, {82, 7, 7, 352, 352, 2}, {8, 28, 28, 160, 160, 2},
    {40, 14, 14, 32, 32, 3},
};

START_TEST(all_directions_are_right)
{
    const Winograd *all[3];
    for (int f = forms(all) - 1; f >= 0; f--) {
        Layer l = layer_create(all[f], shapes[_i]);
        layer_run(&l, false);
        for (Direction d = FORWARD; d < DIRECTIONS; d++)
            check_direction(&l, d);
        check_bias(&l);
        layer_free(&l);
    }
}
END_TEST

// ReLU takes what is negative and lets NaN through, which only a training that has diverged has.
START_TEST(relu_is_part_of_it)
{
    const Winograd *all[3];
    for (int f = forms(all) - 1; f >= 0; f--) {
        Layer l = layer_create(all[f], (WinogradShape){2, 7, 6, 16, 16, 2});
        layer_run(&l, false);
        float *plain = l.y;
        l.y = floats(l.y_size);
        layer_run(&l, true);
        for (size_t i = 0; i < l.y_size; i++)
            ck_assert_float_eq(l.y[i], plain[i] > 0 ? plain[i] : 0);
        l.x[0] = NAN;
        layer_run(&l, true);
        ck_assert(isnan(l.y[0]));
        free(plain);
        layer_free(&l);
    }
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits)
{
    static const WinogradShape some[] = {
        {40, 7, 7, 352, 352, 1}, {40, 14, 14, 32, 32, 1}, {3, 9, 9, 48, 96, 1}};
    const Winograd *all[3];
    for (int f = forms(all) - 1; f >= 0; f--) {
        Layer one = layer_create(all[f], some[_i]);
        layer_run(&one, false);
        for (int threads = 2; threads <= 7; threads++) {
            Layer l = layer_create(all[f], some[_i]);
            l.shape.threads = threads;
            layer_run(&l, false);
            ck_assert_int_eq(memcmp(l.y, one.y, l.y_size * sizeof(float)), 0);
            ck_assert_int_eq(memcmp(l.x_gradient, one.x_gradient, l.x_size * sizeof(float)), 0);
            ck_assert_int_eq(
                memcmp(l.kernel_gradient, one.kernel_gradient, l.kernel_size * sizeof(float)), 0);
            layer_free(&l);
        }
        layer_free(&one);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("winograd");
    TCase *winograd = operation_case(suite, "winograd");
    tcase_add_loop_test(winograd, all_directions_are_right, 0, (int)COUNT(shapes));
    tcase_add_test(winograd, relu_is_part_of_it);
    tcase_add_loop_test(winograd, any_number_of_threads_gives_the_same_bits, 0, 3);
    return run_suite(suite);
}
