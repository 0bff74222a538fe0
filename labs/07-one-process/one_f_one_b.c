// Trains an MLP on Fashion-MNIST that is cut into --stages parts, each on a device of its own. A batch
// passes through them in micro-batches. All stages run the same schedule.

#include "hvdlab.h"

// The part of the network that this stage computes: two dense layers, the last stage the classes, too.
static Model *create_part(int index, int count)
{
    Tensor in = index == 0 ? input(28, 28, 1) : input_vector(512);
    Tensor x = index == 0 ? flatten(in) : in;
    x = relu(dense(x, 512));
    x = relu(dense(x, 512));
    return model(in, index == count - 1 ? softmax(dense(x, 10)) : x);
}

// Micro-batch k through this stage, forward. Where there is no stage before or behind this one, there
// is nothing to receive or to send.
static void forward(Stage *stage, int k)
{
    stage_receive_values(stage, k);
    stage_forward(stage, k);
    stage_send_values(stage, k);
}

// And backward: only then is the memory of its activations free for another micro-batch.
static void backward(Stage *stage, int k)
{
    stage_receive_gradient(stage, k);
    stage_backward(stage, k);
    stage_send_gradient(stage, k);
}

// What each stage does with a batch, all of them at the same time, in threads of their own.
static void schedule(Stage *stage, int micro_batches)
{
#if STEP >= 1
    // one_f_one_b: one micro-batch for each of the stages behind this one.
    int warm_up = stage_count(stage) - stage_index(stage) - 1;
    if (warm_up > micro_batches)
        warm_up = micro_batches;

    // one_f_one_b: warm-up.
    for (int k = 0; k < warm_up; k++)
        forward(stage, k);

    // one_f_one_b: one forward, one backward: of the oldest micro-batch that it keeps.
    for (int k = warm_up; k < micro_batches; k++) {
        forward(stage, k);
        backward(stage, k - warm_up);
    }

    // one_f_one_b: cool-down: the rest of them, backward.
    for (int k = micro_batches - warm_up; k < micro_batches; k++)
        backward(stage, k);
#else
    // TODO: one_f_one_b: as it stands, all micro-batches go forward first, so a stage keeps the
    // activations of all of them. Write one forward, one backward (1F1B): a stage keeps at most as many
    // micro-batches as there are stages from it to the last one, and a batch takes no longer than now.
    // stage_index(stage) is this stage, from 0, of stage_count(stage). There may be fewer micro-batches
    // than stages.
    for (int k = 0; k < micro_batches; k++)
        forward(stage, k);
    for (int k = 0; k < micro_batches; k++)
        backward(stage, k);
#endif
    stage_apply(stage);
}

// One epoch. Returns its metrics.
static Metrics train_epoch(Stages *stages, Batches *batches, int micro_batches)
{
    int steps = batches_len(batches);
    stages_reset_metrics(stages);
    batches_begin(batches, steps);
    for (int step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        train_by_schedule(stages, &batch, micro_batches, schedule);
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

    // Where there are fewer devices than stages, several stages share one.
    StagePart parts[MAX_STAGES];
    for (int s = 0; s < args.stages; s++)
        parts[s] = (StagePart){create_part(s, args.stages), sgd(args.base_lr), s % device_count()};
    Stages *stages = stages_in_a_row(parts, args.stages);
    for (int epoch = 1; epoch <= args.epochs; epoch++) {
        double begin = seconds_now();
        Metrics metrics = train_epoch(stages, train_batches, args.micro_batches);
        printf("Epoch %d/%d - loss: %.4f - accuracy: %.4f - %.0f images/s\n", epoch, args.epochs,
               metrics.loss / metrics.images, metrics.correct / metrics.images,
               metrics.images / (seconds_now() - begin));
        for (int s = 0; s < args.stages; s++) {
            StageUse use = stage_use(stages, s);
            printf("Stage %d: %d of %d micro-batches kept, %.2f MB, idle %.0f %% of the time\n", s,
                   use.kept, args.micro_batches, use.megabytes, 100 * use.idle);
        }
    }
    Score score = evaluate_in_stages(stages, test_batches);
    printf("Test loss: %.4f - accuracy: %.4f\n", score.loss, score.accuracy);
    return 0;
}
