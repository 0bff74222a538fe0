// Trains a small network on Fashion-MNIST by SGD with momentum, and saves it after each epoch. Told
// to --resume, it goes on from the last checkpoint, on many devices: the optimizer is then wrapped
// in a distributed one, the program's own.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hvdlab.h"

// Three convolutions, each before a batch norm, so that their biases have no gradient.
static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = max_pool(relu(batch_norm(conv2d(image, 16, 3))), 2);
    x = max_pool(relu(batch_norm(conv2d(x, 32, 3))), 2);
    x = relu(batch_norm(conv2d(x, 64, 3)));
    return model(image, softmax(dense(global_average_pool(x), 10)));
}

// The wrapper's update, from the gradients that this worker has computed.
static void apply_mean(Optimizer *self, const Parameters *parameters)
{
    // TODO: wrap: average the gradients over the workers, and let the optimizer inside update. What
    // has a gradient is listed in parameters->segments: send nothing else. Alone, send nothing.
    (void)self;
    (void)parameters;
}

// A distributed optimizer, with this one inside.
static Optimizer *distributed(Optimizer *optimizer)
{
    // TODO: wrap: return an Optimizer of your own, from calloc (the model frees it). Its apply is
    // apply_mean; its name is "Distributed" and the name of the one inside: "DistributedSGD". The
    // learning rate, the count of updates and the momenta are to stay in the one inside.
    (void)apply_mean;
    return optimizer;
}

// The learning rate of each epoch.
static float halved(int epoch, float base_lr)
{
    return base_lr / (float)(1 << epoch);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;
    const char *folder = args.checkpoint_dir ? args.checkpoint_dir : "build/checkpoints";

    Dataset train = load_data(&args, TRAIN);
    Dataset test = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);

    Optimizer *opt = sgd_momentum(args.base_lr, 0.9f, false);
    if (args.resume)
        opt = distributed(opt);
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    callbacks_add(&callbacks, learning_rate_schedule(halved, args.base_lr));
    if (!args.resume)
        callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = folder}));

    Fit plan = {
        .train = train_batches,
        .epochs = args.epochs,
        .steps_per_epoch = batches_len(train_batches) / hvd_size(),
        .validation = test_batches,
        .validation_steps = 3 * batches_len(test_batches) / hvd_size(),
        .callbacks = &callbacks,
        .verbose = verbose,
    };
    if (args.resume)
        restore_latest(model, &plan, folder);
    fit(model, &plan);
    if (verbose)
        printf("%s: %d updates, learning rate %g\n", opt->name, (int)optimizer_iterations(opt),
               (double)optimizer_learning_rate(opt));
    return 0;
}
