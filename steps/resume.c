// Trains a small convolutional network on Fashion-MNIST, on many devices, and saves the training a
// few times in each epoch. Told to --resume, it goes on from the last of these checkpoints as if it
// had never ended.

#include <stdlib.h>
#include "hvdlab.h"

#define NAME_LENGTH 64

// A convolution, standardised over the batch, and a dense layer, of whose inputs some are dropped.
static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = max_pool(relu(batch_norm(conv2d(image, 8, 3))), 4);
    return model(image, softmax(dense(dropout(flatten(x), 0.2f), 10)));
}

// A learning rate that falls from batch to batch: lr / (1 + FALL * batches).
#define FALL 0.005f

typedef struct {
    float lr;       // of the first batch
    double batches; // that are done
} Decay;

// Before each batch.
static void decay_batch_begin(Callback *self, Training *training)
{
    Decay *decay = self->state;
    float lr = decay->lr / (1 + FALL * (float)decay->batches);
    optimizer_set_learning_rate(model_optimizer(training->model), lr);
    decay->batches++;
}

static Callback *falling_rate(Decay *decay)
{
    Callback callback = {.name = "falling_rate", .state = decay, .batch_begin = decay_batch_begin};
    // TODO: resume: the rate depends on how many batches were done before. Where does the count
    // come from in a program that goes on with a training? make doc NAME=Callback.
    return lambda_callback(callback);
}

// Before fit: where the folder has a checkpoint, puts the model in the state of the latest one, and
// says in the plan where the training goes on; all workers from the same.
static void resume(Model *model, Fit *plan, const char *folder)
{
    // TODO: resume: find the name of the folder's latest checkpoint, which is shorter than
    // NAME_LENGTH, and restore the training from it. The folder may lie on another machine, and
    // each worker sees it with a delay of its own; but all have to go on from the same checkpoint.
    // (hvd_broadcast_bytes() hands out a text.) The root says "Restoring from NAME", with the folder
    // before the name or without it, or, where there is none, "Creating a new model". make doc
    // NAME=latest_checkpoint, make doc NAME=restore_checkpoint.
    (void)model, (void)plan, (void)folder;
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;
    const char *folder = args.checkpoint_dir ? args.checkpoint_dir : "build/checkpoints";

    Dataset train = load_data(&args, TRAIN);
    Dataset test = load_data(&args, TEST);
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);
    int steps = batches_len(train_batches) / hvd_size();

    Optimizer *opt = hvd_distributed_optimizer(sgd_momentum(args.base_lr, 0.9f, false));
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    Decay decay = {.lr = args.base_lr};
    callbacks_add(&callbacks, falling_rate(&decay));
    // Twice inside each epoch, and at its end; the last two stay.
    callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = folder,
                                                       .every = steps / 3 + 1,
                                                       .keep = 2}));

    Fit plan = {
        .train            = train_batches,
        .epochs           = args.epochs,
        .steps_per_epoch  = steps,
        .validation       = test_batches,
        .validation_steps = 3 * batches_len(test_batches) / hvd_size(),
        .callbacks        = &callbacks,
        .verbose          = verbose,
    };
    if (args.resume)
        resume(model, &plan, folder);
    fit(model, &plan);
    return 0;
}
