// Trains a LeNet on Fashion-MNIST by SGD with momentum, at a rate that is too high for its largest
// gradients: an update whose gradient is longer than --clip-norm is scaled down to that.

#include <math.h>
#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"
#include "lessons/norms.h"

// One update from one batch of every worker.
static void update(Model *model, const Batch *batch, float limit)
{
    compute_gradients(model, batch);
    // TODO: clip: let every worker apply the mean of all workers' gradients, clipped: where the norm
    // of this mean, of all variables together, is above the limit, the whole mean is multiplied by
    // limit / norm. (All gradients are model_parameters(model)->length floats;
    // model_read_gradients() copies them, model_write_gradients() writes them back.)
    (void)limit;
    apply_gradients(model);
}

// One epoch, whose batches the workers share. Returns the worker's own metrics.
static Metrics train_epoch(Model *model, Batches *batches, float limit)
{
    int64_t steps = batches_len(batches) / hvd_size();
    model_reset_metrics(model);
    batches_begin(batches, steps);
    for (int64_t step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        update(model, &batch, limit);
    }
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

    Optimizer *opt = sgd_momentum(args.base_lr, 0.9f, false);
    Model *model = compile(create_lenet(16, 128), CATEGORICAL_CROSSENTROPY, opt);
    hvd_broadcast_model(model, 0);
    measure_norms(); // of all gradients, as they are computed, and as the optimizer applies them
    for (int epoch = 1; epoch <= args.epochs; epoch++) {
        Metrics metrics = train_epoch(model, train_batches, args.clip_norm);
        Norms norms = largest_norms();
        if (verbose)
            printf("Epoch %d/%d - loss: %.4f - largest norm: %.3f computed, %.3f applied\n", epoch,
                   args.epochs, metrics.loss / metrics.images, norms.computed, norms.applied);
    }
    Score score = evaluate(model, test_batches, 0);
    if (verbose)
        printf("Test accuracy: %.4f\n", score.accuracy);
    return 0;
}
