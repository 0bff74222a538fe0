// A training for the tests of checkpoints, in which everything draws random numbers and keeps
// something: dropout, batch norm, momentum, a warm-up, augmentation, and, with PIPELINE, a stream
// that goes on over epochs. Variables of the environment say what it is to do; those that hold a
// number are 0 where they are not set.
//
// KILLS=FILE: a run takes the first line, "RANK STEP", from the file, and that rank kills itself in
// its so-manieth step. WEIGHTS=FOLDER: the root writes the weights there at the end. CUT_LOG: the
// root calls sync() when all ranks have saved (tests/faults/powercut.c).

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "hvdlab.h"
#include "lessons/shards.h"
#include "lessons/shards_state.h"

static Model *net(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = relu(batch_norm(max_pool(conv2d(image, 4, 3), 4)));
    return l2_penalty(model(image, softmax(dense(dropout(flatten(x), 0.3f), 10))), 0.0001f);
}

static int number(const char *name)
{
    return getenv(name) ? atoi(getenv(name)) : 0;
}

// A rate of its own for every step, which depends on the one before.
static void decay(Callback *self, Training *training)
{
    (void)self;
    Optimizer *optimizer = model_optimizer(training->model);
    if (training->epoch > 0)
        optimizer_set_learning_rate(optimizer, 0.99f * optimizer_learning_rate(optimizer));
}

static struct {
    int rank, step; // step 0: nobody is to die
} victim;

static void read_kills(Callback *self, Training *training)
{
    (void)self, (void)training;
    FILE *kills = getenv("KILLS") ? fopen(getenv("KILLS"), "r") : NULL;
    if (kills && fscanf(kills, "%d %d", &victim.rank, &victim.step) != 2)
        victim.step = 0;
    if (kills)
        fclose(kills);
}

static void kill_rank(Callback *self, Training *training)
{
    (void)self, (void)training;
    static int steps;
    if (victim.step == 0 || ++steps != victim.step || hvd_rank() != victim.rank)
        return;
    if (system("sed -i 1d \"$KILLS\"") == 0)
        raise(SIGKILL);
}

static void nap(Callback *self, Training *training)
{
    (void)self;
    while (training->epoch > 0 && hvd_rank() == hvd_size() - 1 && getenv("NAP") &&
           access(getenv("NAP"), F_OK) == 0)
        usleep(10000);
}

// Behind the callback that saves.
static void say_saved(Callback *self, Training *training)
{
    (void)self, (void)training;
    if (getenv("CUT_LOG") && hvd_rank() == 0)
        sync();
}

static Batches *stream(const Dataset *data, Statistics statistics, int size)
{
    Pipeline *p = pipeline_from_dataset(data, statistics);
    p = pipeline_augment(p);
    p = pipeline_cache(p);
    p = pipeline_shuffle(p, 50);
    p = pipeline_repeat(p);
    p = pipeline_augment(p);
    p = pipeline_batch(p, size, true);
    if (number("PIPELINE") > 1)
        p = pipeline_prefetch(p, 3);
    return batches_from(p);
}

int main(int argc, char **argv)
{
    setlocale(LC_ALL, ""); // as programs do that speak the user's language
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    Dataset train = load_data(&args, TRAIN), test = load_data(&args, TEST);
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = number("PIPELINE")
                                 ? stream(&train, statistics, args.batch_size)
                                 : augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);
    Optimizer *opt = number("ADAM") ? adam(0.003f) : sgd_momentum(0.02f, 0.9f, true);
    opt = number("SHARDS") ? optimizer_in_equal_shards(opt) : hvd_distributed_optimizer(opt);
    Model *model = compile(net(), CATEGORICAL_CROSSENTROPY, opt);
    Callbacks callbacks = {0};
    Callback decays = {.batch_end = decay};
    Callback naps = {.batch_begin = nap};
    Callback kills = {.train_begin = read_kills, .batch_end = kill_rank, .at_rest = say_saved};
    if (args.checkpoint_dir)
        callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = args.checkpoint_dir,
                                                           .every = number("EVERY"),
                                                           .keep = number("KEEP"),
                                                           .best = number("BEST"),
                                                           .best_only = number("BEST") > 1}));
    callbacks_add(&callbacks, hvd_learning_rate_warmup(0.02f, 1));
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, &decays);
    callbacks_add(&callbacks, &naps);
    callbacks_add(&callbacks, &kills);
    callbacks_add(&callbacks, hvd_metric_average());
    callbacks_add(&callbacks, stop_at_accuracy(args.target_accuracy, args.patience, 1));
    Fit plan = {
        .train = train_batches,
        .epochs = args.epochs,
        .steps_per_epoch = batches_len(train_batches) / hvd_size(),
        .validation = test_batches,
        .validation_steps = 2,
        .callbacks = &callbacks,
        .verbose = hvd_rank() == 0,
    };
    if (args.resume)
        restore_latest(model, &plan, args.checkpoint_dir);
    History history = fit(model, &plan);
    Score score = evaluate(model, test_batches, 0);
    if (hvd_rank() == 0) {
        for (int i = 0; i < history.epochs; i++)
            printf("history %d: %a %a %a\n", i, history.logs[i].loss, history.logs[i].val_loss,
                   history.logs[i].lr);
        printf("score %a\n", score.loss);
        if (getenv("WEIGHTS"))
            save_weights(model, getenv("WEIGHTS"), "final");
    }
    return 0;
}
