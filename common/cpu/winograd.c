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

#include "cpu/winograd.h"

// Rows and vectors of the products are what the registers hold: STRIP x GROUP forward, ROWS x
// MOST_VECTORS for the gradient of the kernel.
#ifdef __AVX512F__
#define VECTOR 16
enum { LANES = 16, STRIP = 12, ROWS = 8 };
#else
#define VECTOR 8
enum { LANES = 8, STRIP = 6, ROWS = 4 };
#endif
enum { GROUP = 2, MOST_VECTORS = 3 };
enum { BLOCK = STRIP * LANES }; // floats: a strip of one block of channels

#include "cpu/winograd_grid.h"
#include "cpu/winograd_product.h"

// ---- From activations to transformed values.

// What is transformed: activations, of the input or the gradient of the output.
typedef struct {
    const Grid *grid;
    const float *values;
    int blocks;
    bool gradient;
} Source;

static Plane plane_of(const Source *s, Tile t, int block)
{
    const Grid *g = s->grid;
    size_t chunk = (size_t)t.image * (size_t)s->blocks + (size_t)block;
    return (Plane){s->values + chunk * (size_t)g->height * (size_t)g->width * LANES, g->height,
                   g->width};
}

INLINE void transform_kind(bool rows, bool columns, bool gradient, Plane plane, Tile t, float *to,
                           size_t stride)
{
    if (gradient)
        transform_gradient(rows, columns, plane, t, to, stride);
    else
        transform_input(rows, columns, plane, t, to, stride);
}

INLINE void transform_tile(bool gradient, Plane plane, Tile t, float *to, size_t stride)
{
    if (t.short_rows && t.short_columns)
        transform_kind(true, true, gradient, plane, t, to, stride);
    else if (t.short_rows)
        transform_kind(true, false, gradient, plane, t, to, stride);
    else if (t.short_columns)
        transform_kind(false, true, gradient, plane, t, to, stride);
    else
        transform_kind(false, false, gradient, plane, t, to, stride);
}

static void clear_tile(float *to, size_t stride)
{
    for (int i = 0; i < PRODUCTS; i++)
        store(to + (size_t)i * stride, (Floats){0});
}

// Strip `strip` of the source becomes strip `place` of the panels.
static void transform_strip(const Source *s, int strip, const Panels *panels, int place)
{
    Tile tiles[STRIP];
    for (int i = 0; i < STRIP; i++)
        tiles[i] = tile_at(s->grid, strip * STRIP + i);
    for (int block = 0; block < s->blocks; block++)
        for (int i = 0; i < STRIP; i++) {
            float *to = panel(panels, place, block) + i * LANES;
            if (tiles[i].image < 0)
                clear_tile(to, panels->stride);
            else if (s->gradient)
                transform_tile(true, plane_of(s, tiles[i], block), tiles[i], to, panels->stride);
            else
                transform_tile(false, plane_of(s, tiles[i], block), tiles[i], to, panels->stride);
        }
}

// ---- Forward, and the gradient of the input: the same with every kernel turned by half a turn,
// and its channels swapped.

typedef struct {
    Grid grid;
    int sums, results; // blocks of channels: those summed over, and those that result
    int threads;
    const float *x, *kernel, *bias;
    bool relu, turned;
    float *y;

    bool together;
    int chunk;                   // strips that are transformed before they are multiplied
    int range;                   // strips whose products are taken before they are transformed back
    int some_sums, some_results; // and blocks
    Panels tiles, products;
    size_t kernel_stride; // between the products of kernels
} Pass;

// What must stay in a core's cache of the second level: 1 MiB is on a laptop, too.
enum { CACHE = 1 << 20 };
enum { STRIP_BYTES = PRODUCTS * BLOCK * (int)sizeof(float) }; // of a block
enum { KERNEL_BLOCK = LANES * LANES };

static size_t kernel_floats(int sums, int results)
{
    return spread((size_t)sums * (size_t)results * KERNEL_BLOCK);
}

// As much of the tiles as there are kernels, within limits: both are read in turns.
static void plan_apart(Pass *p)
{
    enum { LEAST = CACHE / 4 };
    p->kernel_stride = kernel_floats(p->sums, p->results);
    int bytes = (int)(p->kernel_stride * PRODUCTS * sizeof(float));
    bytes = most(LEAST, least(bytes, CACHE));
    p->chunk = p->range = least(p->grid.strips, most(1, bytes / (STRIP_BYTES * p->sums)));
    p->some_sums = p->sums;
    p->some_results = least(p->results, 2 * GROUP);
}

static void plan_together(Pass *p)
{
    enum { TILES = 16 << 20, SUMS = 320 / LANES };
    int most_strips = most(1, TILES / (STRIP_BYTES * p->sums));
    p->chunk = pieces(p->grid.strips, pieces(p->grid.strips, most_strips));
    p->some_results = least(p->results, GROUP);
    p->some_sums = pieces(p->sums, pieces(p->sums, SUMS));
    int ranges = pieces(p->chunk, most(1, CACHE / (STRIP_BYTES * p->some_results)));
    p->range = pieces(p->chunk, ranges);
    p->kernel_stride = kernel_floats(p->some_sums, p->some_results);
}

static Pass pass_of(const WinogradShape *s, bool turned)
{
    enum { KERNELS = 4 << 20 }; // bytes that may come from memory again and again
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
static void transform_kernels(const Pass *p, Share sums, Share results, float *to)
{
    size_t count = (size_t)(sums.end - sums.begin);
    for (int g = results.begin; g < results.end; g += GROUP) {
        size_t vectors = (size_t)least(GROUP, results.end - g);
        float *group = to + (size_t)(g - results.begin) * count * KERNEL_BLOCK;
        for (int s = sums.begin; s < sums.end; s++)
            for (size_t v = 0; v < vectors; v++)
                transform_kernel_block(p, s, g + (int)v,
                                       group + (size_t)(s - sums.begin) * vectors * KERNEL_BLOCK +
                                           v * LANES,
                                       vectors * LANES);
    }
}

static Share common_part(Share a, Share b)
{
    return (Share){most(a.begin, b.begin), least(a.end, b.end)};
}

// A group of channels for some strips of one product. Strips are counted in the panels.
static void multiply_group(int product, Share strips, int first_strip, Share sums,
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
static void multiply(const Pass *p, const Panels *tiles, int offset, Share strips, Share sums,
                     Share results, const float *kernels, const Panels *products)
{
    size_t group_floats = (size_t)(sums.end - sums.begin) * KERNEL_BLOCK;
    for (int i = 0; i < PRODUCTS; i++) {
        Present present = product_present(&p->grid, i);
        Share head = common_part(strips, (Share){0, present.head - offset});
        Share tail = common_part(strips, (Share){present.tail - offset, p->grid.strips - offset});
        for (int g = 0; g < results.end - results.begin; g += GROUP) {
            int vectors = least(GROUP, results.end - results.begin - g);
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
    float *to = p->y + chunk * (size_t)plane.height * (size_t)plane.width * LANES;
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
                          Share results)
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
static void run_strips(const Pass *p, Share strips, const float *kernels, const Panels *tiles,
                       const Panels *products)
{
    Source source = {&p->grid, p->x, p->sums, false};
    int count = strips.end - strips.begin;
    for (int i = 0; i < count; i++)
        transform_strip(&source, strips.begin + i, tiles, i);
    for (int r = 0; r < p->results; r += p->some_results) {
        Share results = {r, least(r + p->some_results, p->results)};
        multiply(p, tiles, strips.begin, (Share){0, count}, (Share){0, p->sums}, results,
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
        Share groups = my_share(pieces(p->results, GROUP));
        Share results = {groups.begin * GROUP, least(groups.end * GROUP, p->results)};
        transform_kernels(p, (Share){0, p->sums}, results,
                          kernels + (size_t)(results.begin * p->sums) * KERNEL_BLOCK);
#pragma omp barrier
        Share mine = my_share(p->grid.strips);
        for (int s = mine.begin; s < mine.end; s += p->chunk)
            run_strips(p, (Share){s, least(s + p->chunk, mine.end)}, kernels, &tiles, &products);
    }
}

// Some results of some strips of the chunk that begins at `offset`, by one thread.
static void run_results(const Pass *p, const Panels *tiles, int offset, Share strips, Share results,
                        bool fresh, float *kernels, const Panels *products)
{
    for (int s = 0; s < p->sums; s += p->some_sums) {
        Share sums = {s, least(s + p->some_sums, p->sums)};
        if (fresh || p->some_sums < p->sums)
            transform_kernels(p, sums, results, kernels);
        multiply(p, tiles, offset, strips, sums, results, kernels, products);
    }
    write_results(p, products, offset + strips.begin, strips.end - strips.begin, results);
}

static void run_chunk(const Pass *p, const Panels *tiles, int offset, float *kernels,
                      const Panels *products)
{
    Source source = {&p->grid, p->x, p->sums, false};
    int count = least(p->chunk, p->grid.strips - offset), ranges = pieces(count, p->range);
    Share mine = my_share(count);
    for (int s = mine.begin; s < mine.end; s++)
        transform_strip(&source, offset + s, tiles, s);
#pragma omp barrier
    Share jobs = my_share(pieces(p->results, p->some_results) * ranges);
    for (int job = jobs.begin; job < jobs.end; job++) {
        int first = job / ranges * p->some_results, strip = job % ranges * p->range;
        run_results(p, tiles, offset, (Share){strip, least(strip + p->range, count)},
                    (Share){first, least(first + p->some_results, p->results)},
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

static void forward(const WinogradShape *shape, const float *x, const float *kernel,
                    const float *bias, bool relu, float *y, float *scratch)
{
    Pass p = pass_of(shape, false);
    p.x = x;
    p.kernel = kernel;
    p.bias = bias;
    p.relu = relu;
    p.y = y;
    run_pass(&p, scratch);
}

static void backward_input(const WinogradShape *shape, const float *y_gradient, const float *kernel,
                           float *x_gradient, float *scratch)
{
    Pass p = pass_of(shape, true);
    p.x = y_gradient;
    p.kernel = kernel;
    p.y = x_gradient;
    run_pass(&p, scratch);
}

// ---- The gradient of the kernel. All threads transform the input and the output's gradient of a
// chunk of strips, and then share out the blocks of channels in and out. What a chunk gives is
// added to what those before it have given, and transformed back after the last one.

typedef struct {
    Grid grid;
    const float *x, *y_gradient;
    float *kernel_gradient;
    int in, out, threads; // blocks
    int chunk, chunks;    // strips, and how many times
    int some_in, some_out;
    Panels input, gradient;
    size_t sum_stride; // between the products of a job
} KernelPass;

// Jobs are squares of 80 x 80 channels, whose sums stay in a core's cache, or smaller ones so that
// there is one for each thread.
static void plan_jobs(KernelPass *p)
{
    p->some_in = least(p->in, 80 / LANES);
    p->some_out = least(p->out, 80 / LANES);
    while (pieces(p->in, p->some_in) * pieces(p->out, p->some_out) < p->threads &&
           p->some_in * p->some_out > 1)
        if (p->some_in >= p->some_out)
            p->some_in = pieces(p->some_in, 2);
        else
            p->some_out = pieces(p->some_out, 2);
}

// A chunk is of at least so many tiles, since all sums are read and written for it, and of at least
// so many bytes for each thread, since threads wait for each other. Sums go through the strips in
// their order, whatever the chunks.
static KernelPass kernel_pass_of(const WinogradShape *s)
{
    enum { TILES = 128, BYTES = 1 << 20 };
    KernelPass p = {.grid = grid_of(s), .threads = s->threads};
    p.in = s->in / LANES;
    p.out = s->out / LANES;
    plan_jobs(&p);
    int most_strips =
        most(pieces(TILES, STRIP), BYTES / (STRIP_BYTES * (p.in + p.out)) * s->threads);
    p.chunks = pieces(p.grid.strips, most_strips);
    p.chunk = pieces(p.grid.strips, p.chunks);
    p.input = panels_of(p.chunk, p.in);
    p.gradient = panels_of(p.chunk, p.out);
    p.sum_stride = spread((size_t)p.some_in * (size_t)p.some_out * KERNEL_BLOCK);
    return p;
}

static int kernel_jobs(const KernelPass *p)
{
    return pieces(p->in, p->some_in) * pieces(p->out, p->some_out);
}

static size_t kernel_pass_scratch(const KernelPass *p)
{
    int sums = p->chunks > 1 ? kernel_jobs(p) : p->threads;
    return panels_size(p->input) + panels_size(p->gradient) +
           (size_t)sums * p->sum_stride * PRODUCTS;
}

// One job: some channels in by some channels out, and their sums (PRODUCTS, in, out).
typedef struct {
    Share in, out;
    float *sums;
} Job;

// Adds strips of one product; without `add` its sums begin anew.
static void add_strips(const KernelPass *p, const Job *job, int product, Share strips, bool add)
{
    Sum sum = {strips.end - strips.begin, (size_t)p->in * BLOCK, (size_t)p->out * BLOCK};
    size_t row = (size_t)(job->out.end - job->out.begin) * LANES;
    const float *input = panel(&p->input, strips.begin, 0) + (size_t)product * p->input.stride;
    const float *gradient =
        panel(&p->gradient, strips.begin, 0) + (size_t)product * p->gradient.stride;
    float *sums = job->sums + (size_t)product * p->sum_stride;
    for (int o = job->out.begin; o < job->out.end; o += MOST_VECTORS)
        for (int i = job->in.begin * LANES; i < job->in.end * LANES; i += ROWS)
            kernel_product(least(MOST_VECTORS, job->out.end - o), sum,
                           input + i / LANES * BLOCK + i % LANES, gradient + o * BLOCK,
                           sums + (size_t)(i - job->in.begin * LANES) * row +
                               (o - job->out.begin) * LANES,
                           row, add);
}

static void add_chunk(const KernelPass *p, const Job *job, int offset, int count)
{
    for (int i = 0; i < PRODUCTS; i++) {
        Present present = product_present(&p->grid, i);
        Share head = common_part((Share){0, count}, (Share){0, present.head - offset});
        Share tail = common_part((Share){0, count}, (Share){present.tail - offset, count});
        head.end = most(head.end, 0);
        if (offset == 0 || head.end > 0)
            add_strips(p, job, i, head, offset > 0);
        if (tail.begin < tail.end)
            add_strips(p, job, i, tail, true);
    }
}

static void write_kernel_gradient(const KernelPass *p, const Job *job)
{
    size_t row = (size_t)(job->out.end - job->out.begin) * LANES;
    for (int o = job->out.begin; o < job->out.end; o++)
        for (int i = job->in.begin; i < job->in.end; i++) {
            size_t block = (size_t)o * (size_t)p->in + (size_t)i;
            float *to = p->kernel_gradient + block * TAPS * TAPS * KERNEL_BLOCK;
            const float *sums = job->sums + (size_t)(i - job->in.begin) * LANES * row +
                                (size_t)(o - job->out.begin) * LANES;
            for (int k = 0; k < LANES; k++)
                transform_kernel_gradient(sums + (size_t)k * row, p->sum_stride, to + k * LANES,
                                          KERNEL_BLOCK);
        }
}

static void run_kernel_chunk(const KernelPass *p, int offset, float *sums)
{
    Source input = {&p->grid, p->x, p->in, false},
           gradient = {&p->grid, p->y_gradient, p->out, true};
    int count = least(p->chunk, p->grid.strips - offset), across = pieces(p->out, p->some_out);
    Share mine = my_share(count);
    for (int s = mine.begin; s < mine.end; s++) {
        transform_strip(&input, offset + s, &p->input, s);
        transform_strip(&gradient, offset + s, &p->gradient, s);
    }
#pragma omp barrier
    Share jobs = my_share(kernel_jobs(p));
    for (int j = jobs.begin; j < jobs.end; j++) {
        int in = j / across * p->some_in, out = j % across * p->some_out;
        int place = p->chunks > 1 ? j : omp_get_thread_num();
        Job job = {{in, least(in + p->some_in, p->in)},
                   {out, least(out + p->some_out, p->out)},
                   sums + (size_t)place * p->sum_stride * PRODUCTS};
        add_chunk(p, &job, offset, count);
        if (offset + count == p->grid.strips)
            write_kernel_gradient(p, &job);
    }
#pragma omp barrier
}

// The sum of the output's gradient over all pixels.
static void add_up_bias(const KernelPass *p, float *bias_gradient)
{
    size_t pixels = (size_t)p->grid.height * (size_t)p->grid.width;
    Share mine = my_share(p->out);
    for (int o = mine.begin; o < mine.end; o++) {
        Floats sum = {0};
        for (int n = 0; n < p->grid.batch; n++) {
            size_t chunk = (size_t)n * (size_t)p->out + (size_t)o;
            const float *from = p->y_gradient + chunk * pixels * LANES;
            Floats part = {0};
            for (size_t i = 0; i < pixels; i++)
                part += load(from + i * LANES);
            sum += part;
        }
        store(bias_gradient + o * LANES, sum);
    }
}

static void backward_kernel(const WinogradShape *shape, const float *x, const float *y_gradient,
                            float *kernel_gradient, float *bias_gradient, float *scratch)
{
    KernelPass p = kernel_pass_of(shape);
    p.x = x;
    p.y_gradient = y_gradient;
    p.kernel_gradient = kernel_gradient;
    p.input = panels_at(scratch, p.input);
    p.gradient = panels_at(scratch + panels_size(p.input), p.gradient);
    float *sums = p.gradient.values + panels_size(p.gradient);
#pragma omp parallel num_threads(p.threads)
    {
        for (int offset = 0; offset < p.grid.strips; offset += p.chunk)
            run_kernel_chunk(&p, offset, sums);
        if (bias_gradient)
            add_up_bias(&p, bias_gradient);
    }
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
