// Trains a small convolutional network on Fashion-MNIST, on many devices, and saves the training
// after each epoch, so that whatever ends the program, the last whole checkpoint is there.

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// What the callback that saves knows.
typedef struct {
    const char *folder;
    double best; // the highest validation accuracy so far
} Saver;

// Saves the training as FOLDER/NAME.safetensors. At every moment a file of that name is whole: the
// one before, or the new one.
static void save(const Training *training, const char *folder, const char *name)
{
    char path[PATH_MAX], beside[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    snprintf(beside, sizeof beside, "%s/%s.tmp", folder, name);
    // TODO: save: write the checkpoint to the path `beside`; when it is whole, give it the name
    // `path`, by rename(); then have the folder's names put on the disk, too. If one of these fails,
    // save() does no more than say so; the training goes on. make doc NAME=write_checkpoint, make doc
    // NAME=sync_folder.
    (void)training;
}

// After each epoch.
static void saver_epoch_end(Callback *self, Training *training)
{
    Saver *saver = self->state;
    // TODO: save: on the root, and nowhere else, save the training under the name "ckpt-1" when 1
    // epoch is done, "ckpt-2" when 2 are (training->epochs_done), and so on. Where the validation
    // accuracy (training->logs) is higher than in every epoch before, save it as "best", too.
    (void)saver, (void)save, (void)training;
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;
    const char *folder = args.checkpoint_dir ? args.checkpoint_dir : "build/checkpoints";
    mkdir(folder, 0777); // it may be there already

    Dataset train = load_data(&args, TRAIN);
    Dataset test = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);

    Optimizer *opt = hvd_distributed_optimizer(sgd_momentum(args.base_lr, 0.9f, false));
    Model *model = compile(create_lenet(16, 0), CATEGORICAL_CROSSENTROPY, opt);

    Saver state = {.folder = folder, .best = -1};
    // A callback of one's own: its name, its state, and what is called when.
    Callback *saver = lambda_callback((Callback){.name = "saver",
                                                 .state = &state,
                                                 .epoch_end = saver_epoch_end});

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    // TODO: save: the best epoch is the one with the highest accuracy over all workers' images. A
    // callback finds in the logs what those added before it have put there. Is this the right order?
    callbacks_add(&callbacks, saver);
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
