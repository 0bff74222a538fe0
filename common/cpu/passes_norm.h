// Inside the CPU backend's passes: batch norm, with what is fused to it. It reads its input twice
// and writes once going forward, and reads input and gradient twice and writes once (twice where
// the gradient has two parts, or has passed a dropout) going backward.
//
// Where a pixel's lanes are more than a few vectors, a chunk is gone through slice by slice.

#ifndef HVDLAB_PASSES_NORM_H
#define HVDLAB_PASSES_NORM_H

#include <string.h>
#include "cpu/passes_parts.h"

// Every pass divides the chunks among threads in the same way, and where two passes follow each
// other the second walks backward, so that it begins with what the first left in the cache of this
// core.

// Calls pass(groups, stride, ...) with constants where it can, so that the loops inside are made
// for them: how many vectors of a pixel are a slice (0: lanes do not fill vectors), and the
// elements from one pixel to the next. Inside the parallel region, whose body is a function of its
// own.
#define BY_SLICES(pass, lanes, ...)                                                                \
    do {                                                                                           \
        if (lanes == 2 * VECTOR)                                                                   \
            pass(2, 2 * VECTOR, __VA_ARGS__);                                                      \
        else if (lanes == VECTOR)                                                                  \
            pass(1, VECTOR, __VA_ARGS__);                                                          \
        else if (lanes % (2 * VECTOR) == 0)                                                        \
            pass(2, lanes, __VA_ARGS__);                                                           \
        else if (lanes % VECTOR == 0)                                                              \
            pass(1, lanes, __VA_ARGS__);                                                           \
        else                                                                                       \
            pass(0, lanes, __VA_ARGS__);                                                           \
    } while (0)

// Sum and sum of squares of a chunk, both relative to its first pixel, so that no digits are lost
// where the mean is large beside the deviation. Of each pixel `groups` vectors are looked at;
// pixels are `stride` elements apart.
INLINE void slice_moments(int groups, size_t stride, const Activation *x, int pixels, float *sums,
                          float *squares)
{
    Floats origin[2];
    Total sum_of_all[2] = {{{0}, {0}}}, square_of_all[2] = {{{0}, {0}}};
    for (int g = 0; g < groups; g++)
        origin[g] = load_activations(x + g * VECTOR);
    for (int begin = 0, end; begin < pixels; begin = end) {
        Floats sum[2] = {{0}}, square[2] = {{0}};
        end = run_end(begin, pixels);
        for (int p = begin; p < end; p++, x += stride)
            for (int g = 0; g < groups; g++) {
                Floats d = load_activations(x + g * VECTOR) - origin[g];
                sum[g] += d;
                square[g] += d * d;
            }
        for (int g = 0; g < groups; g++) {
            total_add(&sum_of_all[g], sum[g]);
            total_add(&square_of_all[g], square[g]);
        }
    }
    for (int g = 0; g < groups; g++) {
        store(sums + g * VECTOR, sum_of_all[g].sum);
        store(squares + g * VECTOR, square_of_all[g].sum);
    }
}

static void moments_of_lanes(Layout layout, const Activation *x, float *sums, float *squares)
{
    for (int lane = 0; lane < layout.lanes; lane++) {
        double sum = 0, square = 0;
        for (int p = 0; p < layout.pixels; p++) {
            float d =
                widened(x[(size_t)p * (size_t)layout.lanes + (size_t)lane]) - widened(x[lane]);
            sum += (double)d;
            square += (double)d * (double)d;
        }
        sums[lane] = (float)sum;
        squares[lane] = (float)square;
    }
}

// Joins the chunks' moments in their order (Chan, Golub and LeVeque, 1979): the result does not
// depend on the number of threads.
static void join_moments(Layout layout, const Activation *x, const float *partial, float *mean,
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
            double delta = (double)widened(x[chunk * size + lane]) + sum / pixels - average;
            deviations +=
                square - sum * sum / pixels + delta * delta * count * pixels / (count + pixels);
            average += delta * pixels / (count + pixels);
            count += pixels;
        }
        mean[c] = (float)average;
        variance[c] = (float)(deviations / count);
    }
}

INLINE void chunks_moments(int groups, size_t stride, Layout layout, const Activation *x,
                           float *partial, Interval mine)
{
    size_t lanes = (size_t)layout.lanes, size = chunk_size(layout);
    for (int i = mine.end - 1; i >= mine.begin; i--) {
        const Activation *chunk = x + (size_t)i * size;
        float *sums = partial + (size_t)i * 2 * lanes;
        if (!groups)
            moments_of_lanes(layout, chunk, sums, sums + lanes);
        for (size_t lane = 0; groups && lane < stride; lane += (size_t)groups * VECTOR)
            slice_moments(groups, stride, chunk + lane, layout.pixels, sums + lane,
                          sums + lanes + lane);
    }
}

static void norm_statistics(Layout layout, const void *activations, float *partial, float *mean,
                            float *variance)
{
    const Activation *x = activations;
#pragma omp parallel
    {
        Interval mine = my_share(chunk_count(layout));
        BY_SLICES(chunks_moments, (size_t)layout.lanes, layout, x, partial, mine);
    }
    join_moments(layout, x, partial, mean, variance);
}

// What batch norm does to a vector of channels: (x - mean) scale + beta, with scale = gamma
// inv_std.
typedef struct {
    Floats mean, scale, beta;
} Affine;

INLINE Affine load_affine(const float *mean, const float *inv_std, const float *gamma,
                          const float *beta, size_t channel)
{
    return (Affine){load(mean + channel), load(gamma + channel) * load(inv_std + channel),
                    load(beta + channel)};
}

// Normalizes a slice of a chunk, the channels from `lane` on:
// output = residual + dropout(relu((x - mean) scale + beta)).
INLINE void slice_forward(int groups, size_t stride, bool relu, bool dropped, bool added,
                          const NormForward *pass, Dropout dropout, size_t begin, size_t channel)
{
    const Activation *x = pass->x, *residual = pass->residual;
    Activation *output = pass->output;
    Affine affine[2];
    for (int g = 0; g < groups; g++)
        affine[g] = load_affine(pass->mean, pass->inv_std, pass->gamma, pass->beta,
                                channel + (size_t)g * VECTOR);
    for (int p = 0; p < pass->layout.pixels; p++)
        for (int g = 0; g < groups; g++) {
            size_t i = begin + (size_t)p * stride + (size_t)g * VECTOR;
            Floats y =
                (load_activations(x + i) - affine[g].mean) * affine[g].scale + affine[g].beta;
            if (relu)
                y = select_if(relu_mask(y), y);
            if (dropped)
                y = select_if(keep_mask(dropout, (uint32_t)i), y * dropout.scale);
            if (added)
                y += load_activations(residual + i);
            store_activations(output + i, y);
        }
}

// The same without vectors, for layouts whose lanes do not fill them.
static void lanes_forward(const NormForward *pass, Dropout dropout, size_t begin, size_t channel)
{
    const Activation *x = pass->x, *residual = pass->residual;
    Activation *output = pass->output;
    size_t lanes = (size_t)pass->layout.lanes;
    for (size_t k = 0; k < chunk_size(pass->layout); k++) {
        size_t c = channel + k % lanes, i = begin + k;
        float y =
            (widened(x[i]) - pass->mean[c]) * (pass->gamma[c] * pass->inv_std[c]) + pass->beta[c];
        if (pass->relu && y <= 0)
            y = 0;
        if (pass->dropout_rate > 0)
            y = keep_mask(dropout, (uint32_t)i)[0] ? y * dropout.scale : 0;
        output[i] = rounded(residual ? y + widened(residual[i]) : y);
    }
}

INLINE void chunks_forward(int groups, size_t stride, bool relu, bool dropped, bool added,
                           const NormForward *pass, Interval mine)
{
    Dropout dropout = dropout_of(pass->dropout_rate, pass->dropout_key);
    Layout layout = pass->layout;
    for (int i = mine.begin; i < mine.end; i++) {
        size_t begin = (size_t)i * chunk_size(layout);
        size_t channel = (size_t)(i % layout.blocks) * (size_t)layout.lanes;
        if (!groups)
            lanes_forward(pass, dropout, begin, channel);
        for (size_t lane = 0; groups && lane < stride; lane += (size_t)groups * VECTOR)
            slice_forward(groups, stride, relu, dropped, added, pass, dropout, begin + lane,
                          channel + lane);
    }
}

// The combinations that models use get loops of their own; constants fold the rest away.
INLINE void forward_by_kind(int groups, size_t stride, const NormForward *pass, Interval mine)
{
    if (pass->dropout_rate > 0)
        chunks_forward(groups, stride, true, true, false, pass, mine);
    else if (pass->relu && pass->residual)
        chunks_forward(groups, stride, true, false, true, pass, mine);
    else if (pass->relu)
        chunks_forward(groups, stride, true, false, false, pass, mine);
    else
        chunks_forward(groups, stride, false, false, pass->residual != NULL, pass, mine);
}

static void norm_forward(const NormForward *pass)
{
#pragma omp parallel
    {
        Interval mine = my_share(chunk_count(pass->layout));
        BY_SLICES(forward_by_kind, (size_t)pass->layout.lanes, pass, mine);
    }
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

// First pass over a slice of a chunk: adds the gradient's parts, and sums g and g (x - mean), g
// being the gradient behind the gate. Where the second pass could not find g again it is written
// down.
INLINE void slice_sums(int groups, size_t stride, Gate gate, bool two_parts,
                       const NormBackward *pass, size_t begin, size_t channel, float *sums)
{
    const Activation *all_x = pass->x, *output = pass->output, *part2 = pass->output_gradient2;
    Activation *part = pass->output_gradient;
    float dropout_scale = 1 / (1 - pass->dropout_rate);
    Affine affine[2];
    Total sum_of_all[2] = {{{0}, {0}}}, product_of_all[2] = {{{0}, {0}}};
    for (int g = 0; g < groups; g++)
        affine[g] = load_affine(pass->mean, pass->inv_std, pass->gamma, pass->beta,
                                channel + (size_t)g * VECTOR);
    for (int p = 0, end; p < pass->layout.pixels;) {
        Floats sum[2] = {{0}}, product[2] = {{0}};
        for (end = run_end(p, pass->layout.pixels); p < end; p++)
            for (int g = 0; g < groups; g++) {
                size_t i = begin + (size_t)p * stride + (size_t)g * VECTOR;
                Floats gradient = load_activations(part + i);
                if (two_parts)
                    gradient += load_activations(part2 + i);
                if (gate == GATE_DROPOUT)
                    gradient = select_if((Ints)(load_activations(output + i) != 0),
                                         gradient * dropout_scale);
                if (two_parts || gate == GATE_DROPOUT) {
                    store_activations(part + i, gradient);
                    gradient = load_activations(part + i); // what the second pass will find
                }
                Floats x = load_activations(all_x + i) - affine[g].mean;
                if (gate == GATE_RELU)
                    gradient = select_if(relu_mask(x * affine[g].scale + affine[g].beta), gradient);
                sum[g] += gradient;
                product[g] += gradient * x;
            }
        for (int g = 0; g < groups; g++) {
            total_add(&sum_of_all[g], sum[g]);
            total_add(&product_of_all[g], product[g]);
        }
    }
    for (int g = 0; g < groups; g++) {
        store(sums + g * VECTOR, sum_of_all[g].sum);
        store(sums + pass->layout.lanes + g * VECTOR, product_of_all[g].sum);
    }
}

// Of a lane of a chunk; the lanes are few, or the pixels are.
static void sums_of_lane(const NormBackward *pass, Gate gate, size_t begin, size_t channel,
                         size_t lane, float *sums)
{
    const Activation *all_x = pass->x, *output = pass->output, *part2 = pass->output_gradient2;
    Activation *part = pass->output_gradient;
    size_t lanes = (size_t)pass->layout.lanes, c = channel + lane;
    float dropout_scale = 1 / (1 - pass->dropout_rate);
    double sum = 0, product = 0;
    for (size_t k = lane; k < chunk_size(pass->layout); k += lanes) {
        size_t i = begin + k;
        float gradient = widened(part[i]);
        if (part2)
            gradient += widened(part2[i]);
        if (gate == GATE_DROPOUT)
            gradient = widened(output[i]) == 0 ? 0 : gradient * dropout_scale;
        part[i] = rounded(gradient);
        gradient = widened(part[i]); // what the second pass will find
        float x = widened(all_x[i]) - pass->mean[c];
        if (gate == GATE_RELU && x * (pass->gamma[c] * pass->inv_std[c]) + pass->beta[c] <= 0)
            gradient = 0;
        sum += (double)gradient;
        product += (double)gradient * (double)x;
    }
    sums[lane] = (float)sum;
    sums[lanes + lane] = (float)product;
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
INLINE void slice_backward(int groups, size_t stride, Gate gate, const NormBackward *pass,
                           size_t begin, size_t channel)
{
    const Activation *all_x = pass->x, *output_gradient = pass->output_gradient;
    Activation *input_gradient = pass->input_gradient;
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
            size_t i = begin + (size_t)p * stride + (size_t)g * VECTOR;
            Floats x = load_activations(all_x + i) - affine[g].mean,
                   gradient = load_activations(output_gradient + i);
            if (gate == GATE_RELU)
                gradient = select_if(relu_mask(x * affine[g].scale + affine[g].beta), gradient);
            store_activations(input_gradient + i,
                              affine[g].scale * (gradient - mean_gradient[g] - x * slope[g]));
        }
}

static void lanes_backward(const NormBackward *pass, Gate gate, size_t begin, size_t channel)
{
    const Activation *all_x = pass->x, *output_gradient = pass->output_gradient;
    Activation *input_gradient = pass->input_gradient;
    size_t lanes = (size_t)pass->layout.lanes;
    float count = (float)pass->layout.batch * (float)pass->layout.pixels;
    for (size_t k = 0; k < chunk_size(pass->layout); k++) {
        size_t c = channel + k % lanes, i = begin + k;
        float scale = pass->gamma[c] * pass->inv_std[c];
        float x = widened(all_x[i]) - pass->mean[c], gradient = widened(output_gradient[i]);
        if (gate == GATE_RELU && x * scale + pass->beta[c] <= 0)
            gradient = 0;
        input_gradient[i] =
            rounded(scale * (gradient - pass->beta_gradient[c] / count -
                             x * pass->gamma_gradient[c] * pass->inv_std[c] / count));
    }
}

INLINE void chunk_sums(int groups, size_t stride, Gate gate, bool two_parts,
                       const NormBackward *pass, int chunk)
{
    Layout layout = pass->layout;
    size_t begin = (size_t)chunk * chunk_size(layout), lanes = (size_t)layout.lanes;
    size_t channel = (size_t)(chunk % layout.blocks) * lanes;
    float *sums = pass->partial + (size_t)chunk * 2 * lanes;
    for (size_t lane = 0; !groups && lane < lanes; lane++)
        sums_of_lane(pass, gate, begin, channel, lane, sums);
    for (size_t lane = 0; groups && lane < stride; lane += (size_t)groups * VECTOR)
        slice_sums(groups, stride, gate, two_parts, pass, begin + lane, channel + lane,
                   sums + lane);
}

INLINE void chunk_backward(int groups, size_t stride, Gate gate, const NormBackward *pass,
                           int chunk)
{
    Layout layout = pass->layout;
    size_t begin = (size_t)chunk * chunk_size(layout);
    size_t channel = (size_t)(chunk % layout.blocks) * (size_t)layout.lanes;
    if (!groups)
        lanes_backward(pass, gate, begin, channel);
    for (size_t lane = 0; groups && lane < stride; lane += (size_t)groups * VECTOR)
        slice_backward(groups, stride, gate, pass, begin + lane, channel + lane);
}

INLINE void all_sums(int groups, size_t stride, Gate gate, bool two_parts, const NormBackward *pass,
                     Interval mine)
{
    for (int i = mine.begin; i < mine.end; i++)
        chunk_sums(groups, stride, gate, two_parts, pass, i);
}

INLINE void sums_by_kind(int groups, size_t stride, Gate gate, const NormBackward *pass,
                         Interval mine)
{
    bool two_parts = pass->output_gradient2 != NULL;
    if (gate == GATE_RELU && two_parts)
        all_sums(groups, stride, GATE_RELU, true, pass, mine);
    else if (gate == GATE_RELU)
        all_sums(groups, stride, GATE_RELU, false, pass, mine);
    else if (gate == GATE_DROPOUT)
        all_sums(groups, stride, GATE_DROPOUT, two_parts, pass, mine);
    else
        all_sums(groups, stride, GATE_OPEN, two_parts, pass, mine);
}

INLINE void all_backward(int groups, size_t stride, Gate gate, const NormBackward *pass,
                         Interval mine)
{
    for (int i = mine.end - 1; i >= mine.begin; i--)
        chunk_backward(groups, stride, gate, pass, i);
}

// What is behind a dropout's gate has been written down.
INLINE void backward_by_kind(int groups, size_t stride, Gate gate, const NormBackward *pass,
                             Interval mine)
{
    if (gate == GATE_RELU)
        all_backward(groups, stride, GATE_RELU, pass, mine);
    else
        all_backward(groups, stride, GATE_OPEN, pass, mine);
}

static void norm_backward(const NormBackward *pass)
{
    Gate gate = gate_of(pass);
#pragma omp parallel
    {
        Interval mine = my_share(chunk_count(pass->layout));
        BY_SLICES(sums_by_kind, (size_t)pass->layout.lanes, gate, pass, mine);
    }
    join_sums(pass);
#pragma omp parallel
    {
        Interval mine = my_share(chunk_count(pass->layout));
        BY_SLICES(backward_by_kind, (size_t)pass->layout.lanes, gate, pass, mine);
    }
}

#endif
