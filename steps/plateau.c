// Trains a small convolutional network on Fashion-MNIST, on many devices, and lowers the learning
// rate where the validation loss no longer falls.

#include <math.h>
#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// Multiplies the learning rate by `factor` where the validation loss has not fallen for `patience`
// epochs in a row, but not below `min_lr`.
typedef struct {
    float factor, min_lr;
    int patience;
    double best; // the lowest validation loss so far
    int wait;    // epochs in a row without a lower one
} Plateau;

// A loss has fallen where it is below the best one by more than this.
#define MIN_DELTA 1e-4

// After each epoch.
static void plateau_epoch_end(Callback *self, Training *training)
{
    Plateau *plateau = self->state;
    double loss = training->logs.val_loss;
    Optimizer *optimizer = model_optimizer(training->model);
    // TODO: plateau: keep the best loss so far, and count the epochs in a row without one that is
    // lower than the best by more than MIN_DELTA. When there have been plateau->patience of them,
    // multiply the learning rate by plateau->factor, but let it fall no lower than plateau->min_lr;
    // then count from 0 again. make doc NAME=optimizer_learning_rate: how it is read and set.
    (void)plateau, (void)loss, (void)optimizer;
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;

    Dataset train = load_data(&args, TRAIN);
    Dataset test = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);

    float lr = args.base_lr * (float)hvd_size();
    Optimizer *opt = hvd_distributed_optimizer(sgd(lr));
    Model *model = compile(create_lenet(16, 0), CATEGORICAL_CROSSENTROPY, opt);

    Plateau plateau = {
        .factor = 0.2f, .patience = 2, .min_lr = 0.05f * args.base_lr, .best = INFINITY};
    // A callback of one's own: its name, its state, and what is called when.
    Callback *reduce_on_plateau = lambda_callback((Callback){.name = "reduce_on_plateau",
                                                             .state = &plateau,
                                                             .epoch_end = plateau_epoch_end});

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    // TODO: plateau: all workers have to come to the same decision. A callback finds in the logs what
    // those added before it have put there. Is this the right order?
    callbacks_add(&callbacks, reduce_on_plateau);
    callbacks_add(&callbacks, hvd_metric_average());

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
