// Trains a Wide ResNet on Fashion-MNIST, on many devices: one process for each.

#include "hvdlab.h"

// Convolution, batch norm, ReLU.
static Tensor cbr(Tensor x, int filters)
{
    x = conv2d(x, filters, 3);
    x = batch_norm(x);
    return relu(x);
}

// Two of them beside a shortcut; a 1x1 convolution gives the shortcut its width where that changes.
static Tensor conv_block(Tensor x, int filters, bool scale_input)
{
    Tensor x0 = scale_input ? conv2d(x, filters, 1) : x;
    x = cbr(x, filters);
    x = dropout(x, 0.01f);
    x = cbr(x, filters);
    return add(x0, x);
}

// Wide ResNet of depth 16: three groups of two blocks, at 28x28, 14x14 and 7x7 pixels.
static Model *create_model(int width, float wd)
{
    Tensor image = input(28, 28, 1);
    Tensor x = cbr(image, 16);

    x = conv_block(x, 16 * width, true);
    x = conv_block(x, 16 * width, false);
    x = max_pool(x, 2);

    x = conv_block(x, 32 * width, true);
    x = conv_block(x, 32 * width, false);
    x = max_pool(x, 2);

    x = conv_block(x, 64 * width, true);
    x = conv_block(x, 64 * width, false);

    x = global_average_pool(x);
    x = dense(x, 10);
    return l2_penalty(model(image, softmax(x)), wd);
}

// The learning rate falls by a factor of ten after epochs 15, 25 and 35.
static float lr_schedule(int epoch, float base_lr)
{
    if (epoch < 15)
        return base_lr;
    if (epoch < 25)
        return 0.1f * base_lr;
    if (epoch < 35)
        return 0.01f * base_lr;
    return 0.001f * base_lr;
}

int main(int argc, char **argv)
{
    // Step 1: join the job, and work on a device of one's own.
    hvd_init();
    device_use(hvd_local_rank());

    Args args = parse_args(argc, argv);
    // Step 2: only the root worker prints.
    int verbose = hvd_rank() == 0;

    // Training images are shifted and flipped; both sets are standardized with the statistics (mean
    // and standard deviation) of the training set.
    Dataset train = load_data(&args, TRAIN);
    Dataset test = load_data(&args, TEST);
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);

    Optimizer *opt = sgd(args.base_lr);
    // Step 3: average the gradients over all workers before they are applied.
    opt = hvd_distributed_optimizer(opt);
    Model *model = compile(create_model(args.width, args.wd), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, learning_rate_schedule(lr_schedule, args.base_lr));
    // Step 4: all workers start from the root's weights.
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    // Step 6: all workers see the same metrics; before any callback that reads them.
    callbacks_add(&callbacks, hvd_metric_average());
    if (verbose)
        callbacks_add(&callbacks, print_throughput(train.count));
    callbacks_add(&callbacks, stop_at_accuracy(args.target_accuracy, args.patience, verbose));
    if (verbose)
        callbacks_add(&callbacks, print_total_time());
    callbacks_add(&callbacks, tensorboard(args.log_dir));

    fit(model, &(Fit){
        .train            = train_batches,
        .epochs           = args.epochs,
        // Step 5: the workers share the epoch's steps. Each draws the test images in an order of its
        // own, so one pass in all would miss a third of them; three passes miss few.
        .steps_per_epoch  = batches_len(train_batches) / hvd_size(),
        .validation       = test_batches,
        .validation_steps = 3 * batches_len(test_batches) / hvd_size(),
        .callbacks        = &callbacks,
        .verbose          = verbose,
    });

    Score score = evaluate(model, test_batches, verbose);
    if (verbose) {
        printf("Test loss: %.4f\n", score.loss);
        printf("Test accuracy: %.4f\n", score.accuracy);
    }
    return 0;
}
