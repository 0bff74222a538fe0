// Trains a small convolutional network on Fashion-MNIST by SGD with momentum, on many devices, at
// the learning rate of many.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

#define WARMUP_EPOCHS 3

// The learning rate falls by a factor of ten after six epochs.
static float lr_schedule(int epoch, float base_lr)
{
    return epoch < 6 ? base_lr : 0.1f * base_lr;
}

// What the warm-up knows: it leads the learning rate from that of one device to that of all.
typedef struct {
    float lr;       // of one device
    int epochs;     // of the warm-up
    float last;     // the learning rate of the batch before
    float momentum; // the optimizer's own
} Warmup;

// Before each batch.
static void warmup_batch_begin(Callback *self, Training *training)
{
    Warmup *warmup = self->state;
    Optimizer *optimizer = model_optimizer(training->model);
#if STEP >= 1
    // warmup: a little higher with each batch. Momentum is made of updates at the rates of before.
    if (training->epoch >= warmup->epochs)
        return;
    float batches = (float)training->epoch * (float)training->steps + (float)training->step + 1;
    float way = batches / ((float)warmup->epochs * (float)training->steps);
    float lr = warmup->lr * (1 + way * (float)(hvd_size() - 1));
    optimizer_set_learning_rate(optimizer, lr);
    optimizer_set_momentum(optimizer, warmup->momentum * lr / warmup->last);
    warmup->last = lr;
#else
    // TODO: warmup: in the first warmup->epochs epochs set the learning rate before each batch, so
    // that it rises on a straight line: from warmup->lr, before anything is trained, to warmup->lr *
    // hvd_size(), with the last batch of these epochs. After that, the schedule sets the rate. (An
    // epoch has training->steps batches; training->epoch and training->step count from 0.) make doc
    // NAME=optimizer_momentum shows how the rate and the momentum are read and set.

    // TODO: warmup: (not needed to pass) momentum remembers updates that were made at the rates of
    // earlier batches. For each of these batches set the momentum to the optimizer's own, times the
    // batch's rate / the rate of the batch before (warmup->lr before the first).
    (void)warmup, (void)optimizer;
#endif
}

// After each batch.
static void warmup_batch_end(Callback *self, Training *training)
{
    Warmup *warmup = self->state;
    Optimizer *optimizer = model_optimizer(training->model);
#if STEP >= 1
    // warmup: the correction is for one batch.
    optimizer_set_momentum(optimizer, warmup->momentum);
#else
    // TODO: warmup: (not needed to pass) see to it that no batch gets the correction of another
    // one, and that batches after the warm-up get the optimizer's own momentum.
    (void)warmup, (void)optimizer;
#endif
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

#if STEP >= 1
    // warmup: the learning rate of one device, times the number of workers.
    float lr = args.base_lr * (float)hvd_size();
#else
    // TODO: warmup: this is the learning rate of one device. Raise it with the number of workers,
    // for the optimizer and for the schedule.
    float lr = args.base_lr;
#endif
    float momentum = 0.9f;
    Optimizer *opt = hvd_distributed_optimizer(sgd_momentum(lr, momentum, false));
    Model *model = compile(create_lenet(16, 128), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, learning_rate_schedule(lr_schedule, lr));
    Warmup warmup = {.lr = args.base_lr,
                     .epochs = WARMUP_EPOCHS,
                     .last = args.base_lr,
                     .momentum = momentum};
    // A callback of one's own: its name, its state, and what is called when.
    callbacks_add(&callbacks, lambda_callback((Callback){.name = "learning_rate_warmup",
                                                         .state = &warmup,
                                                         .batch_begin = warmup_batch_begin,
                                                         .batch_end = warmup_batch_end}));
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
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
