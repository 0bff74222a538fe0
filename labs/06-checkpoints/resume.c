// Trains a small convolutional network on Fashion-MNIST, on many devices, and saves the training a
// few times in each epoch. Told to --resume, it goes on from the last of these checkpoints as if it
// had never ended.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

#define NAME_LENGTH 64

// Each worker has a state of its own: batch norm's moving statistics, and dropout's random numbers.
static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = max_pool(relu(batch_norm(conv2d(image, 8, 3))), 4);
    return model(image, softmax(dense(dropout(flatten(x), 0.2f), 10)));
}

// Before fit: where the folder has a checkpoint, puts the model in the state of the latest one, and
// says in the plan where the training goes on; all workers from the same.
static void resume(Model *model, Fit *plan, const char *folder)
{
#if STEP >= 1
    // resume: one worker looks, and all restore what it found.
    char name[NAME_LENGTH] = "";
    if (hvd_rank() == 0) {
        char *latest = latest_checkpoint(folder);
        if (latest)
            snprintf(name, sizeof name, "%s", latest);
        free(latest);
    }
    hvd_broadcast_bytes(name, sizeof name, 0);
    if (*name)
        restore_checkpoint(model, plan, folder, name);
    if (hvd_rank() == 0 && *name)
        printf("Restoring from %s/%s\n", folder, name);
    else if (hvd_rank() == 0)
        printf("Creating a new model\n");
#else
    // TODO: resume: restore the training from the folder's latest checkpoint, on all workers from the
    // same one. (The folder may lie on another machine, and each worker sees it with a delay of its
    // own. Names are shorter than NAME_LENGTH; hvd_broadcast_bytes() distributes one.) The root prints
    // "Restoring from NAME", or "Creating a new model" where there is no checkpoint. make doc
    // NAME=latest_checkpoint, make doc NAME=restore_checkpoint.
    (void)model, (void)plan, (void)folder;
#endif
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
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);
    int steps = batches_len(train_batches) / hvd_size();

    Optimizer *opt = hvd_distributed_optimizer(sgd_momentum(args.base_lr, 0.9f, false));
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    // The rate falls with the batches that are done. The callback counts them, and has the checkpoint
    // keep the count: `kept` in make doc NAME=Callback.
    callbacks_add(&callbacks, inverse_time_decay(args.base_lr, 0.005f));
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
