// Inside Winograd's convolution: the gradients of kernel and bias.
//
// All threads transform the input and the output's gradient of a chunk of strips. Then they share
// out the products; or, where the sums of all products are too many to be kept, the blocks of
// channels in and out. What a chunk gives is added to what those before it have given, and
// transformed back after the last one.
//
// A narrow layer has few products for what it transforms. It is divided into segments of strips, a
// fixed number for a shape. A thread transforms and multiplies a segment's strips in its own cache;
// then the segments' sums are added up.

#ifndef HVDLAB_WINOGRAD_KERNEL_GRADIENT_H
#define HVDLAB_WINOGRAD_KERNEL_GRADIENT_H

#include "cpu/winograd/product.h"
#include "cpu/winograd/strip.h"

typedef struct {
    Grid grid;
    const Activation *x, *y_gradient;
    float *kernel_gradient;
    int in, out; // blocks
    int threads;
    int chunk, chunks; // strips, and how many times
    int some_in, some_out;
    int segments;    // 0: not so
    bool by_product; // else by job
    Panels input, gradient;
    size_t sum_stride; // between the products of a job
} KernelPass;

static int kernel_jobs(const KernelPass *p)
{
    return pieces(p->in, p->some_in) * pieces(p->out, p->some_out);
}

// Jobs are squares of 80 x 80 channels, whose sums stay in a core's cache.
static void plan_jobs(KernelPass *p)
{
    enum { KEPT = 16 };
    p->some_in = min(p->in, 80 / LANES);
    p->some_out = min(p->out, 80 / LANES);
    p->by_product = kernel_jobs(p) <= max(KEPT, p->threads - 1);
}

// Segments: of at least so many strips, with so many channels at most.
static void plan_segments(KernelPass *p, const WinogradShape *s)
{
    enum { MIN_STRIPS = 4, CHANNELS = 32 * 32 };
    p->segments = min(16, 8 * CHANNELS / (s->in * s->out));
    if (s->in * s->out > CHANNELS || p->grid.strips < p->segments * MIN_STRIPS) {
        p->segments = 0;
    } else { // one job
        p->some_in = p->in;
        p->some_out = p->out;
    }
}

// A chunk is of at least so many tiles, since all sums are read and written for it, and of at least
// so many bytes for each thread, since threads wait for each other; but in a segment it stays in a
// core's cache. Sums go through the strips in their order, whatever the chunks.
static KernelPass kernel_pass_of(const WinogradShape *s)
{
    enum { TILES = 128, BYTES = 1 << 20 };
    KernelPass p = {.grid = grid_of(s), .threads = s->threads};
    p.in = s->in / LANES;
    p.out = s->out / LANES;
    plan_jobs(&p);
    plan_segments(&p, s);
    int max_strips = max(pieces(TILES, STRIP), BYTES / (STRIP_BYTES * (p.in + p.out)) * s->threads);
    if (p.segments)
        max_strips = max(1, BYTES / 2 / (STRIP_BYTES * (p.in + p.out)));
    p.chunks = pieces(p.grid.strips, max_strips);
    p.chunk = pieces(p.grid.strips, p.chunks);
    p.input = panels_of(p.chunk, p.in);
    p.gradient = panels_of(p.chunk, p.out);
    p.sum_stride = spread((size_t)p.some_in * (size_t)p.some_out * KERNEL_BLOCK);
    return p;
}

// Each job has sums of its own, or each thread has, for one job after the other.
static bool jobs_keep_sums(const KernelPass *p)
{
    return p->by_product || p->chunks > 1;
}

static size_t kernel_pass_scratch(const KernelPass *p)
{
    int panels = p->segments ? p->threads : 1;
    int sums = p->segments ? p->segments : jobs_keep_sums(p) ? kernel_jobs(p) : p->threads;
    return (size_t)panels * (panels_size(p->input) + panels_size(p->gradient)) +
           (size_t)sums * p->sum_stride * PRODUCTS;
}

// One job: some channels in by some channels out, and their sums (PRODUCTS, in, out).
typedef struct {
    Interval in, out;
    float *sums;
} Job;

static Job job_at(const KernelPass *p, int index, float *all_sums)
{
    int across = pieces(p->out, p->some_out);
    int in = index / across * p->some_in, out = index % across * p->some_out;
    int place = jobs_keep_sums(p) ? index : omp_get_thread_num();
    return (Job){{in, min(in + p->some_in, p->in)},
                 {out, min(out + p->some_out, p->out)},
                 all_sums + (size_t)place * p->sum_stride * PRODUCTS};
}

// Adds strips of one product; without `add` its sums begin again.
static void add_strips(const KernelPass *p, const Job *job, int product, Interval strips, bool add)
{
    ProductSum sum = {strips.end - strips.begin, (size_t)p->in * BLOCK, (size_t)p->out * BLOCK};
    size_t row = (size_t)(job->out.end - job->out.begin) * LANES;
    const float *input = panel(&p->input, strips.begin, 0) + (size_t)product * p->input.stride;
    const float *gradient =
        panel(&p->gradient, strips.begin, 0) + (size_t)product * p->gradient.stride;
    float *sums = job->sums + (size_t)product * p->sum_stride;
    for (int o = job->out.begin; o < job->out.end; o += MAX_VECTORS)
        for (int i = job->in.begin * LANES; i < job->in.end * LANES; i += ROWS)
            kernel_product(min(MAX_VECTORS, job->out.end - o), sum,
                           input + i / LANES * BLOCK + i % LANES, gradient + o * BLOCK,
                           sums + (size_t)(i - job->in.begin * LANES) * row +
                               (o - job->out.begin) * LANES,
                           row, add);
}

// Strips of a chunk that have a product: the chunk is `count` strips from `offset` of the grid on.
typedef struct {
    Interval head, tail;
} Parts;

static Parts parts_of(const KernelPass *p, int product, int offset, int count)
{
    Present present = product_present(&p->grid, product);
    Interval all = {0, count};
    Parts parts = {common_part(all, (Interval){0, present.head - offset}),
                   common_part(all, (Interval){present.tail - offset, count})};
    parts.head.end = max(parts.head.end, 0);
    parts.tail.begin = min(parts.tail.begin, count);
    return parts;
}

static int strips_in(Parts parts)
{
    return parts.head.end + parts.tail.end - parts.tail.begin;
}

static void add_chunk(const KernelPass *p, const Job *job, int product, int offset, int count,
                      bool first)
{
    Parts parts = parts_of(p, product, offset, count);
    if (first || parts.head.end > 0)
        add_strips(p, job, product, parts.head, !first);
    if (parts.tail.begin < parts.tail.end)
        add_strips(p, job, product, parts.tail, true);
}

// From one block of channels to another.
static void write_block(const KernelPass *p, const Job *job, int in, int out)
{
    size_t row = (size_t)(job->out.end - job->out.begin) * LANES;
    size_t block = (size_t)out * (size_t)p->in + (size_t)in;
    float *to = p->kernel_gradient + block * TAPS * TAPS * KERNEL_BLOCK;
    const float *sums = job->sums + (size_t)(in - job->in.begin) * LANES * row +
                        (size_t)(out - job->out.begin) * LANES;
    for (int k = 0; k < LANES; k++)
        transform_kernel_gradient(sums + (size_t)k * row, p->sum_stride, to + k * LANES,
                                  KERNEL_BLOCK);
}

static void run_jobs(const KernelPass *p, int offset, int count, float *sums)
{
    Interval jobs = my_share(kernel_jobs(p));
    for (int j = jobs.begin; j < jobs.end; j++) {
        Job job = job_at(p, j, sums);
        for (int i = 0; i < PRODUCTS; i++)
            add_chunk(p, &job, i, offset, count, offset == 0);
        if (offset + count < p->grid.strips)
            continue;
        for (int out = job.out.begin; out < job.out.end; out++)
            for (int in = job.in.begin; in < job.in.end; in++)
                write_block(p, &job, in, out);
    }
}

// By all threads, where each job has kept its sums.
static void write_blocks(const KernelPass *p, float *sums)
{
    Interval mine = my_share(p->in * p->out);
    for (int b = mine.begin; b < mine.end; b++) {
        int in = b / p->out, out = b % p->out, across = pieces(p->out, p->some_out);
        Job job = job_at(p, in / p->some_in * across + out / p->some_out, sums);
        write_block(p, &job, in, out);
    }
}

// Some products are of fewer strips than others, so it is the strips that are shared out: a thread
// has the products that begin in its share. The last product is of all strips.
static void run_products(const KernelPass *p, int offset, int count, float *sums)
{
    int strips = 0, first = 0;
    for (int i = 0; i < PRODUCTS; i++)
        strips += strips_in(parts_of(p, i, offset, count));
    Interval mine = my_share(kernel_jobs(p) * strips);
    for (int i = 0; i < kernel_jobs(p) * PRODUCTS; i++) {
        Job job = job_at(p, i % kernel_jobs(p), sums);
        int product = i / kernel_jobs(p);
        if (first >= mine.begin && first < mine.end)
            add_chunk(p, &job, product, offset, count, offset == 0);
        first += strips_in(parts_of(p, product, offset, count));
    }
    if (offset + count < p->grid.strips)
        return;
#pragma omp barrier
    write_blocks(p, sums);
}

// Strips of the chunk that begins at `offset`.
static void transform_strips(const KernelPass *p, int offset, Interval strips)
{
    StripSource input = {&p->grid, p->x, p->in, false},
                gradient = {&p->grid, p->y_gradient, p->out, true};
    for (int s = strips.begin; s < strips.end; s++) {
        transform_strip(&input, offset + s, &p->input, s);
        transform_strip(&gradient, offset + s, &p->gradient, s);
    }
}

static void run_segment(const KernelPass *p, int index, const Job *job)
{
    int begin = index * p->grid.strips / p->segments;
    int end = (index + 1) * p->grid.strips / p->segments;
    for (int offset = begin; offset < end; offset += p->chunk) {
        int count = min(p->chunk, end - offset);
        transform_strips(p, offset, (Interval){0, count});
        for (int i = 0; i < PRODUCTS; i++)
            add_chunk(p, job, i, offset, count, offset == begin);
    }
}

static void run_segments(const KernelPass *p)
{
    KernelPass own = *p;
    size_t input = panels_size(p->input), gradient = panels_size(p->gradient);
    own.input.values += (size_t)omp_get_thread_num() * (input + gradient);
    own.gradient.values = own.input.values + input;
    float *all_sums = p->input.values + (size_t)p->threads * (input + gradient);
    size_t length = p->sum_stride * PRODUCTS;
    Interval mine = my_share(p->segments);
    for (int s = mine.begin; s < mine.end; s++) {
        Job job = job_at(p, 0, all_sums + (size_t)s * length);
        run_segment(&own, s, &job);
    }
#pragma omp barrier
    mine = my_share((int)length / LANES);
    for (int i = mine.begin; i < mine.end; i++) {
        float *to = all_sums + i * LANES;
        Floats sum = load(to);
        for (int s = 1; s < p->segments; s++)
            sum += load(to + (size_t)s * length);
        store(to, sum);
    }
#pragma omp barrier
    write_blocks(p, all_sums);
}

static void run_kernel_chunk(const KernelPass *p, int offset, float *sums)
{
    int count = min(p->chunk, p->grid.strips - offset);
    transform_strips(p, offset, my_share(count));
#pragma omp barrier
    if (p->by_product)
        run_products(p, offset, count, sums);
    else
        run_jobs(p, offset, count, sums);
#pragma omp barrier
}

// The sum of the output's gradient over all pixels.
static void add_up_bias(const KernelPass *p, float *bias_gradient)
{
    size_t pixels = (size_t)p->grid.height * (size_t)p->grid.width;
    Interval mine = my_share(p->out);
    for (int o = mine.begin; o < mine.end; o++) {
        Total sum = {{0}, {0}};
        for (int n = 0; n < p->grid.batch; n++) {
            size_t chunk = (size_t)n * (size_t)p->out + (size_t)o;
            const Activation *from = p->y_gradient + chunk * pixels * LANES;
            for (size_t i = 0, end; i < pixels;) {
                Floats part = {0};
                for (end = pixels - i > RUN ? i + RUN : pixels; i < end; i++)
                    part += load_activations(from + i * LANES);
                total_add(&sum, part);
            }
        }
        store(bias_gradient + o * LANES, sum.sum);
    }
}

static void backward_kernel(const WinogradShape *shape, const void *x, const void *y_gradient,
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
        if (p.segments)
            run_segments(&p);
        else
            for (int offset = 0; offset < p.grid.strips; offset += p.chunk)
                run_kernel_chunk(&p, offset, sums);
        if (bias_gradient)
            add_up_bias(&p, bias_gradient);
    }
}

#endif
