// What test_hvd.c and hvd_training.c share: how a check fails, and a small model.

#ifndef HVDLAB_MPI_HVD_CHECKS_H
#define HVDLAB_MPI_HVD_CHECKS_H

#include <stdio.h>
#include <stdlib.h>
#include "hvd/hvd.h"
#include "train/fit.h"

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: %s does not hold\n", hvd_rank(), __FILE__, __LINE__,  \
                    #condition);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

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
