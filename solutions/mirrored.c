// Trains an MLP on Fashion-MNIST on the devices of one process: a replica of the model on each, which
// computes a part of every batch. No mpirun, no ranks.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// Floats of an image.
enum { PIXELS = 28 * 28 };

// Three dense layers.
static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = relu(dense(flatten(image), 256));
    x = relu(dense(x, 256));
    return model(image, softmax(dense(x, 10)));
}

static Optimizer *create_optimizer(void)
{
    return sgd(0.1f);
}

// The part of the whole batch that this replica computes.
static Batch own_part(const Replica *replica, const Batch *whole)
{
    // mirrored: equal parts, one after another; of what is left over the first replicas get one more.
    int each = whole->count / replica->count;
    int left = whole->count % replica->count;
    int first = replica->index * each + (replica->index < left ? replica->index : left);
    return (Batch){
        .images = whole->images + first * PIXELS,
        .labels = whole->labels + first,
        .count  = each + (replica->index < left),
    };
}

// One update. It runs on all devices at a time, with the replica of each; the whole batch is the
// same for all.
static void update(Replica *replica, const Batch *whole)
{
    Batch part = own_part(replica, whole);
    // mirrored: the mean over the part, by its share of the whole batch.
    size_t length = model_parameters(replica->model)->length;
    float *gradients = calloc(length, sizeof *gradients);
    if (part.count > 0) {
        compute_gradients(replica->model, &part);
        model_read_gradients(replica->model, gradients);
    }
    for (size_t i = 0; i < length; i++)
        gradients[i] *= (float)part.count / whole->count;

    // mirrored: every replica applies the sum of all.
    sum_among_replicas(replica, gradients, length);
    model_write_gradients(replica->model, gradients);
    free(gradients);
    apply_gradients(replica->model);
}

// Adds a batch to the metrics: each replica its part to its own.
static void test(Replica *replica, const Batch *whole)
{
    Batch part = own_part(replica, whole);
    if (part.count > 0)
        test_on_batch(replica->model, &part);
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);

    Dataset train_images = load_data(&args, TRAIN);
    Dataset test_images = load_data(&args, TEST);
    // Both sets are standardized with the mean and the standard deviation of the training images.
    Statistics statistics = image_statistics(&train_images);
    Batches *train_batches = plain_batches(&train_images, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test_images, statistics, args.val_batch_size);

    // mirrored: no list means all devices that there are.
    Mirrored *replicas = mirrored(create_model, CATEGORICAL_CROSSENTROPY, create_optimizer, NULL, 0);
    printf("Number of devices: %d\n", mirrored_devices(replicas));

    // A pass calls a function on all devices with each batch, and returns the metrics of all replicas.
    for (int epoch = 1; epoch <= args.epochs; epoch++) {
        Metrics metrics = pass_of_replicas(replicas, train_batches, update);
        printf("Epoch %d/%d - loss: %.4f - accuracy: %.4f\n", epoch, args.epochs,
               metrics.loss / metrics.images, metrics.correct / metrics.images);
    }
    Metrics metrics = pass_of_replicas(replicas, test_batches, test);
    printf("Test accuracy: %.4f\n", metrics.correct / metrics.images);
    return 0;
}
