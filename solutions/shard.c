// Trains a small network on Fashion-MNIST, on many devices, where every worker reads images of its
// own.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// The images that this worker reads. Over all workers these are all images, each of them once.
static Dataset own_shard(const Dataset *all)
{
    // shard: every hvd_size()-th image, beginning with the one that has the worker's rank as its
    // number.
    int *numbers = malloc(sizeof(int) * (size_t)all->count), count = 0;
    for (int i = hvd_rank(); i < all->count; i += hvd_size())
        numbers[count++] = i;
    Dataset own = dataset_select(all, numbers, count);
    free(numbers);
    return own;
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;

    // Both sets are standardized with the statistics of all training images, on every worker.
    Dataset train_images = load_data(&args, TRAIN);
    Dataset test_images = load_data(&args, TEST);
    Statistics statistics = image_statistics(&train_images);
    Dataset train = own_shard(&train_images);
    // shard: each worker tests its own shard only.
    Dataset test = own_shard(&test_images);
    Batches *train_batches = augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);

    // shard: one pass over the shard. Where shards differ by an image, a worker may have one batch
    // more: all make as many steps as the worker with the fewest. A validation step waits for no
    // other worker: each worker makes its own number of them.
    int steps = batches_len(train_batches), validation_steps = batches_len(test_batches);
    hvd_allreduce_ints(&steps, 1, HVD_MIN);

    Optimizer *opt = hvd_distributed_optimizer(sgd_momentum(args.base_lr, 0.9f, false));
    Model *model = compile(create_lenet(16, 64), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    if (verbose)
        callbacks_add(&callbacks, print_throughput(train_images.count));

    fit(model, &(Fit){
        .train            = train_batches,
        .epochs           = args.epochs,
        .steps_per_epoch  = steps,
        .validation       = test_batches,
        .validation_steps = validation_steps,
        .callbacks        = &callbacks,
        .verbose          = verbose,
    });
    return 0;
}
