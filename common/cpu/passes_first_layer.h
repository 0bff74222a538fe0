// Inside the CPU backend's passes: the gradient of the kernel of a model's first convolution, 3x3,
// on images of few channels. There is little to compute for each number of the output's gradient
// that comes from memory: nine multiply-adds for each channel of the image, which are in the cache.

#ifndef HVDLAB_PASSES_FIRST_LAYER_H
#define HVDLAB_PASSES_FIRST_LAYER_H

#include <string.h>
#include "cpu/passes.h"
#include "cpu/simd.h"

// One image with a border of zeros.
INLINE void add_border(const FirstLayer *p, const float *image, float *bordered)
{
    size_t line = (size_t)p->width * (size_t)p->channels, border = (size_t)p->channels;
    size_t row = line + 2 * border;
    memset(bordered, 0, ((size_t)p->height + 2) * row * sizeof *bordered);
    for (int y = 0; y < p->height; y++)
        memcpy(bordered + ((size_t)y + 1) * row + border, image + (size_t)y * line,
               line * sizeof *image);
}

// The sums of one vector of the output's channels over an image's pixels: of each tap of one of the
// image's channels, and of the gradient itself.
INLINE void sum_taps(const FirstLayer *p, const float *bordered, int channel, const float *gradient,
                     float *sums, size_t next, float *bias_sum)
{
    size_t channels = (size_t)p->channels, row = ((size_t)p->width + 2) * channels;
    size_t lanes = (size_t)p->layout.lanes;
    Total total[FIRST_LAYER_TAPS] = {{{0}, {0}}}, total_of_all = {{0}, {0}};
    int lines = p->width < RUN ? RUN / p->width : 1; // of a run
    for (int y = 0, end; y < p->height;) {
        Floats sum[FIRST_LAYER_TAPS] = {{0}}, all = {0};
        for (end = p->height - y > lines ? y + lines : p->height; y < end; y++) {
            const float *from = bordered + (size_t)y * row + (size_t)channel;
            for (int x = 0; x < p->width; x++, from += channels, gradient += lanes) {
                Floats g = load(gradient);
                for (size_t t = 0; t < FIRST_LAYER_TAPS; t++)
                    sum[t] += from[t / 3 * row + t % 3 * channels] * g;
                all += g;
            }
        }
        for (size_t t = 0; t < FIRST_LAYER_TAPS; t++)
            total_add(&total[t], sum[t]);
        total_add(&total_of_all, all);
    }
    for (size_t t = 0; t < FIRST_LAYER_TAPS; t++)
        store(sums + t * next, total[t].sum);
    store(bias_sum, total_of_all.sum);
}

// The sum of the images' sums, in their order.
INLINE float join_images(const FirstLayer *p, const float *partial, int block, int tap, int lane)
{
    size_t lanes = (size_t)p->layout.lanes, row = first_layer_sums(p);
    const float *from = partial + (size_t)block * row + (size_t)tap * lanes + (size_t)lane;
    double sum = 0;
    for (int n = 0; n < p->layout.batch; n++)
        sum += (double)from[(size_t)n * (size_t)p->layout.blocks * row];
    return (float)sum;
}

// The last of a block's taps is the bias's, which has no padding.
static void join_block(const FirstLayer *p, const float *partial, int block, float *kernel_gradient,
                       float *bias_gradient)
{
    int lanes = p->layout.lanes, taps = FIRST_LAYER_TAPS * p->channels;
    for (int tap = 0; tap < taps; tap++)
        for (int lane = 0; lane < lanes; lane++)
            kernel_gradient[(block * taps + tap) * lanes + lane] =
                join_images(p, partial, block, tap, lane);
    for (int c = block * lanes; bias_gradient && c < (block + 1) * lanes && c < p->filters; c++)
        bias_gradient[c] = join_images(p, partial, block, taps, c % lanes);
}

static void first_kernel_gradient(const FirstLayer *p, const float *images, const float *y_gradient,
                                  float *kernel_gradient, float *bias_gradient, float *scratch)
{
    Layout layout = p->layout;
    size_t lanes = (size_t)layout.lanes, channels = (size_t)p->channels;
    size_t image = (size_t)layout.pixels * channels, chunk = (size_t)layout.pixels * lanes;
    size_t sums = first_layer_sums(p);
    float *partial = scratch + (size_t)p->threads * bordered_size(p);
#pragma omp parallel num_threads(p->threads)
    {
        float *bordered = scratch + (size_t)omp_get_thread_num() * bordered_size(p);
        Interval mine = my_share(layout.batch * layout.blocks);
        for (int i = mine.begin; i < mine.end; i++) {
            if (i == mine.begin || i % layout.blocks == 0)
                add_border(p, images + (size_t)(i / layout.blocks) * image, bordered);
            float *to = partial + (size_t)i * sums;
            for (size_t lane = 0; lane < lanes; lane += VECTOR)
                for (int c = 0; c < p->channels; c++)
                    sum_taps(p, bordered, c, y_gradient + (size_t)i * chunk + lane,
                             to + (size_t)c * lanes + lane, channels * lanes,
                             to + FIRST_LAYER_TAPS * channels * lanes + lane);
        }
#pragma omp barrier
        Interval blocks = my_share(layout.blocks);
        for (int b = blocks.begin; b < blocks.end; b++)
            join_block(p, partial, b, kernel_gradient, bias_gradient);
    }
}

#endif
