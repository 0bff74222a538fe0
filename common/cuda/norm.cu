// Kernels that work on activations channel by channel: batch norm with what is fused to it, and
// biases. They are limited by memory, not by arithmetic. Going forward batch norm reads its input
// twice and writes once; going backward it reads input and gradient twice and writes once (twice
// where the gradient has two parts). ReLU and dropout are computed again going backward, which is
// cheaper than to read what they did.
//
// Sums over rows are made in two steps. A block sums some of the rows, in floats; the block that is
// done last joins the blocks' sums, in doubles. Both go in a fixed order, which depends on the shape
// alone: the same input gives the same bits.

#include "backend/constants.h"
#include "cuda/kernels.cuh"

// How the blocks of a grid divide an activation. A block takes a stretch of channels, `lanes` packs
// side by side, and a chunk of rows; its threads go down the rows, THREADS / lanes rows at a time.
struct Tiling {
    int rows, channels;
    int lanes;  // a power of 2, at most 32
    int tiles;  // stretches of channels
    int chunks; // of rows
    int chunk_rows;
};

#define MAX_BLOCKS      1024 // enough for the largest GPUs
#define ROWS_PER_THREAD 8    // at least, so that joining costs little beside summing

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

// As many lanes as possible, for long stretches of memory, while at most a quarter of them is idle.
static int lanes_for(int packs)
{
    int lanes = 32;
    while (4 * packs < 3 * lanes * divide_up(packs, lanes))
        lanes /= 2;
    return lanes;
}

static Tiling tiling_of(ActivationShape shape, int pack)
{
    Tiling t = {shape.rows, shape.channels, 0, 0, 0, 0};
    int packs = divide_up(shape.channels, pack);
    t.lanes = lanes_for(packs);
    t.tiles = divide_up(packs, t.lanes);
    int most = t.tiles < MAX_BLOCKS ? MAX_BLOCKS / t.tiles : 1;
    int worthwhile = shape.rows / (THREADS / t.lanes * ROWS_PER_THREAD);
    int chunks = worthwhile < 1 ? 1 : worthwhile < most ? worthwhile : most;
    t.chunk_rows = divide_up(shape.rows, chunks);
    t.chunks = divide_up(shape.rows, t.chunk_rows);
    return t;
}

static dim3 grid_of(const Tiling &t)
{
    return dim3((unsigned)t.tiles, (unsigned)t.chunks);
}

#define MOMENTS 3 // sums that a channel has at most: here origin, sum, sum of squares

size_t partial_sums_length(ActivationShape shape)
{
    int chunks = 0;
    for_packs(shape.element, shape.channels,
              [&](auto packed) { chunks = tiling_of(shape, decltype(packed)::size).chunks; });
    return (size_t)MOMENTS * (size_t)chunks * (size_t)shape.channels;
}

static __device__ __forceinline__ int thread()
{
    return (int)threadIdx.x;
}

// The part of a thread: channels `channel`, ... and rows first, first + step, ... below end.
struct Part {
    int channel, first, step, end;
};

// A second pass over the same memory takes the chunks from the last to the first, since the last ones
// are still in the cache.
template <int pack> static __device__ Part part_of(const Tiling &t, bool again = false)
{
    Part part;
    int chunk = again ? t.chunks - 1 - (int)blockIdx.y : (int)blockIdx.y;
    part.channel = ((int)blockIdx.x * t.lanes + thread() % t.lanes) * pack;
    part.step = THREADS / t.lanes;
    part.first = chunk * t.chunk_rows + thread() / t.lanes;
    part.end = min((chunk + 1) * t.chunk_rows, t.rows);
    if (part.channel >= t.channels)
        part.end = 0; // nothing to do, but there when the block meets
    return part;
}

// The loop over a thread's rows; i is where a row's channels are.
#define FOR_EACH_ROW(part, t, i)                                                                   \
    for (size_t row = part.first, i = row * t.channels + part.channel; row < (size_t)part.end;     \
         row += part.step, i += (size_t)part.step * t.channels)

// The data of each of the thread's channels.
template <int pack>
static __device__ void load_channels(const Tiling &t, const Part &part, const float *from,
                                     float (&to)[pack])
{
    for (int j = 0; j < pack; j++)
        to[j] = 0;
    if (part.channel < t.channels)
        load<pack>(from + part.channel, to);
}

// The block's sum of each channel, for the threads of the first row.
template <int pack> static __device__ void sum_over_rows(const Tiling &t, float (&sums)[pack])
{
    __shared__ float shared[pack][THREADS];
    __syncthreads(); // others may still read the last sum
    for (int j = 0; j < pack; j++)
        shared[j][thread()] = sums[j];
    for (int half = THREADS / 2; half >= t.lanes; half /= 2) {
        __syncthreads();
        if (thread() < half)
            for (int j = 0; j < pack; j++)
                shared[j][thread()] += shared[j][thread() + half];
    }
    for (int j = 0; j < pack; j++)
        sums[j] = shared[j][thread()];
}

// Writes the block's sums where the joining block looks for them: partial[chunk][which][channel].
template <int pack>
static __device__ void keep_sums(const Tiling &t, const Part &part, int which, int of,
                                 const float (&sums)[pack], float *partial)
{
    if (thread() < t.lanes && part.channel < t.channels)
        for (int j = 0; j < pack; j++)
            partial[((size_t)blockIdx.y * of + which) * t.channels + part.channel + j] = sums[j];
}

// ---- Joining. The last block of a stretch of channels to arrive joins the sums of all. Which one
// that is differs from run to run; what it does is the same.

#define MAX_TILES 65536 // two million channels

// How many blocks of each stretch have arrived: 0 between launches.
static unsigned *arrivals(const Tiling &t)
{
    CudaParts *parts = cuda_parts();
    CUDA(t.tiles <= MAX_TILES ? cudaSuccess : cudaErrorInvalidConfiguration);
    if (!parts->arrived)
        parts->arrived = (unsigned *)cuda_allocate(MAX_TILES * sizeof *parts->arrived);
    return parts->arrived;
}

// Counts the block, which has written its sums. True in the last one of its stretch: there the sums
// of all the others can be read.
static __device__ bool arrives_last(const Tiling &t, unsigned *arrived)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (thread() == 0) {
        last = atomicAdd(&arrived[blockIdx.x], 1u) == (unsigned)t.chunks - 1;
        if (last)
            arrived[blockIdx.x] = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

// A thread of the last block, in a team for each channel: the team's threads divide the chunks.
struct Teammate {
    int channels;            // of the block
    int channel;             // of the thread
    int first, step, chunks; // chunks = 0: there is no such channel
};

static __device__ Teammate teammate(const Tiling &t, int pack)
{
    Teammate mate;
    mate.channels = t.lanes * pack;
    mate.channel = (int)blockIdx.x * mate.channels + thread() % mate.channels;
    mate.first = thread() / mate.channels;
    mate.step = THREADS / mate.channels;
    mate.chunks = mate.channel < t.channels ? t.chunks : 0;
    return mate;
}

// True in the thread that has the team's sum.
static __device__ bool leads(const Teammate &mate)
{
    return mate.first == 0 && mate.chunks > 0;
}

// Sums the values of a channel's threads, for the first of them.
static __device__ double sum_over_team(const Teammate &mate, double sum)
{
    __shared__ double shared[THREADS];
    __syncthreads();
    shared[thread()] = sum;
    for (int half = THREADS / 2; half >= mate.channels; half /= 2) {
        __syncthreads();
        if (thread() < half)
            shared[thread()] += shared[thread() + half];
    }
    return shared[thread()];
}

static __device__ float inverse_deviation(double variance)
{
    return (float)(1 / sqrt(variance + NORM_EPSILON));
}

static __device__ void move_towards(float *moving, double value)
{
    *moving = (float)(NORM_MOMENTUM * *moving + (1 - NORM_MOMENTUM) * value);
}

// The chunks' sums are relative to each chunk's origin; here they become relative to that of the
// first. Then no digits are lost where the mean is large beside the deviation.
static __device__ void join_moments(const Tiling &t, int pack, const float *partial,
                                    const NormStatistics &s)
{
    Teammate mate = teammate(t, pack);
    int c = mate.channel;
    double sum = 0, squares = 0, origin = mate.chunks > 0 ? partial[c] : 0;
    UNROLL
    for (int chunk = mate.first; chunk < mate.chunks; chunk += mate.step) {
        const float *moments = partial + (size_t)chunk * MOMENTS * t.channels + c;
        double rows = min(t.chunk_rows, t.rows - chunk * t.chunk_rows);
        double shift = moments[0] - origin, chunk_sum = moments[t.channels];
        sum += chunk_sum + rows * shift;
        squares += moments[2 * t.channels] + shift * (2 * chunk_sum + rows * shift);
    }
    sum = sum_over_team(mate, sum);
    squares = sum_over_team(mate, squares);
    if (!leads(mate))
        return;
    double count = t.rows, deviations = squares - sum * sum / count;
    deviations = deviations < 0 ? 0 : deviations; // only rounding makes it so
    double mean = origin + sum / count;
    s.mean[c] = (float)mean;
    s.inv_std[c] = inverse_deviation(deviations / count);
    move_towards(&s.moving_mean[c], mean + (s.input_bias ? s.input_bias[c] : 0));
    move_towards(&s.moving_variance[c], deviations / (count > 1 ? count - 1 : 1)); // unbiased
}

// Where one or two sums per channel go; the second is multiplied by the channel's factor.
struct Sums {
    float *first, *second; // second NULL: there is one
    const float *factor;
};

static __device__ void join_sums(const Tiling &t, int pack, const float *partial, const Sums &to)
{
    Teammate mate = teammate(t, pack);
    int c = mate.channel, sums = to.second ? 2 : 1;
    double a = 0, b = 0;
    UNROLL
    for (int chunk = mate.first; chunk < mate.chunks; chunk += mate.step) {
        const float *from = partial + (size_t)chunk * sums * t.channels + c;
        a += from[0];
        if (to.second)
            b += from[t.channels];
    }
    a = sum_over_team(mate, a);
    b = sum_over_team(mate, b);
    if (!leads(mate))
        return;
    to.first[c] = (float)a;
    if (to.second)
        to.second[c] = (float)(b * to.factor[c]);
}

// ---- Statistics.

// Sum and sum of squares of each channel, relative to the chunk's first row; joined, the statistics.
template <typename T, int pack>
static __global__ void __launch_bounds__(THREADS,
                                         4) // with 5, as the compiler would choose, registers spill
    sum_moments(Tiling t, const T *__restrict__ x, float *partial, unsigned *arrived,
                NormStatistics statistics)
{
    Part part = part_of<pack>(t);
    float origin[pack] = {0}, sum[pack] = {0}, squares[pack] = {0};
    if (part.channel < t.channels)
        load<pack>(x + (size_t)blockIdx.y * t.chunk_rows * t.channels + part.channel, origin);
    UNROLL
    FOR_EACH_ROW(part, t, i)
    {
        float values[pack];
        load<pack>(x + i, values);
        for (int j = 0; j < pack; j++) {
            float d = values[j] - origin[j];
            sum[j] += d;
            squares[j] = fmaf(d, d, squares[j]);
        }
    }
    keep_sums<pack>(t, part, 0, MOMENTS, origin, partial);
    sum_over_rows<pack>(t, sum);
    keep_sums<pack>(t, part, 1, MOMENTS, sum, partial);
    sum_over_rows<pack>(t, squares);
    keep_sums<pack>(t, part, 2, MOMENTS, squares, partial);
    if (arrives_last(t, arrived))
        join_moments(t, pack, partial, statistics);
}

void launch_batch_statistics(ActivationShape shape, const void *x, float *partial,
                             const NormStatistics *statistics)
{
    for_packs(shape.element, shape.channels, [&](auto packed) {
        typedef typename decltype(packed)::Type T;
        const int pack = decltype(packed)::size;
        Tiling t = tiling_of(shape, pack);
        RUN((sum_moments<T, pack>), grid_of(t), t, (const T *)x, partial, arrivals(t), *statistics);
    });
}

static __global__ void use_moving_statistics(int channels, NormStatistics s)
{
    FOR_EACH_PIECE(c, (size_t)channels)
    {
        s.mean[c] = s.moving_mean[c] - (s.input_bias ? s.input_bias[c] : 0);
        s.inv_std[c] = inverse_deviation(s.moving_variance[c]);
    }
}

void launch_moving_statistics(int channels, const NormStatistics *statistics)
{
    RUN(use_moving_statistics, blocks_for((size_t)channels), channels, *statistics);
}

// ---- Batch norm forward.

// Batch norm of a thread's channels: (x - mean) scale + beta. Both passes compute it with the same
// instructions, so that ReLU decides in the same way.
template <int pack> struct Affine {
    float mean[pack], scale[pack], beta[pack];

    __device__ Affine(const Norm &norm, const Tiling &t, const Part &part)
    {
        float gamma[pack];
        load_channels<pack>(t, part, norm.gamma, gamma);
        load_channels<pack>(t, part, norm.inv_std, scale);
        load_channels<pack>(t, part, norm.mean, mean);
        load_channels<pack>(t, part, norm.beta, beta);
        for (int j = 0; j < pack; j++)
            scale[j] *= gamma[j];
    }

    __device__ __forceinline__ float apply(int j, float centred) const
    {
        return fmaf(centred, scale[j], beta[j]);
    }
};

template <typename T, int pack>
static __global__ void __launch_bounds__(THREADS)
    normalize(Tiling t, Norm norm, Dropout dropout, const T *residual, T *output)
{
    Part part = part_of<pack>(t, true);
    Affine<pack> affine(norm, t, part);
    unlock(dropout);
    FOR_EACH_ROW(part, t, i)
    {
        float y[pack], added[pack];
        load<pack>((const T *)norm.x + i, y);
        if (residual)
            load<pack>(residual + i, added);
        for (int j = 0; j < pack; j++) {
            y[j] = affine.apply(j, y[j] - affine.mean[j]);
            if (norm.relu)
                y[j] = relu_of(y[j]);
        }
        if (norm.dropout_rate > 0)
            drop<pack>(dropout, i, y);
        for (int j = 0; j < pack && residual; j++)
            y[j] += added[j];
        store<pack>(output + i, y);
    }
}

void launch_norm_forward(const Norm *norm, const void *residual, void *output)
{
    for_packs(norm->shape.element, norm->shape.channels, [&](auto packed) {
        typedef typename decltype(packed)::Type T;
        const int pack = decltype(packed)::size;
        Tiling t = tiling_of(norm->shape, pack);
        RUN((normalize<T, pack>), grid_of(t), t, *norm,
            dropout_of(norm->dropout_rate, norm->dropout_key), (const T *)residual, (T *)output);
    });
}

// ---- Batch norm backward.

// Takes a gradient back through dropout and ReLU, to batch norm itself; `centred` is x - mean.
template <int pack>
static __device__ __forceinline__ void
go_back(const Norm &norm, const Dropout &dropout, const Affine<pack> &affine, size_t i,
        const float (&centred)[pack], float (&gradient)[pack])
{
    if (norm.dropout_rate > 0)
        drop<pack>(dropout, i, gradient);
    for (int j = 0; j < pack && norm.relu; j++)
        gradient[j] = relu_gate(gradient[j], affine.apply(j, centred[j]));
}

// First pass: adds the gradient's parts, and sums g and g (x - mean), which give the gradients of
// beta and gamma.
template <typename T, int pack>
static __global__ void __launch_bounds__(THREADS)
    sum_gradients(Tiling t, Norm norm, Dropout dropout, T *gradient, const T *gradient2,
                  float *partial, unsigned *arrived, Sums sums)
{
    Part part = part_of<pack>(t);
    Affine<pack> affine(norm, t, part);
    unlock(dropout);
    float sum[pack] = {0}, product[pack] = {0};
    FOR_EACH_ROW(part, t, i)
    {
        float centred[pack], g[pack];
        load<pack>((const T *)norm.x + i, centred);
        load<pack>(gradient + i, g);
        if (gradient2) {
            float other[pack];
            load<pack>(gradient2 + i, other);
            for (int j = 0; j < pack; j++)
                g[j] = as_stored(g[j] + other[j], gradient); // the second pass finds this
            store<pack>(gradient + i, g);
        }
        for (int j = 0; j < pack; j++)
            centred[j] -= affine.mean[j];
        go_back<pack>(norm, dropout, affine, i, centred, g);
        for (int j = 0; j < pack; j++) {
            sum[j] += g[j];
            product[j] = fmaf(g[j], centred[j], product[j]);
        }
    }
    sum_over_rows<pack>(t, sum);
    keep_sums<pack>(t, part, 0, 2, sum, partial);
    sum_over_rows<pack>(t, product);
    keep_sums<pack>(t, part, 1, 2, product, partial);
    if (arrives_last(t, arrived))
        join_sums(t, pack, partial, sums);
}

// Second pass: input_gradient = gamma inv_std (g - mean(g) - x_hat mean(g x_hat)).
template <typename T, int pack>
static __global__ void __launch_bounds__(THREADS)
    normalize_backward(Tiling t, Norm norm, Dropout dropout, const T *gradient, T *input_gradient,
                       const float *gamma_gradient, const float *beta_gradient)
{
    Part part = part_of<pack>(t, true);
    Affine<pack> affine(norm, t, part);
    unlock(dropout);
    float mean_gradient[pack], inv_std[pack], slope[pack];
    load_channels<pack>(t, part, beta_gradient, mean_gradient);
    load_channels<pack>(t, part, norm.inv_std, inv_std);
    load_channels<pack>(t, part, gamma_gradient, slope);
    for (int j = 0; j < pack; j++) {
        mean_gradient[j] /= (float)t.rows;
        slope[j] *= inv_std[j] / (float)t.rows;
    }
    FOR_EACH_ROW(part, t, i)
    {
        float centred[pack], g[pack];
        load<pack>((const T *)norm.x + i, centred);
        load<pack>(gradient + i, g);
        for (int j = 0; j < pack; j++)
            centred[j] -= affine.mean[j];
        go_back<pack>(norm, dropout, affine, i, centred, g);
        for (int j = 0; j < pack; j++)
            g[j] = affine.scale[j] * (g[j] - mean_gradient[j] - centred[j] * slope[j]);
        store<pack>(input_gradient + i, g);
    }
}

void launch_norm_backward(const Norm *norm, const NormGradients *g)
{
    Dropout dropout = dropout_of(norm->dropout_rate, norm->dropout_key);
    for_packs(norm->shape.element, norm->shape.channels, [&](auto packed) {
        typedef typename decltype(packed)::Type T;
        const int pack = decltype(packed)::size;
        Tiling t = tiling_of(norm->shape, pack);
        RUN((sum_gradients<T, pack>), grid_of(t), t, *norm, dropout, (T *)g->output_gradient,
            (const T *)g->output_gradient2, g->partial, arrivals(t),
            Sums{g->beta_gradient, g->gamma_gradient, norm->inv_std});
        RUN((normalize_backward<T, pack>), grid_of(t), t, *norm, dropout,
            (const T *)g->output_gradient, (T *)g->input_gradient, g->gamma_gradient,
            g->beta_gradient);
    });
}

// ---- Biases.

template <typename T, int pack>
static __global__ void __launch_bounds__(THREADS)
    add_bias(Tiling t, T *y, const float *bias, bool relu)
{
    Part part = part_of<pack>(t);
    float mine[pack];
    load_channels<pack>(t, part, bias, mine);
    FOR_EACH_ROW(part, t, i)
    {
        float values[pack];
        load<pack>(y + i, values);
        for (int j = 0; j < pack; j++)
            values[j] = relu ? relu_of(values[j] + mine[j]) : values[j] + mine[j];
        store<pack>(y + i, values);
    }
}

void launch_bias_forward(ActivationShape shape, void *y, const float *bias, bool relu)
{
    for_packs(shape.element, shape.channels, [&](auto packed) {
        typedef typename decltype(packed)::Type T;
        const int pack = decltype(packed)::size;
        Tiling t = tiling_of(shape, pack);
        RUN((add_bias<T, pack>), grid_of(t), t, (T *)y, bias, relu);
    });
}

template <typename T, int pack>
static __global__ void __launch_bounds__(THREADS)
    sum_rows(Tiling t, T *gradient, const T *output, float *partial, unsigned *arrived, Sums sums)
{
    Part part = part_of<pack>(t);
    float sum[pack] = {0};
    FOR_EACH_ROW(part, t, i)
    {
        float g[pack], y[pack];
        load<pack>(gradient + i, g);
        if (output) {
            load<pack>(output + i, y);
            for (int j = 0; j < pack; j++)
                g[j] = relu_gate(g[j], y[j]);
            store<pack>(gradient + i, g);
        }
        for (int j = 0; j < pack; j++)
            sum[j] += g[j];
    }
    sum_over_rows<pack>(t, sum);
    keep_sums<pack>(t, part, 0, 1, sum, partial);
    if (arrives_last(t, arrived))
        join_sums(t, pack, partial, sums);
}

void launch_bias_backward(ActivationShape shape, void *gradient, const void *output, float *partial,
                          float *bias_gradient)
{
    if (!bias_gradient && output)
        launch_relu_backward(shape.element, gradient, output,
                             (size_t)shape.rows * (size_t)shape.channels);
    if (!bias_gradient)
        return;
    for_packs(shape.element, shape.channels, [&](auto packed) {
        typedef typename decltype(packed)::Type T;
        const int pack = decltype(packed)::size;
        Tiling t = tiling_of(shape, pack);
        RUN((sum_rows<T, pack>), grid_of(t), t, (T *)gradient, (const T *)output, partial,
            arrivals(t), Sums{bias_gradient, NULL, NULL});
    });
}
