// Finds out which workers share a host, from the names of the hosts; then trains a small network on
// Fashion-MNIST, with a device for each worker of a host.

#include <stdlib.h>
#include <string.h>
#include "hvdlab.h"

// A host's name, with zeros behind it.
typedef char HostName[MPI_MAX_PROCESSOR_NAME];

// Where a worker is.
typedef struct {
    int local_rank; // its number among the workers of its host, from 0, in the order of their ranks
    int local_size; // how many workers are on its host
    MPI_Comm local; // these workers, in the order of their ranks
} Placement;

// Called by all workers.
static Placement find_placement(void)
{
    int rank = hvd_rank(), size = hvd_size(), length;
    HostName own = "";
    MPI_Get_processor_name(own, &length);
    Placement placement = {0};
    // TODO: placement: as it stands, every worker believes that all of them are on its own host. Let
    // the workers tell each other the names of their hosts, and find out from these who is on the
    // same one. Don't ask hvd_local_rank, MPI_Comm_split_type or mpirun's variables: they know it
    // already.
    placement.local_rank = rank;
    placement.local_size = size;
    placement.local = MPI_COMM_WORLD;
    return placement;
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
    Placement placement = find_placement();
    show_placement(placement.local_rank, placement.local_size, placement.local);
    device_use(placement.local_rank);
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;

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
