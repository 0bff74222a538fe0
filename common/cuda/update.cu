// The optimizers' updates. One launch updates many segments.

#include <math.h>
#include "backend/constants.h"
#include "cuda/kernels.cuh"

#define PER_THREAD   16
#define PER_BLOCK    (THREADS * PER_THREAD)
#define MAX_SEGMENTS 64 // of a launch; they travel with it

struct Segments {
    int count;
    int first_block[MAX_SEGMENTS];
    Segment segments[MAX_SEGMENTS];
};

// The rules, for one weight; optimizer.h has the formulas. `a` and `b` are its two slots.
static __device__ __forceinline__ float updated(const Update &u, float rate, float g, float w,
                                                float &a, float &b)
{
    switch (u.kind) {
    case SGD: // without momentum the slot is not kept, and counts as 0
        a = u.momentum * a - rate * g;
        return u.nesterov ? w + u.momentum * a - rate * g : w + a;
    case ADAM:
        a += (g - a) * (1 - u.beta_1);
        b += (g * g - b) * (1 - u.beta_2);
        return w - rate * a / (sqrtf(b) + u.epsilon);
    case ADADELTA: {
        a = u.rho * a + (1 - u.rho) * g * g;
        float delta = sqrtf(b + u.epsilon) / sqrtf(a + u.epsilon) * g;
        b = u.rho * b + (1 - u.rho) * delta * delta;
        return w - rate * delta;
    }
    case ADAGRAD:
        a += g * g;
        return w - rate * g / sqrtf(ADAGRAD_INITIAL_ACCUMULATOR + a + u.epsilon);
    case RMSPROP: // without momentum b counts as 0
        a = u.rho * a + (1 - u.rho) * g * g;
        b = u.momentum * b + rate * g / sqrtf(a + u.epsilon);
        return w - b;
    }
    return w;
}

static __global__ void __launch_bounds__(THREADS)
    update_segments(Segments all, Update u, float rate, float *__restrict__ weights,
                    const float *__restrict__ gradients, float *__restrict__ slot_a,
                    float *__restrict__ slot_b)
{
    int s = own_part(all.count, all.first_block);
    const Segment segment = all.segments[s];
    size_t begin = (size_t)((int)blockIdx.x - all.first_block[s]) * PER_BLOCK;
    UNROLL
    for (int k = 0; k < PER_THREAD; k++) {
        size_t place = begin + (size_t)k * THREADS + threadIdx.x, i = segment.offset + place;
        if (place >= segment.length)
            break;
        float w = weights[i], g = gradients[i] + 2 * segment.l2 * w;
        float a = slot_a ? slot_a[i] : 0, b = slot_b ? slot_b[i] : 0;
        weights[i] = updated(u, rate, g, w, a, b);
        if (slot_a)
            slot_a[i] = a;
        if (slot_b)
            slot_b[i] = b;
    }
}

// The step size that all weights share.
static float rate_of(const Update *u)
{
    if (u->kind != ADAM)
        return u->learning_rate;
    double step = (double)u->step;
    return (float)((double)u->learning_rate * sqrt(1 - pow((double)u->beta_2, step)) /
                   (1 - pow((double)u->beta_1, step)));
}

void launch_update(const Update *u, const Segment *segments, int count)
{
    for (int first = 0; first < count; first += MAX_SEGMENTS) {
        Segments all = {};
        int blocks = 0;
        while (all.count < MAX_SEGMENTS && first + all.count < count) {
            const Segment *segment = &segments[first + all.count];
            all.first_block[all.count] = blocks;
            all.segments[all.count++] = *segment;
            blocks += (int)((segment->length + PER_BLOCK - 1) / PER_BLOCK);
        }
        if (blocks > 0)
            RUN(update_segments, dim3((unsigned)blocks), all, *u, rate_of(u), u->weights,
                u->gradients, u->slots[0], u->slots[1]);
    }
}

int kernels_made_for(void)
{
    cudaFuncAttributes attributes;
    CUDA(cudaFuncGetAttributes(&attributes, update_segments));
    return attributes.ptxVersion;
}
