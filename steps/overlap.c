// Trains a convolutional network on Fashion-MNIST, on many devices. The gradients travel between the
// workers while the backward pass goes on.

#include "hvdlab.h"
#include "lessons/exercises.h"

// Six convolutions, with a pool after the second one and after the fourth one.
static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = relu(conv2d(image, 32, 3));
    x = max_pool(relu(conv2d(x, 32, 3)), 2);
    x = relu(conv2d(x, 64, 3));
    x = max_pool(relu(conv2d(x, 64, 3)), 2);
    x = relu(conv2d(x, 128, 3));
    x = relu(conv2d(x, 128, 3));
    return model(image, softmax(dense(global_average_pool(x), 10)));
}

// The gradients of a layer are complete. The backward pass goes on when this function returns.
static void piece_ready(float *gradients, int count)
{
    // TODO: overlap: start the sum of the piece over all workers, and do not wait for it. (MPI works
    // on messages only inside its calls: a short one here moves the earlier sums on.)
    (void)gradients;
    (void)count;
}

// The backward pass is done. The optimizer applies the gradients when this function returns.
static void finish(float *gradients, size_t count)
{
    // TODO: overlap: wait for all sums, and make means of them.
    (void)gradients;
    (void)count;
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    // It calls piece_ready during the backward pass, and finish before SGD applies the gradients.
    Optimizer *opt = optimizer_in_pieces(sgd(args.base_lr), piece_ready, finish);
    train_on_workers(compile(create_model(), CATEGORICAL_CROSSENTROPY, opt), &args);
    return 0;
}
