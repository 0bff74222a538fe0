// An all-reduce around a ring, tried on arrays of many sizes; then a small network, trained
// with it on Fashion-MNIST.

#include <stdlib.h>
#include "hvdlab.h"

// Replaces values[0 ... count - 1], on every worker, by their sum over all workers.
static void ring(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
#if STEP >= 1
    // ring: cut the array into a chunk for each rank. Chunk c is values[begin[c]] to
    // values[begin[c + 1] - 1]; the lengths differ by one value at most.
    int left = (rank + size - 1) % size, right = (rank + 1) % size, begin[size + 1];
    for (int c = 0; c <= size; c++)
        begin[c] = (int)((long)count * c / size);
    float *arriving = malloc(sizeof(float) * (size_t)(count / size + 1));

    // Reduce-scatter: hand a chunk on to the right, and add the one that comes from the left to our
    // own. It has the sums of one rank more at each hop; after size - 1 hops those of all.
    for (int hop = 0; hop < size - 1; hop++) {
        int out = (rank - hop + size) % size, in = (rank - hop - 1 + size) % size;
        int length = begin[in + 1] - begin[in];
        MPI_Sendrecv(values + begin[out], begin[out + 1] - begin[out], MPI_FLOAT, right, 0,
                     arriving, length, MPI_FLOAT, left, 0, comm, MPI_STATUS_IGNORE);
        for (int i = 0; i < length; i++)
            values[begin[in] + i] += arriving[i];
    }

    // All-gather: now this rank has the whole sums of chunk rank + 1. They go around once more, and
    // take the place of what was there.
    for (int hop = 0; hop < size - 1; hop++) {
        int out = (rank + 1 - hop + size) % size, in = (rank - hop + size) % size;
        MPI_Sendrecv(values + begin[out], begin[out + 1] - begin[out], MPI_FLOAT, right, 0,
                     values + begin[in], begin[in + 1] - begin[in], MPI_FLOAT, left, 0, comm,
                     MPI_STATUS_IGNORE);
    }
    free(arriving);
#else
    // TODO: ring: cut the array into a chunk for each rank, whatever the count. Let each rank send to
    // the next rank, and receive from the one before it, a chunk at a time: first so that the chunks
    // are added up on their way, then so that the sums come to every rank.
#endif
}

// The same for an array of any length: in pieces, which stay in the cache. (One piece of length 0
// where there are no values.)
static void allreduce(float *values, size_t count, MPI_Comm comm)
{
    const size_t longest = 1 << 18;
    size_t done = 0;
    do {
        size_t length = count - done < longest ? count - done : longest;
        ring(values + done, (int)length, comm);
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
    sweep_allreduce("ring", allreduce, (size_t)args.max_count);

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
