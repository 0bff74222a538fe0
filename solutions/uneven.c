// Trains a small network on Fashion-MNIST, on workers that have different numbers of images. The
// training loop is the program's own.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// How many parts of the images a worker has.
static int parts_of(int rank)
{
    return 1 + rank % 3;
}

// This worker's images, which nobody else has: one, two or three parts, as if each had collected
// its own.
static Dataset own_images(const Dataset *all)
{
    int before = 0, parts = 0;
    for (int r = 0; r < hvd_size(); r++) {
        before += r < hvd_rank() ? parts_of(r) : 0;
        parts += parts_of(r);
    }
    int begin = (int)((int64_t)all->count * before / parts);
    int end = (int)((int64_t)all->count * (before + parts_of(hvd_rank())) / parts);
    return dataset_range(all, begin, end - begin);
}

// One epoch. Returns the worker's own figures.
static Metrics train_epoch(Model *model, Batches *batches)
{
    // The gradients of all variables lie one after another: `length` floats.
    size_t length = model_parameters(model)->length;
    float *gradients = malloc(length * sizeof *gradients);
    int steps = batches_len(batches);
    model_reset_metrics(model);
    batches_begin(batches, steps);
    // uneven: a worker that has no batch left brings zeros, until none has one. What is applied is
    // the mean of the gradients that were computed. (`working` is 1 or 0: hvd_allreduce adds floats.)
    for (int step = 0;; step++) {
        float working = step < steps;
        for (size_t i = 0; i < length; i++)
            gradients[i] = 0;
        if (step < steps) {
            Batch batch = batches_next(batches);
            compute_gradients(model, &batch);
            model_read_gradients(model, gradients);
        }
        hvd_allreduce(&working, 1, HVD_SUM);
        if (working == 0)
            break;
        hvd_allreduce(gradients, length, HVD_SUM);
        for (size_t i = 0; i < length; i++)
            gradients[i] /= working;
        model_write_gradients(model, gradients);
        apply_gradients(model);
    }
    free(gradients);
    return model_metrics(model);
}

// The root prints the figures of all workers' images.
static void print_epoch(int epoch, int epochs, Metrics own)
{
    float sums[] = {(float)own.loss, (float)own.correct, (float)own.images};
    hvd_allreduce(sums, 3, HVD_SUM);
    if (hvd_rank() == 0)
        printf("epoch %d/%d - images: %.0f - loss: %.4f - accuracy: %.4f\n", epoch, epochs, sums[2],
               sums[0] / sums[2], sums[1] / sums[2]);
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
    Dataset own = own_images(&train_images);
    Batches *train_batches = augmented_batches(&own, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test_images, statistics, args.val_batch_size);

    Optimizer *opt = sgd_momentum(args.base_lr, 0.9f, false);
    Model *model = compile(create_lenet(16, 64), CATEGORICAL_CROSSENTROPY, opt);
    hvd_broadcast_model(model, 0);
    for (int epoch = 1; epoch <= args.epochs; epoch++)
        print_epoch(epoch, args.epochs, train_epoch(model, train_batches));

    Score score = evaluate(model, test_batches, 0);
    if (hvd_rank() == 0)
        printf("test accuracy: %.4f\n", score.accuracy);
    return 0;
}
