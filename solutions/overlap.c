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

// The sums that were started, one for each piece: the seven layers that have weights.
enum { MAX_PIECES = 16 };
static MPI_Request sums[MAX_PIECES];
static int started;

// The gradients of a layer are complete. The backward pass goes on when this function returns.
static void piece_ready(float *gradients, int count)
{
    // overlap: start the sum of the piece. MPI works on the earlier ones only inside its calls.
    MPI_Iallreduce(MPI_IN_PLACE, gradients, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                   &sums[started++]);
    int done;
    MPI_Testall(started, sums, &done, MPI_STATUSES_IGNORE);
}

// The backward pass is done. The optimizer applies the gradients when this function returns.
static void finish(float *gradients, size_t count)
{
    // overlap: now all sums must be complete; the mean is the sum over the number of workers.
    MPI_Waitall(started, sums, MPI_STATUSES_IGNORE);
    started = 0;
    for (size_t i = 0; i < count; i++)
        gradients[i] /= (float)hvd_size();
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
