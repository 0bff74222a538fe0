// Trains a LeNet on Fashion-MNIST twice, by RMSprop and by Adagrad, on many devices. The training
// loop is the program's own: nothing wraps the optimizer, and no callback does anything.

#include "hvdlab.h"
#include "lessons/exercises.h"

// One update from one batch.
static void update(Model *model, const Batch *batch)
{
    compute_gradients(model, batch);
    // TODO: by_hand: let every worker apply the mean of all workers' gradients: the
    // model_parameters(model)->length floats at model_parameters(model)->gradients (make doc
    // NAME=compute_gradients).
    apply_gradients(model);
}

// One epoch, whose batches the workers share. Returns the worker's own figures.
static Metrics train_epoch(Model *model, Batches *batches)
{
    int64_t steps = batches_len(batches) / hvd_size();
    model_reset_metrics(model);
    batches_begin(batches, steps);
    for (int64_t step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        update(model, &batch);
    }
    return model_metrics(model);
}

// Trains a new model with this optimizer, and keeps its weights in a file.
static void train(const char *name, Optimizer *optimizer, const Args *args, Batches *train_batches,
                  Batches *test_batches)
{
    bool verbose = hvd_rank() == 0;
    Model *model = compile(create_lenet(32, 512), CATEGORICAL_CROSSENTROPY, optimizer);
    // TODO: by_hand: let all workers start from the same weights, those of the root.
    for (int epoch = 1; epoch <= args->epochs; epoch++) {
        Metrics metrics = train_epoch(model, train_batches);
        if (verbose)
            printf("%s: epoch %d/%d - loss: %.4f - accuracy: %.4f\n", name, epoch, args->epochs,
                   metrics.loss / metrics.images, metrics.correct / metrics.images);
    }
    Score score = evaluate(model, test_batches, 0);
    if (verbose)
        printf("%s: test accuracy: %.4f\n", name, score.accuracy);
    // TODO: by_hand: let the root alone write the file.
    save_weights(model, args->log_dir, name);
    model_free(model);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    Dataset train_images = load_data(&args, TRAIN);
    Dataset test_images = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train_images);
    Batches *train_batches = augmented_batches(&train_images, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test_images, statistics, args.val_batch_size);

    // TODO: by_hand: these are learning rates for one device. Raise both with the number of workers.
    float rmsprop_lr = 0.001f;
    float adagrad_lr = 0.01f;
    train("rmsprop", rmsprop(rmsprop_lr), &args, train_batches, test_batches);
    train("adagrad", adagrad(adagrad_lr), &args, train_batches, test_batches);
    return 0;
}
