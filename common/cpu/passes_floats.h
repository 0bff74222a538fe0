// Inside the CPU backend's passes: what is floats whatever the activations are. The vectors that
// dense layers give, and the optimizers' updates.

#ifndef HVDLAB_PASSES_FLOATS_H
#define HVDLAB_PASSES_FLOATS_H

#include <math.h>
#include <string.h>
#include "backend/constants.h"
#include "cpu/passes.h"
#include "cpu/simd.h"

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

static void sum_rows(float *sum, const float *x, int rows, int columns)
{
    enum { SOME = 64 };
    for (int first = 0; first < columns; first += SOME) {
        double total[SOME] = {0};
        int count = columns - first < SOME ? columns - first : SOME;
        for (int row = 0; row < rows; row++)
            for (int c = 0; c < count; c++)
                total[c] += (double)x[(size_t)row * (size_t)columns + (size_t)(first + c)];
        for (int c = 0; c < count; c++)
            sum[first + c] = (float)total[c];
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

#endif
