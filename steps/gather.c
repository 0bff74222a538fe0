// An all-reduce by way of the root, tried on arrays of many sizes; then a small network, trained
// with it on Fashion-MNIST.

#include <stdlib.h>
#include "hvdlab.h"

// Replaces values[0 ... count - 1], on every worker, by their sum over all workers.
static void sum_at_root(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    // TODO: gather: let every worker send its values to rank 0, the root. Let the root add them to
    // its own, and send the sums back to every worker. Use MPI_Send and MPI_Recv.
}

// The same for an array of any length: in pieces, which stay in the cache. (One piece of length 0
// where there are no values.)
static void allreduce(float *values, size_t count, MPI_Comm comm)
{
    const size_t longest = 1 << 18;
    size_t done = 0;
    do {
        size_t length = count - done < longest ? count - done : longest;
        sum_at_root(values + done, (int)length, comm);
        done += length;
    } while (done < count);
}

// Two convolutions, each with a pool, and two dense layers.
static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = max_pool(relu(conv2d(image, 32, 3)), 2);
    x = max_pool(relu(conv2d(x, 64, 3)), 2);
    x = relu(dense(flatten(x), 512));
    return model(image, softmax(dense(x, 10)));
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;

    // Alone: are the sums right, and how long do they take?
    sweep_allreduce("gather", allreduce, (size_t)args.max_count);

    // In the trainer: from here on the distributed optimizer adds the gradients up by it.
    hvd_use_allreduce(allreduce);

    Dataset train = load_data(&args, TRAIN);
    Dataset test = load_data(&args, TEST);
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = plain_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);

    Optimizer *opt = hvd_distributed_optimizer(sgd(args.base_lr));
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    if (verbose)
        callbacks_add(&callbacks, print_throughput(train.count));

    fit(model, &(Fit){
        .train            = train_batches,
        .epochs           = args.epochs,
        .steps_per_epoch  = batches_len(train_batches) / hvd_size(),
        .validation       = test_batches,
        .validation_steps = 3 * batches_len(test_batches) / hvd_size(),
        .callbacks        = &callbacks,
        .verbose          = verbose,
    });
    return 0;
}
