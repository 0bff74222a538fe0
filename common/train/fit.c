// The training loop and the evaluation, of one model, or of the trainers of fit_inside.h.

#include "train/fit.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include "train/progress.h"
#include "train/resume.h"
#include "train/fit_inside.h"
#include "train/hooks.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/format.h"

typedef void (*Event)(Callback *, Training *);

static Callbacks watchers; // of every training

void fit_watch(Callback *callback)
{
    callbacks_add(&watchers, callback);
}

static void call_one(Callback *callback, size_t event, Training *training)
{
    Event function = *(Event *)((char *)callback + event);
    if (!function)
        return;
    span_begin(SPAN_CALLBACK, timeline_text(callback->name ? callback->name : "callback"),
               training->epoch, -1);
    function(callback, training);
    span_end();
}

// Calls one function of every callback; `event` is its place in the struct.
static void call(const Callbacks *callbacks, size_t event, Training *training)
{
    for (int i = 0; callbacks && i < callbacks->count; i++)
        call_one(callbacks->items[i], event, training);
}

#define CALL(fit, event, training)     call((fit)->callbacks, offsetof(Callback, event), training)
#define CALL_WATCHERS(event, training) call(&watchers, offsetof(Callback, event), training)

static void call_epoch_end(const Fit *fit, Training *training)
{
    trace_metrics("epoch", NULL, training);
    for (int i = 0; fit->callbacks && i < fit->callbacks->count; i++) {
        Callback *callback = fit->callbacks->items[i];
        if (!callback->epoch_end)
            continue;
        trace_metrics("callback", callback, training);
        call_one(callback, offsetof(Callback, epoch_end), training);
    }
    trace_metrics("history", NULL, training);
}

// Exits: `where` it is not a number, or infinite.
_Noreturn static void end_of_numbers(const Training *training, const char *what, double loss,
                                     const char *where)
{
    // die() and similar functions name the rank themselves, unless it is the root.
    give_up("%s%s is %s in epoch %d%s, at learning rate %g: the weights are of no use any more; a "
            "smaller learning rate (--base-lr) often helps",
            launcher_size() > 1 && launcher_rank() == 0 ? "rank 0: " : "", what,
            isnan(loss) ? "nan" : "infinite", training->epoch + 1, where,
            (double)optimizer_learning_rate(model_optimizer(training->model)));
}

// `steps`: of the epoch, that are done.
static void check_loss(const Fit *fit, const Training *training, int64_t steps,
                       const Metrics *metrics)
{
    if (metrics->finite >= metrics->batches || fit->allow_nan)
        return;
    // The metrics are those of the steps since the epoch began, or was continued without them.
    double first = (double)steps - metrics->batches;
    char *step = format_text(", step %.0f", first + metrics->finite + 1);
    end_of_numbers(training, "the loss", metrics->loss, step);
}

// Reading a GPU's sum after each step would make the host wait for the GPU.
#define LOOK_EVERY 100 // steps

static bool loss_is_due(const Training *training)
{
    return model_metrics_are_available(training->model) || (training->step + 1) % LOOK_EVERY == 0;
}

// The batches of the epoch, or the remaining ones.
static void begin_batches(const Trainer *trainer, const Fit *fit, Training *training)
{
    trainer->reset_metrics(trainer->self);
    if (training->steps_done > 0 && fit->resume && fit->resume->apply(fit->resume, training))
        return;
    batches_begin(fit->train, training->steps - training->steps_done);
}

static void train_epoch(const Trainer *trainer, const Fit *fit, Training *training,
                        ProgressBar *progress)
{
    begin_batches(trainer, fit, training);
    for (training->step = training->steps_done; training->step < training->steps;
         training->step++) {
        span_begin(SPAN_STEP, "step", training->step, -1);
        CALL(fit, batch_begin, training);
        Batch batch = batches_next(fit->train);
        fit_trace_batch(fit, training);
        trainer->train_on_batch(trainer->self, &batch);
        fit_trace_step(fit, training);
        if (loss_is_due(training)) {
            Metrics metrics = trainer->metrics(trainer->self);
            check_loss(fit, training, training->step + 1, &metrics);
        }
        CALL(fit, batch_end, training);
        training->steps_done = training->step + 1;
        CALL(fit, at_rest, training);
        if (progress_due(progress)) {
            Metrics metrics = trainer->metrics(trainer->self);
            check_loss(fit, training, training->steps_done, &metrics);
            progress_draw(progress, training->step + 1, &metrics);
        }
        span_end();
    }
    Metrics metrics = trainer->metrics(trainer->self);
    check_loss(fit, training, training->steps, &metrics);
    training->logs.loss = metrics.loss / metrics.images;
    training->logs.accuracy = metrics.correct / metrics.images;
    training->logs.images = metrics.images;
}

static Metrics run_test(const Trainer *trainer, Batches *batches, int64_t steps,
                        const char *purpose)
{
    span_begin(SPAN_EVALUATION, purpose, -1, -1);
    trainer->reset_metrics(trainer->self);
    batches_begin(batches, steps);
    for (int64_t step = 0; step < steps; step++) {
        span_begin(SPAN_STEP, "validation step", step, -1);
        Batch batch = batches_next(batches);
        trainer->test_on_batch(trainer->self, &batch);
        span_end();
    }
    Metrics metrics = trainer->metrics(trainer->self);
    span_end();
    return metrics;
}

static void validate(const Trainer *trainer, const Fit *fit, Training *training)
{
    Metrics metrics = run_test(trainer, fit->validation, fit->validation_steps, "validation");
    if (metrics.finite < metrics.batches && !fit->allow_nan)
        end_of_numbers(training, "the validation loss", metrics.loss, "");
    training->logs.val_loss = metrics.loss / metrics.images;
    training->logs.val_accuracy = metrics.correct / metrics.images;
    training->logs.val_images = metrics.images;
}

// Another thread may print its own progress bar.
static void print_epoch(const ProgressBar *progress, const Logs *logs)
{
    flockfile(stdout);
    progress_end(progress);
    progress_metric("loss", logs->loss);
    progress_metric("accuracy", logs->accuracy);
    if (logs->val_images > 0) {
        progress_metric("val_loss", logs->val_loss);
        progress_metric("val_accuracy", logs->val_accuracy);
    }
    progress_metric("lr", logs->lr);
    printf("\n");
    fflush(stdout);
    funlockfile(stdout);
    watch_output();
}

static void keep_logs(History *history, const Logs *logs)
{
    size_t count = (size_t)history->epochs + 1;
    history->logs = enlarge(history->logs, count, sizeof *logs);
    history->logs[history->epochs++] = *logs;
}

static void run_epoch(const Trainer *trainer, const Fit *fit, Training *training)
{
    training->epoch = training->epochs_done;
    training->logs = (Logs){0};
    span_begin(SPAN_EPOCH, "epoch", training->epoch, -1);
    CALL(fit, epoch_begin, training);
    if (fit->verbose)
        printf("Epoch %d/%d\n", training->epoch + 1, fit->epochs);
    fflush(stdout);
    ProgressBar progress = progress_begin(training->steps, fit->verbose);
    train_epoch(trainer, fit, training, &progress);
    training->logs.lr = (double)optimizer_learning_rate(model_optimizer(training->model));
    if (fit->validation)
        validate(trainer, fit, training);
    progress_clear(&progress);
    training->epochs_done++;
    training->steps_done = 0;
    keep_logs(&training->history, &training->logs);
    call_epoch_end(fit, training);
    training->history.logs[training->history.epochs - 1] = training->logs;
    CALL(fit, at_rest, training);
    if (fit->verbose)
        print_epoch(&progress, &training->logs);
    CALL_WATCHERS(epoch_end, training);
    span_end();
}

// `size_flag`: the flag that sets the batches' size.
static void check_steps(const char *what, int64_t steps, const Batches *batches,
                        const char *size_flag)
{
    if (steps >= 1)
        return;
    int workers = launcher_size();
    char *divided = workers > 1 ? format_text(", for %d workers", workers) : format_text("%s", "");
    die("fit: %s is %lld, but an epoch needs at least 1: %d images (--images) in batches of %d "
        "(%s) make %d of them%s; more images, smaller batches or fewer workers make more",
        what, (long long)steps, batches_dataset(batches)->count, batches_batch_size(batches),
        size_flag, batches_len(batches), divided);
}

static void check_validation(const Model *model, const Fit *fit)
{
    check_steps("validation_steps", fit->validation_steps, fit->validation, "--val-batch-size");
    model_check_dataset(model, batches_dataset(fit->validation));
}

static void check_fit(const Model *model, const Fit *fit)
{
    if (!model || !fit || !fit->train)
        die("fit: there is no %s (NULL)", !model ? "model"
                                          : !fit ? "Fit"
                                                 : "train, the training batches");
    if (fit->epochs < 0)
        die("fit: epochs is %d", fit->epochs);
    int64_t last = fit->steps_per_epoch - (fit->resume ? 0 : 1);
    if (fit->initial_epoch < 0 || fit->initial_step < 0 ||
        (fit->initial_step > 0 && fit->initial_step > last))
        die("fit: the training can't begin with epoch %d, step %lld: both count from 0, and an "
            "epoch has %lld steps",
            fit->initial_epoch, (long long)fit->initial_step, (long long)fit->steps_per_epoch);
    model_check_compiled(model, "fit");
}

static void begin_training(const Fit *fit, Training *training)
{
    const Resume *resume = fit->resume;
    for (int i = 0; resume && i < resume->history.epochs; i++)
        keep_logs(&training->history, &resume->history.logs[i]);
    training->stop = resume && resume->stop;
    CALL_WATCHERS(train_begin, training);
    CALL(fit, train_begin, training);
    if (resume && training->steps_done == 0)
        resume->apply(resume, training);
    fit_trace_weights("train_begin", training->model);
}

History fit_with(const Trainer *trainer, const Fit *fit)
{
    Model *model = trainer->model;
    check_fit(model, fit);
    fit_trace_begin(fit);
    check_steps("steps_per_epoch", fit->steps_per_epoch, fit->train, "--batch-size");
    model_check_dataset(model, batches_dataset(fit->train));
    if (fit->validation)
        check_validation(model, fit);
    Training training = {.model = model,
                         .epochs = fit->epochs,
                         .steps = fit->steps_per_epoch,
                         .batch_size = batches_requested_size(fit->train),
                         .verbose = fit->verbose,
                         .epoch = fit->initial_epoch,
                         .epochs_done = fit->initial_epoch,
                         .steps_done = fit->initial_step,
                         .train = fit->train,
                         .validation = fit->validation,
                         .callbacks = fit->callbacks};
    begin_training(fit, &training);
    while (training.epochs_done < fit->epochs && !training.stop)
        run_epoch(trainer, fit, &training);
    CALL(fit, train_end, &training);
    CALL_WATCHERS(train_end, &training);
    trace("fit_end", NUMBER("epochs", training.history.epochs));
    lives_until_exit(training.history.logs);
    return training.history;
}

Score evaluate_with(const Trainer *trainer, Batches *batches, int verbose)
{
    const Model *model = trainer->model;
    if (!model)
        die("evaluate: there is no model (NULL)");
    batches_need_one(batches, "evaluate");
    model_check_compiled(model, "evaluate");
    model_check_dataset(model, batches_dataset(batches));
    trace("evaluate", NUMBER("verbose", verbose), NUMBER("steps", batches_len(batches)));
    Metrics before = trainer->metrics(trainer->self); // a callback may evaluate within an epoch
    ProgressBar progress = progress_begin(batches_len(batches), verbose);
    Metrics metrics = run_test(trainer, batches, batches_len(batches), "evaluate");
    trainer->reset_metrics(trainer->self);
    model_write_metrics(trainer->model, &before);
    if (progress.bar) {
        progress_end(&progress);
        progress_metric("loss", metrics.loss / metrics.images);
        progress_metric("accuracy", metrics.correct / metrics.images);
        printf("\n");
    }
    Score score = {metrics.loss / metrics.images, metrics.correct / metrics.images};
    trace("evaluate_end", NUMBER("loss", score.loss), NUMBER("accuracy", score.accuracy));
    return score;
}

// ---- One model, by itself.

static void train_one(void *self, const Batch *batch)
{
    train_on_batch(self, batch);
}

static void test_one(void *self, const Batch *batch)
{
    test_on_batch(self, batch);
}

static Metrics metrics_of_one(void *self)
{
    return model_metrics(self);
}

static void reset_one(void *self)
{
    model_reset_metrics(self);
}

static Trainer trainer_of(Model *model)
{
    return (Trainer){.model = model,
                     .self = model,
                     .train_on_batch = train_one,
                     .test_on_batch = test_one,
                     .metrics = metrics_of_one,
                     .reset_metrics = reset_one};
}

History fit(Model *model, const Fit *fit)
{
    Trainer trainer = trainer_of(model);
    return fit_with(&trainer, fit);
}

Score evaluate(Model *model, Batches *batches, int verbose)
{
    Trainer trainer = trainer_of(model);
    return evaluate_with(&trainer, batches, verbose);
}
