// Trains LeNet twice on many devices, by Adam: with as many steps of every worker in an epoch as one
// worker alone would make, as the program was published; and with the workers sharing these steps.
// With --checkpoint-dir each training is saved after each epoch, in a folder of its own.

#include <limits.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// One of the two trainings; `folder` below --checkpoint-dir is for its checkpoints.
static void train(const char *name, const char *folder, const Args *args, int64_t steps,
                  Batches *train_batches, Batches *test_batches)
{
    int verbose = hvd_rank() == 0;
    if (verbose)
        printf("%s: %d steps an epoch on each of %d workers\n", name, (int)steps, hvd_size());

    Optimizer *opt = hvd_distributed_optimizer(adam(0.001f * (float)hvd_size()));
    Model *model = compile(create_lenet(32, 512), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    if (verbose)
        callbacks_add(&callbacks, print_total_time());

    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", args->checkpoint_dir ? args->checkpoint_dir : "", folder);
    if (args->checkpoint_dir)
        callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = path}));

    Fit plan = {
        .train           = train_batches,
        .epochs          = args->epochs,
        .steps_per_epoch = steps,
        .callbacks       = &callbacks,
        .verbose         = verbose,
    };
    if (args->resume)
        restore_latest(model, &plan, path);
    fit(model, &plan);

    Score score = evaluate(model, test_batches, 0);
    if (verbose)
        printf("%s: test accuracy %.4f\n", name, score.accuracy);
    callbacks_free(&callbacks);
    model_free(model);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    // Pixels between 0 and 1, neither shifted nor flipped.
    Statistics scale = {.std = {255}};
    Dataset train_images = load_data(&args, TRAIN);
    Dataset test_images = load_data(&args, TEST);
    Batches *train_batches = plain_batches(&train_images, scale, args.batch_size);
    Batches *test_batches = plain_batches(&test_images, scale, args.val_batch_size);

    int64_t steps = batches_len(train_batches);
    train("as published", "published", &args, steps, train_batches, test_batches);
    train("shared", "shared", &args, steps / hvd_size(), train_batches, test_batches);
    return 0;
}
