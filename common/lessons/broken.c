// Runs with a broken step (broken.h): a program like that of step 6, which leaves one step out, or
// does it wrong. The trace does not say which.

#include "lessons/broken.h"

#include <stdio.h>
#include "base/error.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "data/batches.h"
#include "data/dataset.h"
#include "hvd/hvd.h"
#include "lessons/sheet.h"
#include "nn/layers.h"
#include "observe/trace.h"
#include "run/args.h"
#include "run/device.h"
#include "train/fit.h"

enum { WORKERS = 4 };

void broken_steps(uint64_t seed, int steps[RUNS])
{
    Rng rng = rng_stream_of(seed, RNG_FLAWS, 1);
    uint32_t order[1 + STEPS_OF_TRAINER];
    rng_permutation(&rng, order, 1 + STEPS_OF_TRAINER);
    for (int run = 0; run < RUNS; run++)
        steps[run] = (int)order[run];
}

static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = max_pool(relu(batch_norm(conv2d(image, 8, 3))), 2);
    x = max_pool(relu(batch_norm(conv2d(x, 16, 3))), 2);
    return model(image, softmax(dense(flatten(x), 10)));
}

static void train(int broken, const Args *args)
{
    int verbose = hvd_rank() == 0 || broken == 2;
    Dataset train = load_data(args, TRAIN), test = load_data(args, TEST);
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = augmented_batches(&train, statistics, args->batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args->val_batch_size);

    Optimizer *opt = sgd(args->base_lr);
    if (broken != 3)
        opt = hvd_distributed_optimizer(opt);
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, opt);

    Callbacks callbacks = {0};
    if (broken != 4)
        callbacks_add(&callbacks, hvd_broadcast_variables(0));
    if (broken != 6)
        callbacks_add(&callbacks, hvd_metric_average());
    if (verbose) {
        callbacks_add(&callbacks, print_throughput(train.count));
        callbacks_add(&callbacks, print_total_time());
    }
    fit(model, &(Fit){
                   .train = train_batches,
                   .epochs = args->epochs,
                   .steps_per_epoch = batches_len(train_batches) / (broken == 5 ? 1 : hvd_size()),
                   .validation = test_batches,
                   .validation_steps = 3 * batches_len(test_batches) / hvd_size(),
                   .callbacks = &callbacks,
                   .verbose = verbose,
               });
    callbacks_free(&callbacks);
    batches_free(train_batches);
    batches_free(test_batches);
    model_free(model);
}

// The sheet, for the check; and for its author, where no run is asked for.
static void show_sheet(const Symptom symptoms[RUNS], bool print)
{
    for (int run = 0; run < RUNS; run++) {
        int step = symptoms[run].step;
        const char *shown = symptoms[run].shown ? symptoms[run].shown : "";
        trace("symptom", NUMBER("run", run + 1), NUMBER("step", step), TEXT("shown", shown));
        if (print && step == NOT_ANSWERED)
            printf("Run %d: not answered\n", run + 1);
        else if (print && step == NO_STEP)
            printf("Run %d: no step is broken\n", run + 1);
        else if (print)
            printf("Run %d: step %d is broken, as \"%s\" shows\n", run + 1, step, shown);
    }
}

// Which run the first word asks for; 0: there is no word before the flags.
static int run_of(int argc, char **argv)
{
    uint64_t run = 0;
    if (argc < 2 || *argv[1] == '-')
        return 0;
    if (!read_whole_number(argv[1], RUNS, &run) || run == 0)
        die("there is no run %s: the first word is the number of a run, from 1 to %d", argv[1],
            RUNS);
    return (int)run;
}

void train_broken(uint64_t seed, const Symptom symptoms[RUNS], int argc, char **argv)
{
    hvd_init();
    int run = run_of(argc, argv), words = run ? 1 : 0, steps[RUNS];
    broken_steps(seed, steps);
    int broken = run ? steps[run - 1] : NO_STEP;
    device_use(broken == 1 ? (int)(seed % 2) : hvd_local_rank());
    argv[words] = argv[0];
    Args args = parse_args(argc - words, argv + words);
    if (!sheet_has_seed("diagnose", __func__, seed, WORKERS))
        return;
    show_sheet(symptoms, !run && hvd_rank() == 0);
    if (run)
        train(broken, &args);
}
