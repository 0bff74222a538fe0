// What test_hvd.c and hvd_training.c share: how a check fails, and a small model.

#ifndef HVDLAB_MPI_HVD_CHECKS_H
#define HVDLAB_MPI_HVD_CHECKS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "hvd/hvd.h"
#include "train/fit.h"

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            failed_at(__FILE__, __LINE__, __func__, #condition);                                   \
    } while (0)

// The same for two numbers, which it shows.
#define EXPECT_EQUAL(value, expected) EXPECT_NEAR(value, expected, 0)
#define EXPECT_NEAR(value, expected, allowed)                                                      \
    expect_near(__FILE__, __LINE__, __func__, #value, (double)(value), (double)(expected), allowed)

_Noreturn static inline void failed_at(const char *file, int line, const char *function,
                                       const char *what)
{
    fprintf(stderr, "rank %d: %s:%d: %s: %s does not hold\n", hvd_rank(), file, line, function,
            what);
    abort();
}

static inline void expect_near(const char *file, int line, const char *function, const char *what,
                               double value, double expected, double allowed)
{
    if (fabs(value - expected) <= allowed) // a NaN is not
        return;
    fprintf(stderr, "rank %d: %s:%d: %s: %s is %.9g instead of %.9g (allowed: %g)\n", hvd_rank(),
            file, line, function, what, value, expected, allowed);
    abort();
}

enum { BATCH = 4, PIXELS = 8 * 8 };

typedef struct {
    float images[BATCH * PIXELS];
    int labels[BATCH];
} Images;

// Weights and images are drawn: whether they are the same on all ranks is for set_seed() to say.
Model *small_model(Optimizer *optimizer);
Batch random_batch(Images *images);

bool same_everywhere(double value);

// All gradients of the last batch; the caller frees them.
float *copy_gradients(const Model *model);

// What hvd promises to a model that trains.
void test_training(void);

#endif
