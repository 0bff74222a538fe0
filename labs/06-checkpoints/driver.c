// Which learning rate is best? A plain program, which no mpirun starts, tries some: for each it has
// a function of its own run by two workers, and looks at what the root's returns.

#include <stdlib.h>
#include "hvdlab.h"

static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = max_pool(relu(conv2d(image, 8, 3)), 2);
    x = relu(dense(flatten(x), 32));
    return model(image, softmax(dense(x, 10)));
}

// What each worker does. Its main is this function: a job is there already, and what it is to know
// of the program below stands in `rate`.
static char *train(const char *rate)
{
    device_use(hvd_local_rank());
    Args args = parse_args(1, (char *[]){"driver", NULL});
    Dataset train = load_data(&args, TRAIN), test = load_data(&args, TEST);
    train = shard_dataset(&train, hvd_rank(), hvd_size());
    Statistics scale = {.std = {255}};
    Batches *train_batches = plain_batches(&train, scale, args.batch_size);
    Batches *test_batches = plain_batches(&test, scale, args.val_batch_size);

    Optimizer *opt = hvd_distributed_optimizer(sgd_momentum(strtof(rate, NULL), 0.9f, true));
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, opt);
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    fit(model, &(Fit){
        .train           = train_batches,
        .epochs          = 1,
        .steps_per_epoch = 6000 / hvd_size() / args.batch_size,
        .callbacks       = &callbacks,
    });

    Score score = evaluate(model, test_batches, 0);
    char *result = malloc(32);
    snprintf(result, 32, "%.4f", score.accuracy);
    return result;
}

int main(void)
{
    const char *const rates[] = {"0.0001", "0.01", "1"};
    for (int i = 0; i < 3; i++) {
        char *accuracy = hvd_run(2, train, rates[i]);
        printf("learning rate %-6s  test accuracy %s\n", rates[i], accuracy);
        free(accuracy);
    }
    return 0;
}
