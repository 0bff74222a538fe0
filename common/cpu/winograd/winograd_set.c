// 3x3 convolutions by Winograd's minimal filtering. winograd_tile.h has the method, for one tile;
// here is what makes it fast for many: each of the 36 products is a product of matrices, (tiles,
// channels) by (channels, channels), and what it reads and writes should be in a core's cache.
//
// Tiles go in strips, as many as there are registers for. A thread takes some strips, transforms
// them, and multiplies them by the kernels for a few of the resulting channels at a time, so that
// the products are still in its cache when they are transformed back (run_apart). Where there are
// few tiles and many channels, it is the kernels that must not be read too often: then all threads
// transform some tiles each, and share out the resulting channels; kernels are transformed just
// before they are used (run_together).
//
// How the work is divided among threads has no influence on the order of any sum: the same bits
// come with any number of them.
//
// Compiled several times: WINOGRAD names the table of this build.

#include "cpu/winograd/winograd.h"

// Rows and vectors of the products are what the registers hold: STRIP x GROUP forward, ROWS x
// MAX_VECTORS for the gradient of the kernel.
#ifdef __AVX512F__
#define VECTOR 16
enum { LANES = 16, STRIP = 12, ROWS = 8 };
#else
#define VECTOR 8
enum { LANES = 8, STRIP = 6, ROWS = 4 };
#endif
enum { GROUP = 2, MAX_VECTORS = 3 };
enum { BLOCK = STRIP * LANES }; // floats: a strip of one block of channels
enum { KERNEL_BLOCK = LANES * LANES };

#include "cpu/winograd/grid.h"
#include "cpu/winograd/kernel_gradient.h"
#include "cpu/winograd/product.h"
#include "cpu/winograd/strip.h"

// ---- Forward, and the gradient of the input: the same with every kernel turned by half a turn,
// and its channels swapped.

typedef struct {
    Grid grid;
    int sums, results; // blocks of channels: those summed over, and those that result
    int threads;
    const Activation *x;
    const float *kernel, *bias;
    bool relu, turned;
    Activation *y;

    bool together;
    int chunk;                   // strips that are transformed before they are multiplied
    int range;                   // strips whose products are taken before they are transformed back
    int some_sums, some_results; // and blocks
    Panels tiles, products;
    size_t kernel_stride; // between the products of kernels
} Pass;

// What must stay in a core's cache of the second level: 1 MiB is on a laptop, too.
enum { CACHE = 1 << 20 };

static size_t kernel_floats(int sums, int results)
{
    return spread((size_t)sums * (size_t)results * KERNEL_BLOCK);
}

// As much of the tiles as there are kernels, within limits: both are read in turns.
static void plan_apart(Pass *p)
{
    enum { MIN_BYTES = CACHE / 4, MAX_BYTES = 6 * CACHE };
    p->kernel_stride = kernel_floats(p->sums, p->results);
    int bytes = (int)(p->kernel_stride * PRODUCTS * sizeof(float));
    bytes = max(MIN_BYTES, min(bytes, MAX_BYTES));
    p->chunk = p->range = min(p->grid.strips, max(1, bytes / (STRIP_BYTES * p->sums)));
    p->some_sums = p->sums;
    p->some_results = min(p->results, GROUP);
}

static void plan_together(Pass *p)
{
    enum { TILES = 16 << 20, SUMS = 320 / LANES };
    int max_strips = max(1, TILES / (STRIP_BYTES * p->sums));
    p->chunk = pieces(p->grid.strips, pieces(p->grid.strips, max_strips));
    p->some_results = min(p->results, GROUP);
    p->some_sums = pieces(p->sums, pieces(p->sums, SUMS));
    int ranges = pieces(p->chunk, max(1, CACHE / (STRIP_BYTES * p->some_results)));
    p->range = pieces(p->chunk, ranges);
    p->kernel_stride = kernel_floats(p->some_sums, p->some_results);
}

static Pass pass_of(const WinogradShape *s, bool turned)
{
    enum { KERNELS = 16 << 20 }; // bytes that may come from memory again and again
    Pass p = {.grid = grid_of(s), .threads = s->threads, .turned = turned};
    p.sums = (turned ? s->out : s->in) / LANES;
    p.results = (turned ? s->in : s->out) / LANES;
    p.together = kernel_floats(p.sums, p.results) * PRODUCTS * sizeof(float) > KERNELS;
    if (p.together)
        plan_together(&p);
    else
        plan_apart(&p);
    p.tiles = panels_of(p.chunk, p.sums);
    p.products = panels_of(p.range, p.some_results);
    return p;
}

static size_t pass_scratch(const Pass *p)
{
    size_t kernels = p->kernel_stride * PRODUCTS, threads = (size_t)p->threads;
    size_t tiles = panels_size(p->tiles), products = panels_size(p->products);
    return p->together ? tiles + threads * (kernels + products)
                       : kernels + threads * (tiles + products);
}

static void transpose(const float *from, float *to)
{
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < LANES; j++)
            to[j * LANES + i] = from[i * LANES + j];
}

// The kernels from one block of channels to another; rows that are summed over are `row` floats
// apart.
static void transform_kernel_block(const Pass *p, int sum, int result, float *to, size_t row)
{
    enum { ALL_TAPS = TAPS * TAPS };
    float turned[ALL_TAPS * KERNEL_BLOCK];
    size_t block = (size_t)result * (size_t)p->sums + (size_t)sum;
    if (p->turned)
        block = (size_t)sum * (size_t)p->results + (size_t)result;
    const float *from = p->kernel + block * ALL_TAPS * KERNEL_BLOCK;
    if (p->turned) {
        for (int t = 0; t < ALL_TAPS; t++)
            transpose(from + t * KERNEL_BLOCK, turned + (ALL_TAPS - 1 - t) * KERNEL_BLOCK);
        from = turned;
    }
    for (int i = 0; i < LANES; i++)
        transform_kernel(from + i * LANES, KERNEL_BLOCK, to + (size_t)i * row, p->kernel_stride);
}

// To (groups, channels summed over, vectors of the group, LANES).
static void transform_kernels(const Pass *p, Interval sums, Interval results, float *to)
{
    size_t count = (size_t)(sums.end - sums.begin);
    for (int g = results.begin; g < results.end; g += GROUP) {
        size_t vectors = (size_t)min(GROUP, results.end - g);
        float *group = to + (size_t)(g - results.begin) * count * KERNEL_BLOCK;
        for (int s = sums.begin; s < sums.end; s++)
            for (size_t v = 0; v < vectors; v++)
                transform_kernel_block(p, s, g + (int)v,
                                       group + (size_t)(s - sums.begin) * vectors * KERNEL_BLOCK +
                                           v * LANES,
                                       vectors * LANES);
    }
}

// A group of channels for some strips of one product. Strips are counted in the panels.
static void multiply_group(int product, Interval strips, int first_strip, Interval sums,
                           const float *kernels, int vectors, int group, const Panels *tiles,
                           const Panels *products)
{
    for (int s = strips.begin; s < strips.end; s++)
        strip_product(vectors, sums.end - sums.begin,
                      panel(tiles, s, sums.begin) + (size_t)product * tiles->stride, kernels,
                      panel(products, s - first_strip, group) + (size_t)product * products->stride,
                      sums.begin > 0);
}

// Strips of the tiles, the first of which is strip `offset` of the grid, times kernels.
static void multiply(const Pass *p, const Panels *tiles, int offset, Interval strips, Interval sums,
                     Interval results, const float *kernels, const Panels *products)
{
    size_t group_floats = (size_t)(sums.end - sums.begin) * KERNEL_BLOCK;
    for (int i = 0; i < PRODUCTS; i++) {
        Present present = product_present(&p->grid, i);
        Interval head = common_part(strips, (Interval){0, present.head - offset});
        Interval tail =
            common_part(strips, (Interval){present.tail - offset, p->grid.strips - offset});
        for (int g = 0; g < results.end - results.begin; g += GROUP) {
            int vectors = min(GROUP, results.end - results.begin - g);
            const float *group = kernels + (size_t)i * p->kernel_stride + (size_t)g * group_floats;
            multiply_group(i, head, strips.begin, sums, group, vectors, g, tiles, products);
            multiply_group(i, tail, strips.begin, sums, group, vectors, g, tiles, products);
        }
    }
}

INLINE void write_tile(const Pass *p, const float *from, size_t stride, int result, Tile t)
{
    Floats bias = p->bias ? load(p->bias + result * LANES) : (Floats){0};
    Plane plane = {NULL, p->grid.height, p->grid.width};
    size_t chunk = (size_t)t.image * (size_t)p->results + (size_t)result;
    Activation *to = p->y + chunk * (size_t)plane.height * (size_t)plane.width * LANES;
    if (t.short_rows && t.short_columns)
        transform_output(true, true, from, stride, bias, p->relu, plane, t, to);
    else if (t.short_rows)
        transform_output(true, false, from, stride, bias, p->relu, plane, t, to);
    else if (t.short_columns)
        transform_output(false, true, from, stride, bias, p->relu, plane, t, to);
    else
        transform_output(false, false, from, stride, bias, p->relu, plane, t, to);
}

// Strips from `offset` of the grid on, which stand at the beginning of the panels.
static void write_results(const Pass *p, const Panels *products, int offset, int strips,
                          Interval results)
{
    for (int s = 0; s < strips; s++)
        for (int i = 0; i < STRIP; i++) {
            Tile t = tile_at(&p->grid, (offset + s) * STRIP + i);
            for (int r = results.begin; r < results.end && t.image >= 0; r++)
                write_tile(p, panel(products, s, r - results.begin) + i * LANES, products->stride,
                           r, t);
        }
}

// Some strips by one thread: tiles, products and results.
static void run_strips(const Pass *p, Interval strips, const float *kernels, const Panels *tiles,
                       const Panels *products)
{
    StripSource source = {&p->grid, p->x, p->sums, false};
    int count = strips.end - strips.begin;
    for (int i = 0; i < count; i++)
        transform_strip(&source, strips.begin + i, tiles, i);
    for (int r = 0; r < p->results; r += p->some_results) {
        Interval results = {r, min(r + p->some_results, p->results)};
        multiply(p, tiles, strips.begin, (Interval){0, count}, (Interval){0, p->sums}, results,
                 kernels + (size_t)r * (size_t)p->sums * KERNEL_BLOCK, products);
        write_results(p, products, strips.begin, count, results);
    }
}

static void run_apart(const Pass *p, float *scratch)
{
    float *kernels = scratch, *rest = scratch + p->kernel_stride * PRODUCTS;
#pragma omp parallel num_threads(p->threads)
    {
        float *own = rest + (size_t)omp_get_thread_num() *
                                (panels_size(p->tiles) + panels_size(p->products));
        Panels tiles = panels_at(own, p->tiles);
        Panels products = panels_at(own + panels_size(tiles), p->products);
        Interval groups = my_share(pieces(p->results, GROUP));
        Interval results = {groups.begin * GROUP, min(groups.end * GROUP, p->results)};
        transform_kernels(p, (Interval){0, p->sums}, results,
                          kernels + (size_t)(results.begin * p->sums) * KERNEL_BLOCK);
#pragma omp barrier
        Interval mine = my_share(p->grid.strips);
        for (int s = mine.begin; s < mine.end; s += p->chunk)
            run_strips(p, (Interval){s, min(s + p->chunk, mine.end)}, kernels, &tiles, &products);
    }
}

// Some results of some strips of the chunk that begins at `offset`, by one thread.
static void run_results(const Pass *p, const Panels *tiles, int offset, Interval strips,
                        Interval results, bool fresh, float *kernels, const Panels *products)
{
    for (int s = 0; s < p->sums; s += p->some_sums) {
        Interval sums = {s, min(s + p->some_sums, p->sums)};
        if (fresh || p->some_sums < p->sums)
            transform_kernels(p, sums, results, kernels);
        multiply(p, tiles, offset, strips, sums, results, kernels, products);
    }
    write_results(p, products, offset + strips.begin, strips.end - strips.begin, results);
}

static void run_chunk(const Pass *p, const Panels *tiles, int offset, float *kernels,
                      const Panels *products)
{
    StripSource source = {&p->grid, p->x, p->sums, false};
    int count = min(p->chunk, p->grid.strips - offset), ranges = pieces(count, p->range);
    Interval mine = my_share(count);
    for (int s = mine.begin; s < mine.end; s++)
        transform_strip(&source, offset + s, tiles, s);
#pragma omp barrier
    Interval jobs = my_share(pieces(p->results, p->some_results) * ranges);
    for (int job = jobs.begin; job < jobs.end; job++) {
        int first = job / ranges * p->some_results, strip = job % ranges * p->range;
        run_results(p, tiles, offset, (Interval){strip, min(strip + p->range, count)},
                    (Interval){first, min(first + p->some_results, p->results)},
                    strip == 0 || job == jobs.begin, kernels, products);
    }
#pragma omp barrier
}

static void run_together(const Pass *p, float *scratch)
{
    Panels tiles = panels_at(scratch, p->tiles);
    float *rest = scratch + panels_size(tiles);
#pragma omp parallel num_threads(p->threads)
    {
        size_t own = p->kernel_stride * PRODUCTS + panels_size(p->products);
        float *kernels = rest + (size_t)omp_get_thread_num() * own;
        Panels products = panels_at(kernels + p->kernel_stride * PRODUCTS, p->products);
        for (int offset = 0; offset < p->grid.strips; offset += p->chunk)
            run_chunk(p, &tiles, offset, kernels, &products);
    }
}

static void run_pass(const Pass *p, float *scratch)
{
    if (p->together)
        run_together(p, scratch);
    else
        run_apart(p, scratch);
}

static void forward(const WinogradShape *shape, const void *x, const float *kernel,
                    const float *bias, bool relu, void *y, float *scratch)
{
    Pass p = pass_of(shape, false);
    p.x = x;
    p.kernel = kernel;
    p.bias = bias;
    p.relu = relu;
    p.y = y;
    run_pass(&p, scratch);
}

static void backward_input(const WinogradShape *shape, const void *y_gradient, const float *kernel,
                           void *x_gradient, float *scratch)
{
    Pass p = pass_of(shape, true);
    p.x = y_gradient;
    p.kernel = kernel;
    p.y = x_gradient;
    run_pass(&p, scratch);
}

static size_t scratch_floats(const WinogradShape *shape)
{
    Pass there = pass_of(shape, false), back = pass_of(shape, true);
    KernelPass kernel = kernel_pass_of(shape);
    size_t a = pass_scratch(&there), b = pass_scratch(&back), c = kernel_pass_scratch(&kernel);
    size_t larger = a > b ? a : b;
    return larger > c ? larger : c;
}

const Winograd WINOGRAD = {
    .lanes = LANES,
    .scratch = scratch_floats,
    .forward = forward,
    .backward_input = backward_input,
    .backward_kernel = backward_kernel,
};
