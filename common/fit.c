// The training loop, and evaluation.

#include "fit.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include "args.h"
#include "device.h"
#include "progress.h"
#include "util.h"

typedef void (*Event)(Callback *, Training *);

// Calls one function of every callback; `event` is its place in the struct.
static void call(const Callbacks *callbacks, size_t event, Training *training)
{
    for (int i = 0; callbacks && i < callbacks->count; i++) {
        Callback *callback = callbacks->items[i];
        Event function = *(Event *)((char *)callback + event);
        if (function)
            function(callback, training);
    }
}
#define CALL(fit, event, training) call((fit)->callbacks, offsetof(Callback, event), training)

static void train_epoch(const Fit *fit, Training *training, ProgressBar *progress)
{
    model_reset_metrics(training->model);
    batches_begin(fit->train, training->steps);
    for (training->step = 0; training->step < training->steps; training->step++) {
        CALL(fit, batch_begin, training);
        Batch batch = batches_next(fit->train);
        train_on_batch(training->model, &batch);
        CALL(fit, batch_end, training);
        if (progress_due(progress)) {
            Metrics metrics = model_metrics(training->model);
            progress_draw(progress, training->step + 1, &metrics);
        }
    }
    Metrics metrics = model_metrics(training->model);
    training->logs.loss = metrics.loss / metrics.images;
    training->logs.accuracy = metrics.correct / metrics.images;
    training->logs.images = metrics.images;
}

static Metrics test(Model *model, Batches *batches, int64_t steps)
{
    model_reset_metrics(model);
    batches_begin(batches, steps);
    for (int64_t step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        test_on_batch(model, &batch);
    }
    return model_metrics(model);
}

static void validate(const Fit *fit, Training *training)
{
    Metrics metrics = test(training->model, fit->validation, fit->validation_steps);
    training->logs.val_loss = metrics.loss / metrics.images;
    training->logs.val_accuracy = metrics.correct / metrics.images;
    training->logs.val_images = metrics.images;
}

static void print_epoch(const ProgressBar *progress, const Logs *logs)
{
    progress_end(progress);
    progress_figure("loss", logs->loss);
    progress_figure("accuracy", logs->accuracy);
    if (logs->val_images > 0) {
        progress_figure("val_loss", logs->val_loss);
        progress_figure("val_accuracy", logs->val_accuracy);
    }
    progress_figure("lr", logs->lr);
    printf("\n");
    fflush(stdout);
}

// What a loss curve hides. This build has one rank to show.
static void print_ranks(const Training *training)
{
    Fingerprints prints = model_fingerprints(training->model);
    printf("rank  device         weights      statistics    loss  val_accuracy\n"
           "%4d  %-6s  %14.8f  %14.8f  %6.4f  %12.4f\n",
           launcher_rank(), device_kind(), prints.weights, prints.statistics, training->logs.loss,
           training->logs.val_accuracy);
}

static void run_epoch(const Fit *fit, Training *training)
{
    training->logs = (Logs){0};
    CALL(fit, epoch_begin, training);
    if (fit->verbose)
        printf("Epoch %d/%d\n", training->epoch + 1, fit->epochs);
    fflush(stdout);
    ProgressBar progress = progress_begin(training->steps, fit->verbose);
    training->logs.lr = (double)optimizer_learning_rate(model_optimizer(training->model));
    train_epoch(fit, training, &progress);
    if (fit->validation)
        validate(fit, training);
    progress_clear(&progress);
    CALL(fit, epoch_end, training);
    if (fit->verbose)
        print_epoch(&progress, &training->logs);
    if (fit->verbose && settings()->show_ranks)
        print_ranks(training);
}

static void check_steps(const char *what, int64_t steps)
{
    if (steps < 1)
        die("fit: %s is %lld, but an epoch needs at least 1", what, (long long)steps);
}

static void check_validation(const Model *model, const Fit *fit)
{
    check_steps("validation_steps", fit->validation_steps);
    model_check_dataset(model, batches_dataset(fit->validation));
}

static void keep_logs(History *history, const Logs *logs)
{
    size_t count = (size_t)history->epochs + 1;
    history->logs = realloc(history->logs, count * sizeof *logs);
    CHECK(history->logs);
    history->logs[history->epochs++] = *logs;
}

History fit(Model *model, const Fit *fit)
{
    check_steps("steps_per_epoch", fit->steps_per_epoch);
    model_check_dataset(model, batches_dataset(fit->train));
    if (fit->validation)
        check_validation(model, fit);
    Training training = {.model = model, .epochs = fit->epochs, .steps = fit->steps_per_epoch};
    History history = {0};

    CALL(fit, train_begin, &training);
    while (history.epochs < fit->epochs && !training.stop) {
        training.epoch = history.epochs;
        run_epoch(fit, &training);
        keep_logs(&history, &training.logs);
    }
    CALL(fit, train_end, &training);
    return history;
}

Score evaluate(Model *model, Batches *batches, int verbose)
{
    model_check_dataset(model, batches_dataset(batches));
    ProgressBar progress = progress_begin(batches_len(batches), verbose);
    Metrics metrics = test(model, batches, batches_len(batches));
    if (progress.bar) {
        progress_end(&progress);
        progress_figure("loss", metrics.loss / metrics.images);
        progress_figure("accuracy", metrics.correct / metrics.images);
        printf("\n");
    }
    return (Score){metrics.loss / metrics.images, metrics.correct / metrics.images};
}
