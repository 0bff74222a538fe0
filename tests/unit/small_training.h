// A small training whose checkpoints are in the scratch folder, for their tests.

#ifndef HVDLAB_TESTS_SMALL_TRAINING_H
#define HVDLAB_TESTS_SMALL_TRAINING_H

#include "base/memory.h"
#include "child.h"
#include "hvdlab.h"
#include "scratch.h"

static char path[sizeof scratch + 32], part[sizeof scratch + 32];

typedef struct {
    Dataset dataset;
    Batches *batches;
    Model *model;
    Fit plan;
} Small;

static inline Model *network(int units)
{
    Tensor image = input(28, 28, 1);
    Tensor x = batch_norm(dropout(max_pool(conv2d(image, 2, 3), 7), 0.2f));
    return model(image, softmax(dense(relu(dense(flatten(x), units)), 10)));
}

static inline Small small_with(int units, Optimizer *optimizer)
{
    Args args = {.data = DATA_SYNTHETIC, .images = 40};
    Small s = {.dataset = load_data(&args, TRAIN)};
    s.batches = plain_batches(&s.dataset, image_statistics(&s.dataset), 8);
    s.model = compile(network(units), CATEGORICAL_CROSSENTROPY, optimizer);
    s.plan = (Fit){.train = s.batches, .epochs = 2, .steps_per_epoch = 5};
    return s;
}

static inline Small small(void)
{
    return small_with(6, sgd_momentum(0.1f, 0.9f, false));
}

// Trains by the plan, and saves.
static inline void fit_and_save(Small *s, Checkpoint plan)
{
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, checkpoint(&plan));
    s->plan.callbacks = &callbacks;
    fit(s->model, &s->plan);
}

static inline Checkpoint every_two(void)
{
    return (Checkpoint){.folder = scratch, .every = 2};
}

static inline void train_and_save(const void *unused)
{
    (void)unused;
    Small s = small();
    fit_and_save(&s, every_two());
}

static inline void save_first(void)
{
    make_scratch();
    snprintf(path, sizeof path, "%s/ckpt-1.safetensors", scratch);
    snprintf(part, sizeof part, "%s/ckpt-1.rank-0.safetensors", scratch);
    ck_assert_int_eq(run_in_child(train_and_save, NULL).status, 0);
}

static inline void update_alike(Model *a, Model *b, Batches *batches)
{
    batches_begin(batches, 1);
    Batch batch = batches_next(batches);
    compute_gradients(a, &batch);
    float *gradients = allocate(model_parameters(a)->length, sizeof *gradients);
    model_read_gradients(a, gradients);
    model_write_gradients(b, gradients);
    free(gradients);
    apply_gradients(a);
    apply_gradients(b);
}

#endif
