// Trains a network on Fashion-MNIST on a grid of workers. The workers of a row have the same images,
// and each a part of the two largest layers. The workers of a column have the same part of the
// layers, and each other images.

#include "hvdlab.h"
#include "lessons/exercises.h"

// Units of the two layers. The number of columns must divide the first one.
enum { WIDE = 960, NARROW = 128 };

// The workers of this worker's row and of its column, itself included.
static HvdGroup row, column;

// Called by all workers. Their number is a multiple of `columns`.
static void make_groups(int columns)
{
#if STEP >= 1
    // two_ways: the first `columns` workers are row 0, the next ones row 1, and so on.
    row = hvd_group_split(hvd_rank() / columns);
    column = hvd_group_split(hvd_rank() % columns);
#else
    // TODO: two_ways: as it stands, all workers are one row, and each is a column of its own. Let the
    // first `columns` workers be row 0, the next ones row 1, and so on. Nothing has to free a group.
    (void)columns;
    row = hvd_world();
    column = hvd_group_split(hvd_rank());
#endif
}

static void nothing(float *values, size_t count)
{
    (void)values;
    (void)count;
}

// What the workers have parts of is complete when they have added it up.
static void add_up(float *values, size_t count)
{
#if STEP >= 1
    // two_ways: the parts are in one row. Other rows have other images.
    hvd_group_allreduce(row, values, count, HVD_SUM);
#else
    // TODO: two_ways: which workers have parts of the same sum?
    hvd_allreduce(values, count, HVD_SUM);
#endif
}

// The network of one worker, whose first wide layer has `units` units.
static Model *create_model(int units, bool divided)
{
    Tensor image = input(28, 28, 1);
    Tensor x = flatten(max_pool(relu(conv2d(image, 32, 3)), 4)); // 1568 numbers
    if (divided)
        x = custom_layer(x, nothing, add_up);
    x = relu(dense(x, units));
    x = dense_without_bias(x, NARROW);
    if (divided)
        x = custom_layer(x, add_up, nothing);
    return model(image, softmax(dense(relu(x), 10)));
}

// One update, from a batch that is the same on all workers.
static void update(Model *model, const Batch *batch)
{
#if STEP >= 1
    // two_ways: each row computes a part of the images. Workers with the same part of the layers
    // apply the mean of their gradients.
    Batch own = slice_of_batch(model, batch, column.rank, column.size);
    compute_gradients(model, &own);
    const Parameters *parameters = model_parameters(model);
    hvd_group_allreduce(column, parameters->gradients, parameters->length, HVD_AVERAGE);
#else
    // TODO: two_ways: let each row compute a part of the images (make doc NAME=slice_of_batch). Which
    // gradients must be averaged before the update, and among which workers? They are the
    // model_parameters(model)->length floats at model_parameters(model)->gradients, in device memory.
    compute_gradients(model, batch);
#endif
    apply_gradients(model);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    need_columns(args.columns);
    make_groups(args.columns);

    Dataset train_images = load_data(&args, TRAIN);
    Dataset test_images = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train_images);
    Batches *train_batches = plain_batches(&train_images, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test_images, statistics, args.val_batch_size);

    // An undivided network has the weights with which all workers begin.
    Model *whole = compile(create_model(WIDE, false), CATEGORICAL_CROSSENTROPY, sgd(0));
    hvd_broadcast_model(whole, 0);
#if STEP >= 1
    // two_ways: an equal part of the units for each worker of a row, in their order.
    int units = WIDE / row.size, part = row.rank;
#else
    // TODO: two_ways: each worker has one of as many parts as there are workers. How many parts does a
    // row need, and which one is this worker's?
    int units = WIDE / hvd_size(), part = hvd_rank();
#endif
    Model *own = compile(create_model(units, true), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    // The worker takes the weights of its units: columns of the first wide layer, rows of the second.
    take_part(own, whole, part);
    model_free(whole);

    // A pass calls the function with each batch, the same on all workers, and returns the metrics of
    // the images that this worker has computed: as many on each.
    for (int epoch = 1; epoch <= args.epochs; epoch++) {
        Metrics train = pass_of_all(own, train_batches, update);
        Metrics test = pass_of_all(own, test_batches, test_on_batch);
        float loss = (float)(train.loss / train.images);
        hvd_allreduce(&loss, 1, HVD_AVERAGE);
        if (hvd_rank() == 0)
            printf("Epoch %d/%d - loss: %.4f - test accuracy: %.4f - worker's weights: %.2f MB\n",
                   epoch, args.epochs, loss, test.correct / test.images,
                   (double)model_memory(own).weights / 1e6);
    }
    return 0;
}
