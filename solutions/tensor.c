// Trains a network on Fashion-MNIST on many devices, each of which has a part of its two largest
// layers. All devices compute the same images.

#include <stdlib.h>
#include <string.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// Units of the two layers. The number of workers must divide the first one.
enum { WIDE = 960, NARROW = 128 };

// tensor: what a layer does in a pass in which the workers need nothing from each other; and in
// one in which each has a part of a sum.
static void nothing(float *values, size_t count)
{
    (void)values;
    (void)count;
}

static void sum_of_all(float *values, size_t count)
{
    hvd_allreduce(values, count, HVD_SUM);
}

// The network of one worker, whose first wide layer has `units` units.
static Model *create_model(int units, bool divided)
{
    Tensor image = input(28, 28, 1);
    Tensor x = flatten(max_pool(relu(conv2d(image, 32, 3)), 4)); // 1568 numbers
    // tensor: each worker has the gradient of x from its own units only.
    if (divided)
        x = custom_layer(x, nothing, sum_of_all);
    x = relu(dense(x, units));
    x = dense_without_bias(x, NARROW);
    // tensor: and the part of the sum that comes from them.
    if (divided)
        x = custom_layer(x, sum_of_all, nothing);
    return model(image, softmax(dense(relu(x), 10)));
}

// Copies the block of a matrix that begins at (row, column). A row of `whole` has `columns` numbers,
// and the block has own_rows x own_columns.
static void copy_block(const float *whole, int columns, int row, int column, float *own,
                       int own_rows, int own_columns)
{
    for (int r = 0; r < own_rows; r++)
        memcpy(own + r * own_columns, whole + (row + r) * columns + column,
               (size_t)own_columns * sizeof *own);
}

// Gives the worker its part of the weights of an undivided model. A kernel is a matrix, inputs x
// outputs; other variables are taken for one with one row, or with one column for each filter.
static void take_weights(Model *own, const Model *whole)
{
    for (int v = 0; v < model_variable_count(own); v++) {
        const Variable *from = model_variable(whole, v), *to = model_variable(own, v);
        int columns = from->dims[from->ndims - 1], rows = (int)variable_size(from) / columns;
        int own_columns = to->dims[to->ndims - 1], own_rows = (int)variable_size(to) / own_columns;
        // tensor: the first wide layer by columns, the second one by rows.
        int row = own_rows < rows ? hvd_rank() * own_rows : 0;
        int column = own_columns < columns ? hvd_rank() * own_columns : 0;
        float *all = malloc(variable_size(from) * sizeof *all);
        float *block = malloc(variable_size(to) * sizeof *block);
        model_read_variable(whole, v, all);
        copy_block(all, columns, row, column, block, own_rows, own_columns);
        model_write_variable(own, v, block);
        free(all);
        free(block);
    }
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    Dataset train_images = load_data(&args, TRAIN);
    Dataset test_images = load_data(&args, TEST);
    Statistics statistics = image_statistics(&train_images);
    Batches *train_batches = plain_batches(&train_images, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test_images, statistics, args.val_batch_size);

    // An undivided network has the weights with which all workers begin.
    Model *whole = compile(create_model(WIDE, false), CATEGORICAL_CROSSENTROPY, sgd(0));
    hvd_broadcast_model(whole, 0);
    // tensor: an equal part of the units for each worker.
    int units = WIDE / hvd_size();
    Model *own = compile(create_model(units, true), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    take_weights(own, whole);
    model_free(whole);

    // A pass calls the function with each batch, the same on all workers, and returns the metrics.
    for (int epoch = 1; epoch <= args.epochs; epoch++) {
        Metrics train = pass_of_all(own, train_batches, train_on_batch);
        Metrics test = pass_of_all(own, test_batches, test_on_batch);
        if (hvd_rank() == 0)
            printf("Epoch %d/%d - loss: %.4f - accuracy: %.4f - test accuracy: %.4f - weights of a "
                   "worker: %.2f MB\n",
                   epoch, args.epochs, train.loss / train.images, train.correct / train.images,
                   test.correct / test.images, (double)model_memory(own).weights / 1e6);
    }
    return 0;
}
