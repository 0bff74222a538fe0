// Trainings with flaws (flaws.h). The flaws are made by the settings that a user has: --pace and
// --slow-reader on one rank, HVD_FUSION_THRESHOLD on all.

#include "lessons/flaws.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/format.h"
#include "base/rng.h"
#include "data/batches.h"
#include "data/dataset.h"
#include "hvd/hvd.h"
#include "lessons/sheet.h"
#include "nn/layers.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "train/fit.h"

enum {
    WORKERS = 4,
    STEPS = 8,
    SLOW_STEPS = 2, // the first ones wait for memory, and have batches that were read before
    LAYERS = 39,
    UNITS = 32,
};

static const char *name_of(Remedy remedy)
{
    static const char *const names[] = {"no remedy", "device replaced", "images cached",
                                        "larger pieces"};
    return remedy < sizeof names / sizeof *names ? names[remedy] : "unknown remedy";
}

// How a training loses time; the remedy names it.
typedef struct {
    Remedy remedy;
    int rank;         // EVERY_RANK: LARGER_PIECES
    int milliseconds; // of a batch on that rank, to compute or to read it
    int threshold;    // bytes of gradients that a piece has at least; 0: each layer's alone
} Flaw;

static void draw_flaws(uint64_t seed, Flaw flaws[TRAININGS])
{
    Rng rng = rng_stream_of(seed, RNG_FLAWS, 0);
    uint32_t order[TRAININGS];
    rng_permutation(&rng, order, TRAININGS);
    for (int t = 0; t < TRAININGS; t++) {
        Flaw *flaw = &flaws[t];
        *flaw = (Flaw){.remedy = REPLACE_DEVICE + (Remedy)order[t], .rank = EVERY_RANK};
        if (flaw->remedy == LARGER_PIECES) {
            int layers = 1 + (int)rng_below(&rng, 3); // of one piece
            flaw->threshold = ((layers - 1) * (UNITS * UNITS + UNITS) + 1) * (int)sizeof(float);
        } else {
            flaw->rank = (int)rng_below(&rng, WORKERS);
            flaw->milliseconds = 20 + 5 * (int)rng_below(&rng, 13);
        }
    }
}

static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = flatten(image);
    for (int layer = 0; layer < LAYERS; layer++)
        x = relu(dense(x, UNITS));
    return model(image, softmax(dense(x, 10)));
}

// When the first two steps had been done, and when all had.
typedef struct {
    double begin, end; // seconds
} Clock;

static void read_clock(Callback *callback, Training *training)
{
    Clock *clock = callback->state;
    double now = seconds_now();
    if (training->step == SLOW_STEPS - 1)
        clock->begin = now;
    clock->end = now;
}

// Trains a new model; returns the seconds of a step. `flaw` NULL: without any.
static double train(const Flaw *flaw, const Dataset *images, int batch_size)
{
    bool own = flaw && (flaw->rank == hvd_rank() || flaw->rank == EVERY_RANK);
    settings()->pace = own && flaw->remedy == REPLACE_DEVICE ? (float)flaw->milliseconds : 0;
    settings()->slow_reader = own && flaw->remedy == CACHE_IMAGES ? (float)flaw->milliseconds : 0;
    if (own && flaw->remedy == LARGER_PIECES) {
        char *bytes = format_text("%d", flaw->threshold);
        setenv("HVD_FUSION_THRESHOLD", bytes, 1);
        free(bytes);
    } else {
        unsetenv("HVD_FUSION_THRESHOLD");
    }

    Model *model =
        compile(create_model(), CATEGORICAL_CROSSENTROPY, hvd_distributed_optimizer(sgd(0.01F)));
    Batches *batches = plain_batches(images, image_statistics(images), batch_size);
    Clock clock = {0};
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks,
                  lambda_callback((Callback){.batch_end = read_clock, .state = &clock}));
    fit(model, &(Fit){
                   .train = batches,
                   .epochs = 1,
                   .steps_per_epoch = STEPS,
                   .callbacks = &callbacks,
               });
    callbacks_free(&callbacks);
    batches_free(batches); // before the settings change, which its threads read
    model_free(model);
    return (clock.end - clock.begin) / (STEPS - SLOW_STEPS);
}

static void trace_flaw(int training, const Flaw *flaw, const Finding *finding)
{
    trace("flaw", NUMBER("training", training), NUMBER("rank", flaw->rank),
          NUMBER("milliseconds", flaw->milliseconds), NUMBER("remedy", flaw->remedy));
    trace("finding", NUMBER("training", training), NUMBER("rank", finding->rank),
          TEXT("span", finding->span ? finding->span : ""),
          NUMBER("milliseconds", finding->milliseconds), NUMBER("pieces", finding->pieces),
          NUMBER("remedy", finding->remedy));
}

// Both trainings of number `number`, from 1.
static void train_twice(int number, const Flaw *flaw, const Finding *finding, const Dataset *images,
                        int batch_size)
{
    trace_flaw(number, flaw, finding);
    char *name = format_text("training %d", number);
    span_begin(SPAN_EPOCH, timeline_text(name), -1, -1);
    double seconds = train(flaw, images, batch_size);
    span_end();
    trace("flaw_trained", NUMBER("training", number), NUMBER("milliseconds", 1e3 * seconds));
    if (hvd_rank() == 0)
        printf("Training %d: %.1f ms a step\n", number, 1e3 * seconds);
    free(name);
    if (finding->remedy == NO_REMEDY)
        return;

    name = format_text("training %d again", number);
    span_begin(SPAN_EPOCH, timeline_text(name), -1, -1);
    double again = train(finding->remedy == flaw->remedy ? NULL : flaw, images, batch_size);
    span_end();
    if (hvd_rank() == 0)
        printf("Training %d, %s: %.1f ms a step, %.1f times as fast\n", number,
               name_of(finding->remedy), 1e3 * again, seconds / again);
    free(name);
}

void train_with_flaws(uint64_t seed, const Finding findings[TRAININGS], const Args *args)
{
    if (!sheet_has_seed("profile", __func__, seed, WORKERS))
        return;
    settings()->loader_threads = 1; // one row of the timeline
    Flaw flaws[TRAININGS];
    draw_flaws(seed, flaws);
    Dataset images = load_data(args, TRAIN);
    for (int t = 0; t < TRAININGS; t++)
        train_twice(t + 1, &flaws[t], &findings[t], &images, args->batch_size);
}
