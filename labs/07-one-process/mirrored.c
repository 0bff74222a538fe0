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
#if STEP >= 1
    // mirrored: equal parts, one after another; of what is left over the first replicas get one more.
    int each = whole->count / replica->count;
    int left = whole->count % replica->count;
    int first = replica->index * each + (replica->index < left ? replica->index : left);
    return (Batch){
        .images = whole->images + first * PIXELS,
        .labels = whole->labels + first,
        .count  = each + (replica->index < left),
    };
#else
    // TODO: mirrored: give replica replica->index of replica->count its own part of the images, PIXELS
    // floats each, and of their labels. Every image is in one part, and parts differ by one image at
    // most. Some may be empty. Don't use part_of_batch(), which does this.
    return *whole;
#endif
}

// One update. It runs on all devices at a time, with the replica of each; the whole batch is the
// same for all.
static void update(Replica *replica, const Batch *whole)
{
    Batch part = own_part(replica, whole);
#if STEP >= 1
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
#else
    // TODO: mirrored: let all replicas, also one without images, apply the same gradient: the mean
    // over all images of the whole batch. A model's gradients are model_parameters(model)->length
    // floats; model_read_gradients() copies them. Don't use average_gradients(), which does this.
    compute_gradients(replica->model, &part);
#endif
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

#if STEP >= 1
    // mirrored: no list means all devices that there are.
    Mirrored *replicas = mirrored(create_model, CATEGORICAL_CROSSENTROPY, create_optimizer, NULL, 0);
    printf("Number of devices: %d\n", mirrored_devices(replicas));
#else
    // TODO: mirrored: this makes one replica, on device 0. Make one on every device that there is, and
    // print their number, as in "Number of devices: 1".
    int devices[] = {0};
    Mirrored *replicas = mirrored(create_model, CATEGORICAL_CROSSENTROPY, create_optimizer, devices, 1);
#endif

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
