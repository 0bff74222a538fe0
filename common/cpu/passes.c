// Batch norm, ReLU, dropout, residual sums, pooling and the optimizers' updates for the CPU,
// written with the compilers' vector extensions. A pass is limited by memory, not by arithmetic:
// what counts is how often each activation is read and written. Batch norm with all that is fused
// to it reads its input twice and writes once going forward, and reads input and gradient twice and
// writes once (twice where the gradient has two parts) going backward.
//
// Compiled several times: PASSES names the table of this build.

#include "cpu/passes.h"

#include <math.h>
#include <string.h>
#include "backend/constants.h"
#include "base/util.h"

#define VECTOR 8
#include "cpu/simd.h"

typedef uint32_t Words __attribute__((vector_size(4 * VECTOR)));

// What dropout needs: elements whose hash is below `limit` are dropped.
typedef struct {
    uint32_t key0, key1, limit;
    float scale;
} Dropout;

static Dropout dropout_of(float rate, uint64_t key)
{
    return (Dropout){(uint32_t)key, (uint32_t)(key >> 32), (uint32_t)((double)rate * 4294967296.0),
                     1 / (1 - rate)};
}

// Set where an element is kept. The hash of position and key is a multiply-and-shift mixer of
// 32 bits; one key gives one pattern, however the work is divided among threads.
INLINE Ints keep_mask(Dropout d, uint32_t first)
{
    Words h = {0, 1, 2, 3, 4, 5, 6, 7};
    h = (h + first) * 0x9e3779b9u + d.key0;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15) ^ d.key1) * 0x846ca68bu;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h ^= h >> 15;
    return (Ints)(h >= d.limit);
}

// Chunks: one image's pixels of one block of channels, contiguous in memory.
INLINE int chunk_count(Layout layout)
{
    return layout.batch * layout.blocks;
}

INLINE size_t chunk_size(Layout layout)
{
    return (size_t)layout.pixels * (size_t)layout.lanes;
}

// Every pass divides the chunks among threads in the same way, and where two passes follow each
// other the second walks backward, so that it begins with what the first left in the cache of this
// core.

// Sum and sum of squares of a chunk, both relative to its first pixel, so that no digits are lost
// where the mean is large beside the deviation. `groups` vectors make a pixel.
INLINE void chunk_moments(int groups, const float *x, int pixels, float *sums, float *squares)
{
    Floats origin[2], sum[2] = {{0}}, square[2] = {{0}};
    for (int g = 0; g < groups; g++)
        origin[g] = load(x + g * VECTOR);
    for (int p = 0; p < pixels; p++)
        for (int g = 0; g < groups; g++) {
            Floats d = load(x + (p * groups + g) * VECTOR) - origin[g];
            sum[g] += d;
            square[g] += d * d;
        }
    for (int g = 0; g < groups; g++) {
        store(sums + g * VECTOR, sum[g]);
        store(squares + g * VECTOR, square[g]);
    }
}

static void chunk_moments_of_lanes(Layout layout, const float *x, float *sums, float *squares)
{
    for (int lane = 0; lane < layout.lanes; lane++) {
        float sum = 0, square = 0;
        for (int p = 0; p < layout.pixels; p++) {
            float d = x[(size_t)p * (size_t)layout.lanes + (size_t)lane] - x[lane];
            sum += d;
            square += d * d;
        }
        sums[lane] = sum;
        squares[lane] = square;
    }
}

// Joins the chunks' moments in their order (Chan, Golub and LeVeque, 1979): the result does not
// depend on the number of threads.
static void join_moments(Layout layout, const float *x, const float *partial, float *mean,
                         float *variance)
{
    size_t lanes = (size_t)layout.lanes, size = chunk_size(layout);
    int channels = layout.blocks * layout.lanes;
#pragma omp parallel for schedule(static)
    for (int c = 0; c < channels; c++) {
        size_t block = (size_t)(c / layout.lanes), lane = (size_t)(c % layout.lanes);
        double count = 0, average = 0, deviations = 0, pixels = layout.pixels;
        for (int n = 0; n < layout.batch; n++) {
            size_t chunk = (size_t)n * (size_t)layout.blocks + block;
            double sum = (double)partial[chunk * 2 * lanes + lane];
            double square = (double)partial[chunk * 2 * lanes + lanes + lane];
            double delta = (double)x[chunk * size + lane] + sum / pixels - average;
            deviations +=
                square - sum * sum / pixels + delta * delta * count * pixels / (count + pixels);
            average += delta * pixels / (count + pixels);
            count += pixels;
        }
        mean[c] = (float)average;
        variance[c] = (float)(deviations / count);
    }
}

static void norm_statistics(Layout layout, const float *x, float *partial, float *mean,
                            float *variance)
{
    size_t lanes = (size_t)layout.lanes, size = chunk_size(layout);
#pragma omp parallel
    {
        Share mine = my_share(chunk_count(layout));
        for (int i = mine.end - 1; i >= mine.begin; i--) {
            const float *chunk = x + (size_t)i * size;
            float *sums = partial + (size_t)i * 2 * lanes;
            if (layout.lanes == 2 * VECTOR)
                chunk_moments(2, chunk, layout.pixels, sums, sums + lanes);
            else if (layout.lanes == VECTOR)
                chunk_moments(1, chunk, layout.pixels, sums, sums + lanes);
            else
                chunk_moments_of_lanes(layout, chunk, sums, sums + lanes);
        }
    }
    join_moments(layout, x, partial, mean, variance);
}

// What batch norm does to eight channels: (x - mean) scale + beta, with scale = gamma inv_std.
typedef struct {
    Floats mean, scale, beta;
} Affine;

INLINE Affine load_affine(const float *mean, const float *inv_std, const float *gamma,
                          const float *beta, size_t channel)
{
    return (Affine){load(mean + channel), load(gamma + channel) * load(inv_std + channel),
                    load(beta + channel)};
}

// Normalizes one chunk: output = residual + dropout(relu((x - mean) scale + beta)).
INLINE void chunk_forward(int groups, bool relu, bool dropped, bool added, const NormForward *pass,
                          Dropout dropout, size_t chunk, size_t channel)
{
    size_t begin = chunk * chunk_size(pass->layout);
    Affine affine[2];
    for (int g = 0; g < groups; g++)
        affine[g] = load_affine(pass->mean, pass->inv_std, pass->gamma, pass->beta,
                                channel + (size_t)g * VECTOR);
    for (int p = 0; p < pass->layout.pixels; p++)
        for (int g = 0; g < groups; g++) {
            size_t i = begin + (size_t)(p * groups + g) * VECTOR;
            Floats y = (load(pass->x + i) - affine[g].mean) * affine[g].scale + affine[g].beta;
            if (relu)
                y = select_if(relu_mask(y), y);
            if (dropped)
                y = select_if(keep_mask(dropout, (uint32_t)i), y * dropout.scale);
            if (added)
                y += load(pass->residual + i);
            store(pass->output + i, y);
        }
}

// The same without vectors, for layouts whose lanes do not fill them.
static void chunk_forward_of_lanes(const NormForward *pass, Dropout dropout, size_t chunk,
                                   size_t channel)
{
    size_t begin = chunk * chunk_size(pass->layout), lanes = (size_t)pass->layout.lanes;
    for (size_t k = 0; k < chunk_size(pass->layout); k++) {
        size_t c = channel + k % lanes, i = begin + k;
        float y =
            (pass->x[i] - pass->mean[c]) * (pass->gamma[c] * pass->inv_std[c]) + pass->beta[c];
        if (pass->relu && y <= 0)
            y = 0;
        if (pass->dropout_rate > 0)
            y = keep_mask(dropout, (uint32_t)i)[0] ? y * dropout.scale : 0;
        pass->output[i] = pass->residual ? y + pass->residual[i] : y;
    }
}

INLINE void chunks_forward(int groups, bool relu, bool dropped, bool added, const NormForward *pass)
{
    Dropout dropout = dropout_of(pass->dropout_rate, pass->dropout_key);
    Layout layout = pass->layout;
#pragma omp parallel
    {
        Share mine = my_share(chunk_count(layout));
        for (int i = mine.begin; i < mine.end; i++) {
            size_t channel = (size_t)(i % layout.blocks) * (size_t)layout.lanes;
            if (groups)
                chunk_forward(groups, relu, dropped, added, pass, dropout, (size_t)i, channel);
            else
                chunk_forward_of_lanes(pass, dropout, (size_t)i, channel);
        }
    }
}

// The combinations that models use get loops of their own; constants fold the rest away.
INLINE void norm_forward_in(int groups, const NormForward *pass)
{
    if (pass->dropout_rate > 0)
        chunks_forward(groups, true, true, false, pass);
    else if (pass->relu && pass->residual)
        chunks_forward(groups, true, false, true, pass);
    else if (pass->relu)
        chunks_forward(groups, true, false, false, pass);
    else
        chunks_forward(groups, false, false, pass->residual != NULL, pass);
}

static void norm_forward(const NormForward *pass)
{
    if (pass->layout.lanes == 2 * VECTOR)
        norm_forward_in(2, pass);
    else if (pass->layout.lanes == VECTOR)
        norm_forward_in(1, pass);
    else
        chunks_forward(0, false, false, false, pass);
}

// How the gradient passes ReLU and dropout on its way to batch norm.
typedef enum {
    GATE_OPEN,    // neither
    GATE_RELU,    // recomputed from x
    GATE_DROPOUT, // ReLU and dropout: open where the output is not zero
} Gate;

static Gate gate_of(const NormBackward *pass)
{
    if (pass->dropout_rate > 0)
        return GATE_DROPOUT;
    return pass->relu ? GATE_RELU : GATE_OPEN;
}

// First pass over one chunk: adds the gradient's parts, and sums g and g (x - mean), g being the
// gradient behind the gate. Where the second pass could not find g again it is written down.
INLINE void chunk_sums(int groups, Gate gate, bool two_parts, const NormBackward *pass,
                       float dropout_scale, size_t chunk, size_t channel)
{
    size_t begin = chunk * chunk_size(pass->layout), lanes = (size_t)pass->layout.lanes;
    Affine affine[2];
    Floats sum[2] = {{0}}, product[2] = {{0}};
    for (int g = 0; g < groups; g++)
        affine[g] = load_affine(pass->mean, pass->inv_std, pass->gamma, pass->beta,
                                channel + (size_t)g * VECTOR);
    for (int p = 0; p < pass->layout.pixels; p++)
        for (int g = 0; g < groups; g++) {
            size_t i = begin + (size_t)(p * groups + g) * VECTOR;
            Floats gradient = load(pass->output_gradient + i);
            if (two_parts)
                gradient += load(pass->output_gradient2 + i);
            if (gate == GATE_DROPOUT)
                gradient = select_if((Ints)(load(pass->output + i) != 0), gradient * dropout_scale);
            if (two_parts || gate == GATE_DROPOUT)
                store(pass->output_gradient + i, gradient);
            Floats x = load(pass->x + i) - affine[g].mean;
            if (gate == GATE_RELU)
                gradient = select_if(relu_mask(x * affine[g].scale + affine[g].beta), gradient);
            sum[g] += gradient;
            product[g] += gradient * x;
        }
    for (int g = 0; g < groups; g++) {
        store(pass->partial + chunk * 2 * lanes + (size_t)g * VECTOR, sum[g]);
        store(pass->partial + chunk * 2 * lanes + lanes + (size_t)g * VECTOR, product[g]);
    }
}

static void chunk_sums_of_lanes(const NormBackward *pass, Gate gate, size_t chunk, size_t channel)
{
    size_t begin = chunk * chunk_size(pass->layout), lanes = (size_t)pass->layout.lanes;
    float dropout_scale = 1 / (1 - pass->dropout_rate);
    float *sums = pass->partial + chunk * 2 * lanes;
    memset(sums, 0, 2 * lanes * sizeof *sums);
    for (size_t k = 0; k < chunk_size(pass->layout); k++) {
        size_t c = channel + k % lanes, i = begin + k;
        float gradient = pass->output_gradient[i];
        if (pass->output_gradient2)
            gradient += pass->output_gradient2[i];
        if (gate == GATE_DROPOUT)
            gradient = pass->output[i] == 0 ? 0 : gradient * dropout_scale;
        pass->output_gradient[i] = gradient;
        float x = pass->x[i] - pass->mean[c];
        if (gate == GATE_RELU && x * (pass->gamma[c] * pass->inv_std[c]) + pass->beta[c] <= 0)
            gradient = 0;
        sums[k % lanes] += gradient;
        sums[lanes + k % lanes] += gradient * x;
    }
}

// Joins the chunks' sums in their order: the gradients of beta and gamma.
static void join_sums(const NormBackward *pass)
{
    Layout layout = pass->layout;
    size_t lanes = (size_t)layout.lanes;
#pragma omp parallel for schedule(static)
    for (int c = 0; c < layout.blocks * layout.lanes; c++) {
        size_t block = (size_t)(c / layout.lanes), lane = (size_t)(c % layout.lanes);
        double sum = 0, product = 0;
        for (int n = 0; n < layout.batch; n++) {
            const float *sums =
                pass->partial + ((size_t)n * (size_t)layout.blocks + block) * 2 * lanes;
            sum += (double)sums[lane];
            product += (double)sums[lanes + lane];
        }
        pass->beta_gradient[c] = (float)sum;
        pass->gamma_gradient[c] = (float)(product * (double)pass->inv_std[c]);
    }
}

// Second pass: input_gradient = gamma inv_std (g - mean(g) - x_hat mean(g x_hat)).
INLINE void chunk_backward(int groups, Gate gate, const NormBackward *pass, size_t chunk,
                           size_t channel)
{
    size_t begin = chunk * chunk_size(pass->layout);
    float count = (float)pass->layout.batch * (float)pass->layout.pixels;
    Affine affine[2];
    Floats mean_gradient[2], slope[2];
    for (int g = 0; g < groups; g++) {
        size_t c = channel + (size_t)g * VECTOR;
        affine[g] = load_affine(pass->mean, pass->inv_std, pass->gamma, pass->beta, c);
        mean_gradient[g] = load(pass->beta_gradient + c) / count;
        slope[g] = load(pass->gamma_gradient + c) * load(pass->inv_std + c) / count;
    }
    for (int p = 0; p < pass->layout.pixels; p++)
        for (int g = 0; g < groups; g++) {
            size_t i = begin + (size_t)(p * groups + g) * VECTOR;
            Floats x = load(pass->x + i) - affine[g].mean,
                   gradient = load(pass->output_gradient + i);
            if (gate == GATE_RELU)
                gradient = select_if(relu_mask(x * affine[g].scale + affine[g].beta), gradient);
            store(pass->input_gradient + i,
                  affine[g].scale * (gradient - mean_gradient[g] - x * slope[g]));
        }
}

static void chunk_backward_of_lanes(const NormBackward *pass, Gate gate, size_t chunk,
                                    size_t channel)
{
    size_t begin = chunk * chunk_size(pass->layout), lanes = (size_t)pass->layout.lanes;
    float count = (float)pass->layout.batch * (float)pass->layout.pixels;
    for (size_t k = 0; k < chunk_size(pass->layout); k++) {
        size_t c = channel + k % lanes, i = begin + k;
        float scale = pass->gamma[c] * pass->inv_std[c];
        float x = pass->x[i] - pass->mean[c], gradient = pass->output_gradient[i];
        if (gate == GATE_RELU && x * scale + pass->beta[c] <= 0)
            gradient = 0;
        pass->input_gradient[i] = scale * (gradient - pass->beta_gradient[c] / count -
                                           x * pass->gamma_gradient[c] * pass->inv_std[c] / count);
    }
}

INLINE void norm_backward_in(int groups, Gate gate, bool two_parts, const NormBackward *pass)
{
    Layout layout = pass->layout;
    float dropout_scale = 1 / (1 - pass->dropout_rate);
#pragma omp parallel
    {
        Share mine = my_share(chunk_count(layout));
        for (int i = mine.begin; i < mine.end; i++) {
            size_t channel = (size_t)(i % layout.blocks) * (size_t)layout.lanes;
            if (groups)
                chunk_sums(groups, gate, two_parts, pass, dropout_scale, (size_t)i, channel);
            else
                chunk_sums_of_lanes(pass, gate, (size_t)i, channel);
        }
    }
    join_sums(pass);
#pragma omp parallel
    {
        Share mine = my_share(chunk_count(layout));
        for (int i = mine.end - 1; i >= mine.begin; i--) {
            size_t channel = (size_t)(i % layout.blocks) * (size_t)layout.lanes;
            if (groups)
                chunk_backward(groups, gate, pass, (size_t)i, channel);
            else
                chunk_backward_of_lanes(pass, gate, (size_t)i, channel);
        }
    }
}

INLINE void norm_backward_groups(int groups, const NormBackward *pass)
{
    Gate gate = gate_of(pass);
    if (gate == GATE_RELU && pass->output_gradient2)
        norm_backward_in(groups, GATE_RELU, true, pass);
    else if (gate == GATE_RELU)
        norm_backward_in(groups, GATE_RELU, false, pass);
    else if (gate == GATE_DROPOUT)
        norm_backward_in(groups, GATE_DROPOUT, pass->output_gradient2 != NULL, pass);
    else
        norm_backward_in(groups, GATE_OPEN, pass->output_gradient2 != NULL, pass);
}

static void norm_backward(const NormBackward *pass)
{
    if (pass->layout.lanes == 2 * VECTOR)
        norm_backward_groups(2, pass);
    else if (pass->layout.lanes == VECTOR)
        norm_backward_groups(1, pass);
    else
        norm_backward_in(0, gate_of(pass), true, pass);
}

static void bias_relu(float *y, const float *bias, int rows, int columns, bool relu)
{
#pragma omp parallel for schedule(static)
    for (int row = 0; row < rows; row++) {
        float *line = y + (size_t)row * (size_t)columns;
        for (int c = 0; c < columns; c++)
            line[c] += bias[c];
        for (int c = 0; relu && c < columns; c++)
            line[c] = line[c] <= 0 ? 0 : line[c];
    }
}

static void relu(float *out, const float *in, size_t count)
{
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        out[i] = in[i] <= 0 ? 0 : in[i];
}

static void relu_backward(float *gradient, const float *output, size_t count)
{
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        gradient[i] = output[i] <= 0 ? 0 : gradient[i];
}

static void dropout(float *out, const float *in, size_t count, float rate, uint64_t key)
{
    Dropout d = dropout_of(rate, key);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        out[i] = keep_mask(d, (uint32_t)i)[0] ? in[i] * d.scale : 0;
}

static void add(float *sum, const float *a, const float *b, size_t count)
{
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        sum[i] = a[i] + b[i];
}

static void sum_rows(float *sum, const float *x, int rows, int columns)
{
    memset(sum, 0, (size_t)columns * sizeof *sum);
    for (int row = 0; row < rows; row++)
        for (int c = 0; c < columns; c++)
            sum[c] += x[(size_t)row * (size_t)columns + (size_t)c];
}

static void pool_forward(Layout layout, int channels, const float *x, float *mean)
{
#pragma omp parallel for schedule(static)
    for (int n = 0; n < layout.batch; n++)
        for (int c = 0; c < channels; c++) {
            size_t chunk = (size_t)(n * layout.blocks + c / layout.lanes);
            const float *from = x + chunk * chunk_size(layout) + c % layout.lanes;
            float sum = 0;
            for (int p = 0; p < layout.pixels; p++)
                sum += from[p * layout.lanes];
            mean[n * channels + c] = sum / (float)layout.pixels;
        }
}

static void pool_backward(Layout layout, int channels, const float *mean_gradient, float *gradient)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < chunk_count(layout); i++) {
        int n = i / layout.blocks, first = i % layout.blocks * layout.lanes;
        float *to = gradient + (size_t)i * chunk_size(layout);
        for (int p = 0; p < layout.pixels; p++)
            for (int lane = 0; lane < layout.lanes; lane++) {
                int c = first + lane;
                to[p * layout.lanes + lane] =
                    c < channels ? mean_gradient[n * channels + c] / (float)layout.pixels : 0;
            }
    }
}

static void embed(Layout layout, int channels, const float *tokens, const float *table, float *y)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < chunk_count(layout); i++) {
        int n = i / layout.blocks, first = i % layout.blocks * layout.lanes;
        float *to = y + (size_t)i * chunk_size(layout);
        for (int p = 0; p < layout.pixels; p++) {
            int token = (int)tokens[n * layout.pixels + p];
            const float *row = table + (token < 0 ? 0 : (size_t)token * (size_t)channels);
            for (int lane = 0; lane < layout.lanes; lane++) {
                int c = first + lane;
                to[p * layout.lanes + lane] = token >= 0 && c < channels ? row[c] : 0;
            }
        }
    }
}

// Adds the gradient of pixel p of image n to the row of its token.
static void add_to_row(Layout layout, int channels, int n, int p, const float *y_gradient,
                       float *row)
{
    for (int c = 0; c < channels; c++) {
        size_t chunk = (size_t)(n * layout.blocks + c / layout.lanes);
        row[c] +=
            y_gradient[chunk * chunk_size(layout) + (size_t)(p * layout.lanes + c % layout.lanes)];
    }
}

// Each row belongs to one thread, which looks at all tokens: so the sums do not depend on the
// number of threads.
static void embed_backward(Layout layout, int channels, int rows, const float *tokens,
                           const float *y_gradient, float *table_gradient)
{
    int pixels = layout.batch * layout.pixels;
#pragma omp parallel
    {
        int threads = omp_get_num_threads(), me = omp_get_thread_num();
        for (int row = me; row < rows; row += threads)
            memset(table_gradient + (size_t)row * (size_t)channels, 0,
                   (size_t)channels * sizeof *table_gradient);
        for (int i = 0; i < pixels; i++) {
            int row = (int)tokens[i];
            if (row >= 0 && row % threads == me)
                add_to_row(layout, channels, i / layout.pixels, i % layout.pixels, y_gradient,
                           table_gradient + (size_t)row * (size_t)channels);
        }
    }
}

// The rules, for one weight; optimizer.h has the formulas. `a` and `b` are its two slots.
INLINE float sgd_rule(const Update *u, float g, float w)
{
    return w - u->learning_rate * g;
}

INLINE float momentum_rule(const Update *u, float g, float w, float *a)
{
    *a = u->momentum * *a - u->learning_rate * g;
    return u->nesterov ? w + u->momentum * *a - u->learning_rate * g : w + *a;
}

INLINE float adam_rule(const Update *u, float rate, float g, float w, float *a, float *b)
{
    *a += (g - *a) * (1 - u->beta_1);
    *b += (g * g - *b) * (1 - u->beta_2);
    return w - rate * *a / (sqrtf(*b) + u->epsilon);
}

INLINE float adadelta_rule(const Update *u, float g, float w, float *a, float *b)
{
    *a = u->rho * *a + (1 - u->rho) * g * g;
    float delta = sqrtf(*b + u->epsilon) / sqrtf(*a + u->epsilon) * g;
    *b = u->rho * *b + (1 - u->rho) * delta * delta;
    return w - u->learning_rate * delta;
}

// The slot holds what was added to the initial accumulator.
INLINE float adagrad_rule(const Update *u, float g, float w, float *a)
{
    *a += g * g;
    return w - u->learning_rate * g / sqrtf(ADAGRAD_INITIAL_ACCUMULATOR + *a + u->epsilon);
}

INLINE float rmsprop_rule(const Update *u, float g, float w, float *a)
{
    *a = u->rho * *a + (1 - u->rho) * g * g;
    return w - u->learning_rate * g / sqrtf(*a + u->epsilon);
}

INLINE float rmsprop_momentum_rule(const Update *u, float g, float w, float *a, float *b)
{
    *a = u->rho * *a + (1 - u->rho) * g * g;
    *b = u->momentum * *b + u->learning_rate * g / sqrtf(*a + u->epsilon);
    return w - *b;
}

// One loop over all segments with `rule` inside, for a team of threads.
#define FOR_EACH_WEIGHT(rule)                                                                      \
    for (int s = 0; s < count; s++) {                                                              \
        size_t end = segments[s].offset + segments[s].length;                                      \
        float l2 = 2 * segments[s].l2;                                                             \
        _Pragma("omp for simd schedule(static) nowait") for (size_t i = segments[s].offset;        \
                                                             i < end; i++)                         \
        {                                                                                          \
            float g = gradients[i] + l2 * w[i];                                                    \
            w[i] = rule;                                                                           \
        }                                                                                          \
    }

static void update_all(const Update *u, const Segment *segments, int count)
{
    float *restrict w = u->weights, *restrict a = u->slots[0], *restrict b = u->slots[1];
    const float *restrict gradients = u->gradients;
    double step = (double)u->step;
    float adam_rate = (float)((double)u->learning_rate * sqrt(1 - pow((double)u->beta_2, step)) /
                              (1 - pow((double)u->beta_1, step)));
#pragma omp parallel
    switch (u->kind) {
    case SGD:
        if (a)
            FOR_EACH_WEIGHT(momentum_rule(u, g, w[i], &a[i]))
        else
            FOR_EACH_WEIGHT(sgd_rule(u, g, w[i]))
        break;
    case ADAM:
        FOR_EACH_WEIGHT(adam_rule(u, adam_rate, g, w[i], &a[i], &b[i]))
        break;
    case ADADELTA:
        FOR_EACH_WEIGHT(adadelta_rule(u, g, w[i], &a[i], &b[i]))
        break;
    case ADAGRAD:
        FOR_EACH_WEIGHT(adagrad_rule(u, g, w[i], &a[i]))
        break;
    case RMSPROP:
        if (b)
            FOR_EACH_WEIGHT(rmsprop_momentum_rule(u, g, w[i], &a[i], &b[i]))
        else
            FOR_EACH_WEIGHT(rmsprop_rule(u, g, w[i], &a[i]))
        break;
    }
}

const Passes PASSES = {
    .norm_statistics = norm_statistics,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .bias_relu = bias_relu,
    .relu_backward = relu_backward,
    .relu = relu,
    .dropout = dropout,
    .add = add,
    .sum_rows = sum_rows,
    .pool_forward = pool_forward,
    .pool_backward = pool_backward,
    .embed = embed,
    .embed_backward = embed_backward,
    .update = update_all,
};
