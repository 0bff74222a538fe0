// How many epochs a training takes to a validation accuracy, --target-accuracy, on many devices, with
// three learning rates: that of one device; the same times the number of workers; and a warm-up that
// leads from the one to the other.

#include "hvdlab.h"
#include "lessons/exercises.h"

// The model is validated so many times an epoch.
enum { PARTS = 4 };

typedef struct {
    int64_t steps; // in such a part of an epoch
    Batches *train, *test;
} Data;

// Trains a new model; `warmup` is NULL where there is none.
static void train(const char *name, float lr, Callback *warmup, const Args *args, Data data)
{
    Optimizer *opt = hvd_distributed_optimizer(sgd_momentum(lr, 0.9f, false));
    Model *model = compile(create_lenet(16, 128), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    callbacks_add(&callbacks, stop_at_accuracy(args->target_accuracy, 1, 0));
    if (warmup)
        callbacks_add(&callbacks, warmup);

    History history = fit(model, &(Fit){
        .train            = data.train,
        .epochs           = args->epochs * PARTS,
        .steps_per_epoch  = data.steps,
        .validation       = data.test,
        .validation_steps = batches_len(data.test),
        .callbacks        = &callbacks,
        .allow_nan        = true, // a rate that is too high is a result, too
    });

    double accuracy = history.logs[history.epochs - 1].val_accuracy;
    double epochs = (double)history.epochs / PARTS;
    if (hvd_rank() == 0 && accuracy > (double)args->target_accuracy)
        printf("%s: %.2f epochs\n", name, epochs);
    else if (hvd_rank() == 0)
        printf("%s: not in %.2f epochs, then at %.4f\n", name, epochs, accuracy);
    callbacks_free(&callbacks);
    model_free(model);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    // This worker's part of the images.
    Dataset all = load_data(&args, TRAIN), all_test = load_data(&args, TEST);
    Dataset train_images = shard_dataset(&all, hvd_rank(), hvd_size());
    Dataset test_images = shard_dataset(&all_test, hvd_rank(), hvd_size());
    Statistics statistics = image_statistics(&all);
    int steps = all.count / hvd_size() / args.batch_size; // in an epoch
    Data data = {
        .steps = (steps + PARTS - 1) / PARTS,
        .train = plain_batches(&train_images, statistics, args.batch_size),
        .test  = plain_batches(&test_images, statistics, args.val_batch_size),
    };

    float lr = args.base_lr, scaled = lr * (float)hvd_size();
    train("one device's rate", lr, NULL, &args, data);
    if (hvd_size() > 1) {
        train("times workers", scaled, NULL, &args, data);
        train("times workers, warm-up", scaled, hvd_learning_rate_warmup(lr, PARTS), &args, data);
    }
    return 0;
}
