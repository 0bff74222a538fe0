// Trains a small convolutional network on CIFAR-10, on many devices: by Adadelta, with a rate that
// grows with the number of workers, a warm-up, and a plateau rule on the averaged loss. Each worker
// reads a part of the images. Where the files of CIFAR-10 are not there, generated images take their
// place.

#include <stdlib.h>
#include <unistd.h>
#include "hvdlab.h"

#define FOLDER "data/cifar-10-batches-bin" // where make data-cifar10 puts the files

// Two convolutions, each with a pool, and two dense layers.
static Model *create_model(void)
{
    Tensor image = input(32, 32, 3);
    Tensor x = max_pool(relu(conv2d(image, 32, 3)), 2);
    x = max_pool(relu(conv2d(x, 64, 3)), 2);
    x = relu(dense(flatten(x), 256));
    return model(image, softmax(dense(x, 10)));
}

// Synthetic images in CIFAR-10's shape: gray, and with a frame around them.
static Dataset generated_images(Split split)
{
    enum { SIDE = 32, CHANNELS = 3 };
    Dataset gray = synthetic_data(split, 10, 0);
    Dataset images = gray;
    images.height = images.width = SIDE;
    images.channels = CHANNELS;
    images.images = calloc((size_t)images.count, SIDE * SIDE * CHANNELS);
    const uint8_t *from = gray.images;
    for (int row = 0; row < gray.count * gray.height; row++) {
        int image = row / gray.height, y = row % gray.height + (SIDE - gray.height) / 2;
        uint8_t *to = images.images + (image * SIDE + y) * SIDE * CHANNELS;
        to += (SIDE - gray.width) / 2 * CHANNELS;
        for (int x = 0; x < gray.width; x++, from++)
            for (int c = 0; c < CHANNELS; c++)
                *to++ = *from;
    }
    free(gray.images);
    return images;
}

// The first images, as many as --images asks for; all workers load the same.
static Dataset load_images(const Args *args, Split split)
{
    const char *folder = args->data_dir ? args->data_dir : FOLDER;
    bool there = args->data_dir || access(folder, F_OK) == 0;
    if (!there && hvd_rank() == 0 && split == TRAIN)
        printf("%s is not there: the images are generated (make data-cifar10 fetches CIFAR-10)\n",
               folder);
    Dataset images = there ? load_cifar10(folder, split) : generated_images(split);
    if (args->images > 0 && args->images < images.count)
        images.count = args->images;
    return images;
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;

    // This worker's part of the images.
    Dataset train = load_images(&args, TRAIN), test = load_images(&args, TEST);
    Dataset train_images = shard_dataset(&train, hvd_rank(), hvd_size());
    Dataset test_images = shard_dataset(&test, hvd_rank(), hvd_size());

    // Pixels between 0 and 1, neither shifted nor flipped.
    Statistics scale = {.std = {255, 255, 255}};
    Batches *train_batches = plain_batches(&train_images, scale, args.batch_size);
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
        .validation       = test_batches,
        .validation_steps = batches_len(test_batches),
        .callbacks        = &callbacks,
        .verbose          = verbose,
    };
    if (args.checkpoint_dir)
        callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = args.checkpoint_dir,
                                                           .keep = 2, .best = true}));
    if (args.resume)
        restore_latest(model, &plan, args.checkpoint_dir);
    fit(model, &plan);
    return 0;
}
