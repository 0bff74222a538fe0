// Trains a LeNet on Fashion-MNIST in updates of 256 images, on however many devices: a worker whose
// part of them is more than a batch makes an update of several batches.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// Images of an update, those of all workers together.
enum { UPDATE = 256 };

// One update from the next `passes` batches of every worker.
static void update(Model *model, Batches *batches, int passes)
{
#if STEP >= 1
    // accumulate: the worker's own mean, batch after batch.
    size_t length = model_parameters(model)->length;
    float *gradients = malloc(length * sizeof *gradients);
    float *mean = calloc(length, sizeof *mean);
#else
    // TODO: accumulate: an update is to be made from the mean of the gradients of all these batches,
    // those of all workers: as if they were one batch. compute_gradients() overwrites what the batch
    // before has left, so the gradients of each have to be added to a sum of your own.
    // (All are model_parameters(model)->length floats; model_read_gradients() copies them.)
#endif
    for (int pass = 0; pass < passes; pass++) {
        Batch batch = batches_next(batches);
        compute_gradients(model, &batch);
#if STEP >= 1
        model_read_gradients(model, gradients);
        for (size_t i = 0; i < length; i++)
            mean[i] += gradients[i] / (float)passes;
#endif
    }
#if STEP >= 1
    // accumulate: one exchange for all of them.
    hvd_allreduce(mean, length, HVD_AVERAGE);
    model_write_gradients(model, mean);
    free(gradients);
    free(mean);
#else
    // TODO: accumulate: average among the workers, once for the whole update.
#endif
    apply_gradients(model);
}

// One epoch, whose batches the workers share. Where they don't make whole updates, the last update
// is from fewer of them. Returns the worker's own figures.
static Metrics train_epoch(Model *model, Batches *batches, int steps, int passes)
{
    model_reset_metrics(model);
    batches_begin(batches, steps);
    for (int step = 0; step < steps; step += passes)
        update(model, batches, step + passes < steps ? passes : steps - step);
    return model_metrics(model);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    bool verbose = hvd_rank() == 0;

    Dataset train_images = load_data(&args, TRAIN);
    Dataset test_images = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train_images);
    Batches *train_batches = augmented_batches(&train_images, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test_images, statistics, args.val_batch_size);

    // Batches of a worker: in an update, and in an epoch.
    int together = args.batch_size * hvd_size();
    int passes = together < UPDATE ? UPDATE / together : 1;
    int steps = train_images.count / together;

    Model *model = compile(create_lenet(16, 128), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    hvd_broadcast_model(model, 0);
    for (int epoch = 1; epoch <= args.epochs; epoch++) {
        Metrics metrics = train_epoch(model, train_batches, steps, passes);
        if (verbose)
            printf("Epoch %d/%d - %d updates - loss: %.4f - accuracy: %.4f\n", epoch, args.epochs,
                   (int)optimizer_iterations(model_optimizer(model)), metrics.loss / metrics.images,
                   metrics.correct / metrics.images);
    }
    Score score = evaluate(model, test_batches, 0);
    if (verbose)
        printf("Test accuracy: %.4f\n", score.accuracy);
    return 0;
}
