// Trains a small convolutional network on CIFAR-10, mirrored on all devices of this process. Each
// epoch is saved, and the best one is evaluated on test images that had no part in choosing it.
// Where the files of CIFAR-10 are not there, generated images take their place.

#include "hvdlab.h"

// Two convolutions, each with a pool, and two dense layers.
static Model *create_model(void)
{
    Tensor image = input(32, 32, 3);
    Tensor x = max_pool(relu(conv2d(image, 32, 3)), 2);
    x = max_pool(relu(conv2d(x, 64, 3)), 2);
    x = relu(dense(flatten(x), 256));
    return model(image, softmax(dense(x, 10)));
}

static Optimizer *create_optimizer(void)
{
    return adam(0.001f);
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    const char *folder = args.checkpoint_dir ? args.checkpoint_dir : "build/cnn-checkpoints";

    // The first test images choose the best epoch, 500 of CIFAR-10's; the others judge it.
    Dataset train_images = load_cifar10_data(&args, TRAIN);
    Dataset all_test_images = load_cifar10_data(&args, TEST);
    int chosen = all_test_images.count / 20;
    Dataset validation_images = dataset_range(&all_test_images, 0, chosen);
    Dataset test_images = dataset_range(&all_test_images, chosen, all_test_images.count - chosen);

    // Pixels between 0 and 1, neither shifted nor flipped.
    Statistics scale = {.std = {255, 255, 255}};
    Batches *train_batches = plain_batches(&train_images, scale, args.batch_size);
    Batches *validation_batches = plain_batches(&validation_images, scale, chosen);
    Batches *test_batches = plain_batches(&test_images, scale, args.val_batch_size);

    Mirrored *replicas = mirrored(create_model, CATEGORICAL_CROSSENTROPY, create_optimizer, NULL, 0);
    printf("Number of devices: %d\n", mirrored_devices(replicas));
    Model *model = mirrored_model(replicas, 0);
    model_summary(model);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = folder, .keep = 2, .best = true}));

    Fit plan = {
        .train            = train_batches,
        .epochs           = args.epochs,
        .steps_per_epoch  = train_images.count / args.batch_size, // a remainder is dropped
        .validation       = validation_batches,
        .validation_steps = batches_len(validation_batches),
        .callbacks        = &callbacks,
        .verbose          = 1,
    };
    restore_latest(model, &plan, folder);
    History history = fit_mirrored(replicas, &plan);
    printf("Validation accuracy by epoch:");
    for (int epoch = 0; epoch < history.epochs; epoch++)
        printf(" %.3f", history.logs[epoch].val_accuracy);
    printf("\n");

    restore_checkpoint(model, NULL, folder, "best");
    Score score = evaluate_mirrored(replicas, test_batches, 0);
    printf("The best epoch on the other %d test images: loss %.4f, accuracy %.4f\n",
           test_images.count, score.loss, score.accuracy);
    return 0;
}
