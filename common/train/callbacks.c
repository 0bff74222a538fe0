// The kit's callbacks.

#include "train/callbacks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "train/tensorboard.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/format.h"
#include "observe/trace.h"

void callbacks_add(Callbacks *callbacks, Callback *callback)
{
    if (!callbacks || !callback)
        die("callbacks_add: there is no %s (NULL)", callbacks ? "callback" : "list");
    for (int i = 0; i < callbacks->count; i++)
        if (callbacks->items[i] == callback)
            die("callbacks_add: %s is in the list already", callback->name ? callback->name : "it");
    if (callbacks->count == MAX_CALLBACKS)
        die("callbacks_add: at most %d callbacks", MAX_CALLBACKS);
    callbacks->items[callbacks->count++] = callback;
    lives_until_exit(callback);
}

void callbacks_free(Callbacks *callbacks)
{
    if (!callbacks)
        return;
    for (int i = 0; i < callbacks->count; i++) {
        if (callbacks->items[i]->release)
            callbacks->items[i]->release(callbacks->items[i]);
        free(callbacks->items[i]);
    }
    callbacks->count = 0;
}

Callback *lambda_callback(Callback functions)
{
    Callback *callback = allocate(1, sizeof *callback);
    *callback = functions;
    return callback;
}

void trace_metrics(const char *event, const Callback *callback, const Training *training)
{
    const Logs *logs = &training->logs;
    const char *name = callback && callback->name ? callback->name : "";
    trace(event, NUMBER("epoch", training->epoch), TEXT("name", name), NUMBER("loss", logs->loss),
          NUMBER("accuracy", logs->accuracy), NUMBER("val_loss", logs->val_loss),
          NUMBER("val_accuracy", logs->val_accuracy), NUMBER("lr", logs->lr));
}

// Learning-rate schedule.

typedef struct {
    Callback callback;
    float (*schedule)(int epoch, float base_lr);
    float base_lr;
} RateSchedule;

static void schedule_epoch_begin(Callback *self, Training *training)
{
    const RateSchedule *s = (const RateSchedule *)self;
    optimizer_set_learning_rate(model_optimizer(training->model),
                                s->schedule(training->epoch, s->base_lr));
}

Callback *learning_rate_schedule(float (*schedule)(int epoch, float base_lr), float base_lr)
{
    if (!schedule)
        die("learning_rate_schedule: there is no schedule (NULL)");
    RateSchedule *s = allocate(1, sizeof *s);
    *s = (RateSchedule){
        .callback = {.name = "learning_rate_schedule", .epoch_begin = schedule_epoch_begin},
        .schedule = schedule,
        .base_lr = base_lr};
    return &s->callback;
}

// Throughput.

typedef struct {
    Callback callback;
    int images;
    double begin;
} Throughput;

static void throughput_epoch_begin(Callback *self, Training *training)
{
    (void)training;
    ((Throughput *)self)->begin = seconds_now();
}

static void throughput_epoch_end(Callback *self, Training *training)
{
    (void)training;
    const Throughput *t = (const Throughput *)self;
    printf("Images/sec: %.2f\n", t->images / (seconds_now() - t->begin));
}

Callback *print_throughput(int images)
{
    if (images < 0)
        die("%s: %d images", __func__, images);
    Throughput *t = allocate(1, sizeof *t);
    *t = (Throughput){.callback = {.name = "print_throughput",
                                   .epoch_begin = throughput_epoch_begin,
                                   .epoch_end = throughput_epoch_end},
                      .images = images};
    return &t->callback;
}

// Stop at accuracy.

typedef struct {
    Callback callback;
    float target, patience;
    int verbose;
    double epochs_above; // in a row
} Stop;

static void stop_train_begin(Callback *self, Training *training)
{
    (void)training;
    ((Stop *)self)->epochs_above = 0;
}

static void stop_epoch_end(Callback *self, Training *training)
{
    trace_metrics("figures_read", self, training);
    Stop *s = (Stop *)self;
    // In float, as the target is: 0.9 is not above 0.9f, which is a little less.
    bool above = (float)training->logs.val_accuracy > s->target;
    s->epochs_above = above ? s->epochs_above + 1 : 0;
    if (s->epochs_above >= (double)s->patience)
        training->stop = true;
}

static void stop_train_end(Callback *self, Training *training)
{
    const Stop *s = (const Stop *)self;
    if (s->verbose && s->epochs_above >= (double)s->patience)
        printf("Early stopping after epoch %d\n", training->epochs_done);
}

Callback *stop_at_accuracy(float target, float patience, int verbose)
{
    if (!(target >= 0 && target <= 1))
        die("%s: target is %g; 0 to 1", __func__, (double)target);
    if (!(patience > 0))
        die("%s: patience is %g; above 0", __func__, (double)patience);
    Stop *s = allocate(1, sizeof *s);
    *s = (Stop){.callback = {.name = "stop_at_accuracy",
                             .train_begin = stop_train_begin,
                             .epoch_end = stop_epoch_end,
                             .train_end = stop_train_end,
                             .kept = &s->epochs_above,
                             .kept_count = 1},
                .target = target,
                .patience = patience,
                .verbose = verbose};
    return &s->callback;
}

// Reduce on plateau.

#define MIN_DELTA 1e-4 // a smaller change of the loss is none

typedef struct {
    Callback callback;
    float factor, min_lr;
    int patience, verbose;
    double kept[2]; // by these names
} Plateau;

enum { BEST, WAITED }; // the lowest loss; epochs in a row without a lower one

static void plateau_train_begin(Callback *self, Training *training)
{
    (void)training;
    Plateau *p = (Plateau *)self;
    p->kept[BEST] = INFINITY;
    p->kept[WAITED] = 0;
}

static void plateau_reduce(Plateau *p, const Training *training)
{
    Optimizer *optimizer = model_optimizer(training->model);
    float lr = optimizer_learning_rate(optimizer);
    if (!(lr > p->min_lr))
        return;
    lr = fmaxf(lr * p->factor, p->min_lr);
    optimizer_set_learning_rate(optimizer, lr);
    p->kept[WAITED] = 0;
    if (p->verbose)
        printf("Learning rate reduced to %s after epoch %d\n", float_text(lr).text,
               training->epoch + 1);
}

static void plateau_epoch_end(Callback *self, Training *training)
{
    trace_metrics("figures_read", self, training);
    Plateau *p = (Plateau *)self;
    if (training->logs.val_images == 0)
        die("reduce_lr_on_plateau: there is no validation loss to go by: fit() was given "
            "no validation");
    if (training->logs.val_loss < p->kept[BEST] - MIN_DELTA) {
        p->kept[BEST] = training->logs.val_loss;
        p->kept[WAITED] = 0;
    } else if (++p->kept[WAITED] >= p->patience) {
        plateau_reduce(p, training);
    }
}

Callback *reduce_lr_on_plateau(float factor, int patience, float min_lr, int verbose)
{
    trace_call();
    if (!(factor > 0 && factor < 1))
        die("%s: factor is %g; above 0 and below 1", __func__, (double)factor);
    if (patience < 0)
        die("%s: patience is %d; at least 0", __func__, patience);
    if (!(min_lr >= 0))
        die("%s: min_lr is %g; at least 0", __func__, (double)min_lr);
    Plateau *p = allocate(1, sizeof *p);
    *p = (Plateau){.callback = {.name = "reduce_lr_on_plateau",
                                .train_begin = plateau_train_begin,
                                .epoch_end = plateau_epoch_end,
                                .kept = p->kept,
                                .kept_count = 2},
                   .factor = factor,
                   .min_lr = min_lr,
                   .patience = patience,
                   .verbose = verbose};
    return &p->callback;
}

// Total time.

typedef struct {
    Callback callback;
    double begin;
} TotalTime;

static void total_time_train_begin(Callback *self, Training *training)
{
    (void)training;
    ((TotalTime *)self)->begin = seconds_now();
}

static void total_time_epoch_end(Callback *self, Training *training)
{
    printf("Cumulative training time after epoch %d: %.2f\n", training->epoch + 1,
           seconds_now() - ((const TotalTime *)self)->begin);
}

static void total_time_train_end(Callback *self, Training *training)
{
    (void)training;
    printf("Cumulative training time: %.2f\n", seconds_now() - ((const TotalTime *)self)->begin);
}

Callback *print_total_time(void)
{
    TotalTime *t = allocate(1, sizeof *t);
    *t = (TotalTime){.callback = {.name = "print_total_time",
                                  .train_begin = total_time_train_begin,
                                  .epoch_end = total_time_epoch_end,
                                  .train_end = total_time_train_end}};
    return &t->callback;
}

// TensorBoard.

typedef struct {
    Callback callback;
    char *log_dir;   // owned
    EventFile *file; // NULL on all ranks but the root
    double begin;
} TensorBoard;

static void tensorboard_train_begin(Callback *self, Training *training)
{
    (void)training;
    TensorBoard *t = (TensorBoard *)self;
    if (launcher_rank() == 0)
        t->file = event_file_open(t->log_dir);
}

static void tensorboard_epoch_begin(Callback *self, Training *training)
{
    (void)training;
    ((TensorBoard *)self)->begin = seconds_now();
}

static void tensorboard_epoch_end(Callback *self, Training *training)
{
    trace_metrics("figures_read", self, training);
    TensorBoard *t = (TensorBoard *)self;
    if (!t->file)
        return;
    const Logs *logs = &training->logs;
    struct {
        const char *tag;
        double value;
    } scalars[] = {
        {"loss", logs->loss},
        {"accuracy", logs->accuracy},
        {"lr", logs->lr},
        {"images/s", logs->images / (seconds_now() - t->begin)},
        {"val_loss", logs->val_loss},
        {"val_accuracy", logs->val_accuracy},
    };
    int count = logs->val_images > 0 ? 6 : 4;
    for (int i = 0; i < count; i++)
        event_file_scalar(t->file, scalars[i].tag, training->epoch, (float)scalars[i].value);
}

static void tensorboard_train_end(Callback *self, Training *training)
{
    (void)training;
    TensorBoard *t = (TensorBoard *)self;
    if (t->file)
        event_file_close(t->file);
    t->file = NULL;
}

static void tensorboard_release(Callback *self)
{
    free(((TensorBoard *)self)->log_dir);
}

Callback *tensorboard(const char *log_dir)
{
    if (!log_dir)
        die("tensorboard: there is no folder (NULL)");
    TensorBoard *t = allocate(1, sizeof *t);
    *t = (TensorBoard){.callback = {.name = "tensorboard",
                                    .train_begin = tensorboard_train_begin,
                                    .epoch_begin = tensorboard_epoch_begin,
                                    .epoch_end = tensorboard_epoch_end,
                                    .train_end = tensorboard_train_end,
                                    .release = tensorboard_release},
                       .log_dir = format_text("%s", log_dir)};
    return &t->callback;
}
