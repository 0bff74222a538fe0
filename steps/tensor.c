// Trains a network on Fashion-MNIST on many devices, each of which has a part of its two largest
// layers. All devices compute the same images.

#include "hvdlab.h"
#include "lessons/exercises.h"

// Units of the two layers. The number of workers must divide the first one.
enum { WIDE = 960, NARROW = 128 };

// The network of one worker, whose first wide layer has `units` units.
static Model *create_model(int units, bool divided)
{
    Tensor image = input(28, 28, 1);
    Tensor x = flatten(max_pool(relu(conv2d(image, 32, 3)), 4)); // 1568 numbers
    // TODO: tensor: where the layers are divided, the workers must add something up in the forward
    // pass, and something else in the backward pass. custom_layer() makes a layer that calls one
    // function of yours in each of them (make doc NAME=custom_layer).
    (void)divided;
    x = relu(dense(x, units));
    x = dense_without_bias(x, NARROW);
    return model(image, softmax(dense(relu(x), 10)));
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    Dataset train_images = load_data(&args, TRAIN);
    Dataset test_images = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train_images);
    Batches *train_batches = plain_batches(&train_images, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test_images, statistics, args.val_batch_size);

    // An undivided network has the weights with which all workers begin.
    Model *whole = compile(create_model(WIDE, false), CATEGORICAL_CROSSENTROPY, sgd(0));
    hvd_broadcast_model(whole, 0);
    // TODO: tensor: every worker has all units. Give each an equal part of them.
    int units = WIDE;
    Model *own = compile(create_model(units, true), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    // The worker takes the weights of its units: columns of the first wide layer, rows of the second.
    take_own_part(own, whole);
    model_free(whole);

    // A pass calls the function with each batch, the same on all workers, and returns the metrics.
    // model_memory() tells the bytes of a model.
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
