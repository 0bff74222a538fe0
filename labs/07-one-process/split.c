// Trains an MLP on Fashion-MNIST that is cut in two: its first half on device 0, its second half on
// device 1. A batch passes through them in micro-batches, from one device to the other and back.

#include "hvdlab.h"

// From an image to what device 0 hands over, a vector of 512 numbers.
static Model *first_half(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = relu(dense(flatten(image), 512));
    return model(image, relu(dense(x, 512)));
}

// From there to the classes.
static Model *second_half(void)
{
    Tensor handed_over = input_vector(512);
    Tensor x = relu(dense(handed_over, 512));
    x = relu(dense(x, 512));
    return model(handed_over, softmax(dense(x, 10)));
}

// What device 0 does with a batch, in a thread of its own.
static void first_stage(Stage *stage, int micro_batches)
{
#if STEP >= 1
    // split: fill the pipeline: device 1 has something to do while device 0 goes on.
    for (int k = 0; k < micro_batches; k++) {
        stage_forward(stage, k);
        stage_send(stage, k);
    }

    // split: and drain it: the gradients come back in the same order.
    for (int k = 0; k < micro_batches; k++) {
        stage_receive(stage, k);
        stage_backward(stage, k);
    }
#else
    // TODO: split: as it stands, one device waits whenever the other one computes. Find an order in
    // which both compute at the same time: neither waits while it has something to compute. The
    // weights must become what they become now.
    for (int k = 0; k < micro_batches; k++) {
        stage_forward(stage, k);
        stage_send(stage, k);
        stage_receive(stage, k);
        stage_backward(stage, k);
    }
#endif
    stage_apply(stage);
}

// What device 1 does with it at the same time, in another thread.
static void second_stage(Stage *stage, int micro_batches)
{
#if STEP >= 1
    // split: the gradient goes back at once, and device 1 keeps the values of one micro-batch.
#else
    // TODO: split: device 1, too, must not wait while it has something to compute. See whether this
    // order does that already; if not, change it.
#endif
    for (int k = 0; k < micro_batches; k++) {
        stage_receive(stage, k);
        stage_forward(stage, k);
        stage_backward(stage, k);
        stage_send(stage, k);
    }
    stage_apply(stage);
}

// One epoch. Returns its figures.
static Metrics train_epoch(Stages *stages, Batches *batches, int micro_batches)
{
    int steps = batches_len(batches);
    stages_reset_metrics(stages);
    batches_begin(batches, steps);
    for (int step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        train_in_stages(stages, &batch, micro_batches, first_stage, second_stage);
    }
    return stages_metrics(stages);
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

    const int devices[] = {0, 1};
    Stages *stages = two_stages(first_half(), sgd(args.base_lr), second_half(), sgd(args.base_lr),
                                devices);
    for (int epoch = 1; epoch <= args.epochs; epoch++) {
        double begin = seconds_now();
        Metrics metrics = train_epoch(stages, train_batches, args.micro_batches);
        printf("Epoch %d/%d - loss: %.4f - accuracy: %.4f - %.0f images/s\n", epoch, args.epochs,
               metrics.loss / metrics.images, metrics.correct / metrics.images,
               metrics.images / (seconds_now() - begin));
    }
    Score score = evaluate_in_stages(stages, test_batches);
    printf("Test loss: %.4f - accuracy: %.4f\n", score.loss, score.accuracy);
    return 0;
}
