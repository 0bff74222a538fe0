// Trains a perceptron with two hidden layers on Fashion-MNIST, mirrored on all devices of this
// process. It saves its training as it goes, and goes on from what was saved last when it is started
// again.

#include "hvdlab.h"

static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = relu(dense(flatten(image), 256));
    x = relu(dense(x, 256));
    return model(image, softmax(dense(x, 10)));
}

static Optimizer *create_optimizer(void)
{
    return adam(0.001f);
}

// The images in their order, pixels between 0 and 1, the next batches ready before they are asked
// for.
static Batches *in_order(const Dataset *images, int batch_size)
{
    Pipeline *p = pipeline_from_dataset(images, (Statistics){.std = {255}});
    p = pipeline_batch(p, batch_size, false);
    p = pipeline_prefetch(p, 2);
    return batches_from(p);
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    const char *folder = args.checkpoint_dir ? args.checkpoint_dir : "build/mlp-checkpoints";

    // The last training images are for validation, 10,000 of Fashion-MNIST's 60,000.
    Dataset all_images = load_data(&args, TRAIN), test_images = load_data(&args, TEST);
    int kept = all_images.count / 6, first = all_images.count - kept;
    Dataset train_images = dataset_range(&all_images, 0, first);
    Dataset validation_images = dataset_range(&all_images, first, kept);
    Batches *train_batches = in_order(&train_images, args.batch_size);
    Batches *validation_batches = in_order(&validation_images, args.val_batch_size);
    Batches *test_batches = in_order(&test_images, args.val_batch_size);

    Mirrored *replicas = mirrored(create_model, CATEGORICAL_CROSSENTROPY, create_optimizer, NULL, 0);
    printf("Number of devices: %d\n", mirrored_devices(replicas));
    Model *model = mirrored_model(replicas, 0);

    // After each epoch, and after every 100 batches.
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = folder, .every = 100, .keep = 2}));

    Fit plan = {
        .train            = train_batches,
        .epochs           = args.epochs,
        .steps_per_epoch  = batches_len(train_batches),
        .validation       = validation_batches,
        .validation_steps = batches_len(validation_batches),
        .callbacks        = &callbacks,
        .verbose          = 1,
    };
    restore_latest(model, &plan, folder);
    fit_mirrored(replicas, &plan);

    Score score = evaluate_mirrored(replicas, test_batches, 0);
    printf("Test: loss %.4f, accuracy %.4f\n", score.loss, score.accuracy);
    return 0;
}
