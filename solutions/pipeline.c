// Trains a small network on Fashion-MNIST, on many devices. What the trainer gets is put together
// here, stage by stage: how images come from the disk, wait, change and become batches.

#include "hvdlab.h"
#include "lessons/exercises.h"

// Batches to train with. A pass brings each image once.
static Batches *training_batches(const Dataset *images, Statistics statistics, const Args *args)
{
    Pipeline *p = pipeline_from_dataset(images, statistics);
    // pipeline: what is the same in all passes comes before the cache, what differs after it.
    p = pipeline_cache(p);
    p = pipeline_shuffle(p, args->shuffle_buffer);
    p = pipeline_augment(p);
    p = pipeline_batch(p, args->batch_size, true);
    p = pipeline_repeat(p);
    p = pipeline_prefetch(p, 2);
    return batches_from(p);
}

// Batches to validate with: each image once, as it is.
static Batches *validation_batches(const Dataset *images, Statistics statistics, const Args *args)
{
    Pipeline *p = pipeline_from_dataset(images, statistics);
    // pipeline: no order is better than another here, and no image is left out.
    p = pipeline_cache(p);
    p = pipeline_batch(p, args->val_batch_size, false);
    p = pipeline_prefetch(p, 2);
    return batches_from(p);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;

    // The files hold one class after another. Every worker reads a shard of its own.
    Dataset train_images = load_data(&args, TRAIN), test_images = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train_images);
    Dataset train_files = dataset_by_class(&train_images);
    Dataset test_files = dataset_by_class(&test_images);
    Dataset train = shard_dataset(&train_files, hvd_rank(), hvd_size());
    Dataset test = shard_dataset(&test_files, hvd_rank(), hvd_size());

    Batches *train_batches = training_batches(&train, statistics, &args);
    Batches *test_batches = validation_batches(&test, statistics, &args);

    Optimizer *opt = hvd_distributed_optimizer(sgd_momentum(args.base_lr, 0.9f, false));
    Model *model = compile(create_lenet(16, 64), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    if (verbose)
        callbacks_add(&callbacks, print_throughput(train_images.count));

    // An epoch is one pass, as many whole batches as the smallest shard has.
    fit(model, &(Fit){
        .train            = train_batches,
        .epochs           = args.epochs,
        .steps_per_epoch  = train_images.count / hvd_size() / args.batch_size,
        .validation       = test_batches,
        .validation_steps = batches_len(test_batches),
        .callbacks        = &callbacks,
        .verbose          = verbose,
    });
    return 0;
}
