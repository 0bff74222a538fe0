// Trains a small convolutional network on CIFAR-10, on many devices: by Adadelta, with a rate that
// grows with the number of workers, a warm-up, and a plateau rule on the averaged loss. Each worker
// reads a part of the images. The first 500 test images validate each epoch; the others are for the
// end: of the epoch that was the best one, where checkpoints are saved. Where the files of CIFAR-10
// are not there, generated images take their place.

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

// Loss and accuracy on all workers' images: each evaluates its own.
static Score evaluate_together(Model *model, Batches *own)
{
    float images = (float)batches_dataset(own)->count;
    Score score = evaluate(model, own, 0);
    float sums[] = {(float)score.loss * images, (float)score.accuracy * images, images};
    hvd_allreduce(sums, 3, HVD_SUM);
    return (Score){sums[0] / sums[2], sums[1] / sums[2]};
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;

    Dataset train = load_cifar10_data(&args, TRAIN), test = load_cifar10_data(&args, TEST);
    int validating = test.count >= 1000 ? 500 : test.count / 2;
    Dataset validation = dataset_range(&test, 0, validating);
    Dataset others = dataset_range(&test, validating, test.count - validating);

    // This worker's part of the images.
    Dataset train_images = shard_dataset(&train, hvd_rank(), hvd_size());
    Dataset validation_images = shard_dataset(&validation, hvd_rank(), hvd_size());
    Dataset test_images = shard_dataset(&others, hvd_rank(), hvd_size());

    // Pixels between 0 and 1, neither shifted nor flipped.
    Statistics scale = {.std = {255, 255, 255}};
    Batches *train_batches = plain_batches(&train_images, scale, args.batch_size);
    Batches *validation_batches = plain_batches(&validation_images, scale, args.val_batch_size);
    Batches *test_batches = plain_batches(&test_images, scale, args.val_batch_size);

    const float lr = 0.1f;
    Optimizer *opt = hvd_distributed_optimizer(adadelta(lr * (float)hvd_size()));
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    callbacks_add(&callbacks, hvd_learning_rate_warmup(lr, 5));
    callbacks_add(&callbacks, reduce_lr_on_plateau(0.2f, 10, 0, verbose));

    Fit plan = {
        .train            = train_batches,
        .epochs           = args.epochs,
        .steps_per_epoch  = train.count / hvd_size() / args.batch_size, // parts differ by an image
        .validation       = validation_batches,
        .validation_steps = batches_len(validation_batches),
        .callbacks        = &callbacks,
        .verbose          = verbose,
    };
    if (args.checkpoint_dir)
        callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = args.checkpoint_dir,
                                                           .keep = 2, .best = true}));
    if (args.resume)
        restore_latest(model, &plan, args.checkpoint_dir);
    fit(model, &plan);

    if (args.checkpoint_dir)
        restore_checkpoint(model, NULL, args.checkpoint_dir, "best");
    Score score = evaluate_together(model, test_batches);
    if (verbose)
        printf("Test loss: %.4f\nTest accuracy: %.4f\n", score.loss, score.accuracy);
    return 0;
}
