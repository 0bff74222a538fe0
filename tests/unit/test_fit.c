// What the training loop and its callbacks promise: order, schedule, when training stops, how many
// steps run, and what is printed.

#include <math.h>
#include <string.h>
#include "child.h"
#include "hvdlab.h"
#include "base/memory.h"
#include "base/format.h"

static Args args_of(int images)
{
    return (Args){.data = DATA_SYNTHETIC, .images = images};
}

// A small data set and a network that trains in no time. The batches read the data set where it is.
typedef struct {
    Dataset dataset;
    Batches *batches;
    Model *model;
} Small;

static void small_begin(Small *s, int images, int batch_size)
{
    Args args = args_of(images);
    Tensor image = input(28, 28, 1);
    Tensor x = softmax(dense(flatten(image), 10));
    s->dataset = load_data(&args, TRAIN);
    s->batches = plain_batches(&s->dataset, image_statistics(&s->dataset), batch_size);
    s->model = compile(model(image, x), CATEGORICAL_CROSSENTROPY, sgd(0.01f));
}

static void small_end(Small *s)
{
    model_free(s->model);
    batches_free(s->batches);
    dataset_free(&s->dataset);
}

// A callback that writes down what it sees.
typedef struct {
    Callback callback;
    char letter;
} Recorder;

static char record[256];

static void note(Callback *self, char event)
{
    size_t length = strlen(record);
    ck_assert_uint_lt(length + 2, sizeof record);
    record[length] = ((Recorder *)self)->letter;
    record[length + 1] = event;
}

static void note_train_begin(Callback *self, Training *t)
{
    (void)t;
    note(self, '<');
}
static void note_epoch_begin(Callback *self, Training *t)
{
    (void)t;
    note(self, '(');
}
static void note_batch_begin(Callback *self, Training *t)
{
    (void)t;
    note(self, '[');
}
static void note_batch_end(Callback *self, Training *t)
{
    (void)t;
    note(self, ']');
}
static void note_epoch_end(Callback *self, Training *t)
{
    (void)t;
    note(self, ')');
}
static void note_train_end(Callback *self, Training *t)
{
    (void)t;
    note(self, '>');
}

static void note_release(Callback *self)
{
    note(self, '.');
}

static Callback *recorder(char letter)
{
    Recorder *r = allocate(1, sizeof *r);
    *r = (Recorder){{"recorder", note_train_begin, note_epoch_begin, note_batch_begin,
                     note_batch_end, note_epoch_end, note_train_end, note_release, NULL, NULL, 0,
                     NULL},
                    letter};
    return &r->callback;
}

START_TEST(callbacks_run_in_the_order_in_which_they_were_added)
{
    Small s;
    small_begin(&s, 64, 32);
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, recorder('a'));
    callbacks_add(&callbacks, recorder('b'));
    History history =
        fit(s.model,
            &(Fit){.train = s.batches, .epochs = 1, .steps_per_epoch = 2, .callbacks = &callbacks});
    ck_assert_str_eq(record, "a<b<a(b(a[b[a]b]a[b[a]b]a)b)a>b>");
    callbacks_free(&callbacks);
    ck_assert_str_eq(record, "a<b<a(b(a[b[a]b]a[b[a]b]a)b)a>b>a.b."); // each is released, once
    callbacks_free(&callbacks);
    ck_assert_str_eq(record, "a<b<a(b(a[b[a]b]a[b[a]b]a)b)a>b>a.b.");
    free(history.logs);
    small_end(&s);
}
END_TEST

START_TEST(an_epoch_runs_the_steps_that_it_is_asked_for)
{
    Small s;
    small_begin(&s, 100, 32); // permutations of 4 batches: 32, 32, 32, 4
    const struct {
        int steps, images;
    } epochs[] = {{1, 32}, {3, 96}, {4, 100}, {5, 132}, {8, 200}};
    for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++) {
        History history = fit(s.model, &(Fit){.train = s.batches,
                                              .epochs = 2,
                                              .steps_per_epoch = epochs[i].steps,
                                              .validation = s.batches,
                                              .validation_steps = epochs[i].steps});
        ck_assert_int_eq(history.epochs, 2);
        ck_assert_double_eq(history.logs[1].images, epochs[i].images);
        ck_assert_double_eq(history.logs[1].val_images, epochs[i].images);
        free(history.logs);
    }
    small_end(&s);
}
END_TEST

START_TEST(a_training_begins_where_it_is_told_to)
{
    Small s;
    small_begin(&s, 96, 32);
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, recorder('a'));
    Fit plan = {.train = s.batches,
                .epochs = 3,
                .steps_per_epoch = 3,
                .initial_epoch = 1,
                .initial_step = 2,
                .callbacks = &callbacks};
    History history = fit(s.model, &plan);
    ck_assert_int_eq(history.epochs, 2);
    ck_assert_double_eq(history.logs[0].images, 32);
    ck_assert_double_eq(history.logs[1].images, 96);
    ck_assert_str_eq(record, "a<a(a[a]a)a(a[a]a[a]a[a]a)a>");
    free(history.logs);
    plan.initial_epoch = 3;
    plan.initial_step = 0;
    history = fit(s.model, &plan);
    ck_assert_int_eq(history.epochs, 0);
    ck_assert_int_eq(optimizer_iterations(model_optimizer(s.model)), 4);
    callbacks_free(&callbacks);
    small_end(&s);
}
END_TEST

START_TEST(without_validation_there_are_no_validation_figures)
{
    Small s;
    small_begin(&s, 64, 32);
    History history = fit(s.model, &(Fit){.train = s.batches, .epochs = 1, .steps_per_epoch = 2});
    ck_assert_double_eq(history.logs[0].val_images, 0);
    free(history.logs);
    small_end(&s);
}
END_TEST

START_TEST(evaluation_sees_each_image_once)
{
    Small s;
    small_begin(&s, 100, 32);
    Score score = evaluate(s.model, s.batches, 0);
    // The same by hand, over batches of another size: a mean over images does not depend on it.
    Batches *others = plain_batches(&s.dataset, image_statistics(&s.dataset), 7);
    Score again = evaluate(s.model, others, 0);
    ck_assert_double_eq_tol(score.loss, again.loss, 1e-5);
    ck_assert_double_eq_tol(score.accuracy, again.accuracy, 1e-12);
    ck_assert_double_eq_tol(score.accuracy * 100, (int)(score.accuracy * 100 + 0.5), 1e-9);
    batches_free(others);
    small_end(&s);
}
END_TEST

START_TEST(an_evaluation_leaves_the_metrics_of_the_epoch)
{
    Small s;
    small_begin(&s, 64, 16);
    batches_begin(s.batches, 4);
    Batch batch = batches_next(s.batches);
    train_on_batch(s.model, &batch);
    Metrics before = model_metrics(s.model);
    evaluate(s.model, s.batches, 0);
    Metrics after = model_metrics(s.model);
    ck_assert_mem_eq(&after, &before, sizeof before);
    ck_assert_double_eq(after.images, 16);
    small_end(&s);
}
END_TEST

static float halving(int epoch, float base_lr)
{
    return base_lr / (float)(1 << epoch);
}

START_TEST(the_schedule_sets_the_learning_rate_of_each_epoch)
{
    Small s;
    small_begin(&s, 64, 32);
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, learning_rate_schedule(halving, 0.8f));
    History history =
        fit(s.model,
            &(Fit){.train = s.batches, .epochs = 3, .steps_per_epoch = 1, .callbacks = &callbacks});
    for (int epoch = 0; epoch < 3; epoch++)
        ck_assert_double_eq(history.logs[epoch].lr, (double)halving(epoch, 0.8f));
    ck_assert_float_eq(optimizer_learning_rate(model_optimizer(s.model)), 0.2f);
    callbacks_free(&callbacks);
    free(history.logs);
    small_end(&s);
}
END_TEST

// The stop rule, on accuracies that this test makes up.
typedef struct {
    Callback callback;
    const double *val_accuracy;
} MadeUp;

static void make_up(Callback *self, Training *training)
{
    training->logs.val_accuracy = ((MadeUp *)self)->val_accuracy[training->epoch];
}

static const struct {
    double val_accuracy[8];
    float target, patience;
    int epochs; // that should run, of 8
} stops[] = {
    {{.9, .9, .9, .9, .9, .9, .9, .9}, .85f, 2, 2},
    {{.8, .9, .8, .9, .9, .9, .9, .9}, .85f, 2, 5},    // in a row
    {{.9, .9, .9, .9, .9, .9, .9, .9}, .85f, 1, 1},    // also after the first epoch
    {{.9, .9, .9, .9, .9, .9, .9, .9}, .85f, 2.5f, 3}, // 2.5 means 3
    {{.9, .9, .9, .9, .9, .9, .9, .9}, .85f, .5f, 1},
    {{.5, .5, .5, .5, .5, .5, .5, .5}, .5f, 1, 8}, // above, not at
    {{.9, .9, .9, .9, .9, .9, .9, .9}, .9f, 1, 8},
    {{.95, .95, .95, .95, .95, .95, .95, .95}, .95f, 1, 8},
    {{1, 1, 1, 1, 1, 1, 1, 1}, 1, 1, 8}, // 1 never stops
    {{.8, .8, .8, .8, .8, .8, .8, .9}, .85f, 2, 8},
};

START_TEST(training_stops_after_patience_epochs_above_the_target)
{
    Small s;
    small_begin(&s, 64, 32);
    MadeUp *accuracy = allocate(1, sizeof *accuracy);
    *accuracy = (MadeUp){{.epoch_end = make_up}, stops[_i].val_accuracy};
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, &accuracy->callback);
    callbacks_add(&callbacks, stop_at_accuracy(stops[_i].target, stops[_i].patience, 0));
    History history =
        fit(s.model,
            &(Fit){.train = s.batches, .epochs = 8, .steps_per_epoch = 1, .callbacks = &callbacks});
    ck_assert_int_eq(history.epochs, stops[_i].epochs);
    callbacks_free(&callbacks);
    free(history.logs);
    small_end(&s);
}
END_TEST

// Epochs above the target in one training count for nothing in the next.
START_TEST(each_training_counts_its_own_epochs_above_the_target)
{
    static const double val_accuracy[2][4] = {{.8, .9}, {.9, .8, .9, .9}};
    Small s;
    small_begin(&s, 64, 32);
    MadeUp *accuracy = allocate(1, sizeof *accuracy);
    *accuracy = (MadeUp){.callback = {.epoch_end = make_up}};
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, &accuracy->callback);
    callbacks_add(&callbacks, stop_at_accuracy(.85f, 2, 0));
    const int epochs[] = {2, 4}; // the second would end after its first one
    for (int i = 0; i < 2; i++) {
        accuracy->val_accuracy = val_accuracy[i];
        History history = fit(s.model, &(Fit){.train = s.batches,
                                              .epochs = epochs[i],
                                              .steps_per_epoch = 1,
                                              .callbacks = &callbacks});
        ck_assert_int_eq(history.epochs, epochs[i]);
        free(history.logs);
    }
    callbacks_free(&callbacks);
    small_end(&s);
}
END_TEST

// Reduce on plateau. The rates that Keras's ReduceLROnPlateau (Keras 3.6, factor 0.5, the
// defaults else) leaves in the optimizer after each epoch, from 0.8, on losses that are made up.
typedef struct {
    Callback callback;
    const double *val_loss;
    float *rates; // after the epochs
} MadeUpLoss;

static void make_up_loss(Callback *self, Training *training)
{
    training->logs.val_loss = ((MadeUpLoss *)self)->val_loss[training->epoch];
}

static void note_rate(Callback *self, Training *training)
{
    ((MadeUpLoss *)self)->rates[training->epoch] =
        optimizer_learning_rate(model_optimizer(training->model));
}

static const struct {
    double val_loss[8];
    int patience;
    float min_lr;
    float rates[8];
} plateaus[] = {
    {{8, 7, 6, 5, 4, 3, 2, 1}, 1, 0, {.8f, .8f, .8f, .8f, .8f, .8f, .8f, .8f}},
    {{5, 5, 5, 5, 5, 5, 5, 5}, 2, 0, {.8f, .8f, .4f, .4f, .2f, .2f, .1f, .1f}},
    {{5, 6, 5, 4, 5, 4, 4, 4}, 2, 0, {.8f, .8f, .4f, .4f, .4f, .2f, .2f, .1f}},
    {{5, 6, 4, 6, 3, 6, 2, 6}, 2, 0, {.8f, .8f, .8f, .8f, .8f, .8f, .8f, .8f}},     // in a row
    {{5, 4, 6, 5, 4.5, 4.2, 3, 3}, 3, 0, {.8f, .8f, .8f, .8f, .4f, .4f, .4f, .4f}}, // than the best
    // Less than 0.0001 below the best is no improvement, and no new best.
    {{5, 4.99995, 4.9999, 4.99985, 4.9997, 5, 5, 5},
     3,
     0,
     {.8f, .8f, .8f, .8f, .8f, .8f, .8f, .4f}},
    {{5, 4.99995, 4.99992, 5, 5, 5, 5, 5}, 3, 0, {.8f, .8f, .8f, .4f, .4f, .4f, .2f, .2f}},
    // 0 is 1.
    {{5, 5, 4, 4, 4, 3, 3, 3}, 0, 0, {.8f, .4f, .4f, .2f, .1f, .1f, .05f, .025f}},
    {{5, 5, 4, 4, 4, 3, 3, 3}, 1, 0, {.8f, .4f, .4f, .2f, .1f, .1f, .05f, .025f}},
    // Not below the floor; where the rate is there already it stays.
    {{5, 5, 5, 5, 5, 5, 5, 5}, 1, .15f, {.8f, .4f, .2f, .15f, .15f, .15f, .15f, .15f}},
    {{5, 5, 5, 5, 5, 5, 5, 5}, 1, 2, {.8f, .8f, .8f, .8f, .8f, .8f, .8f, .8f}},
    // What is no number is no improvement.
    {{5, NAN, NAN, 4, NAN, 5, NAN, 3}, 2, 0, {.8f, .8f, .4f, .4f, .4f, .2f, .2f, .2f}},
};

// Fills `rates` by what the callback leaves.
static void reduce(Small *s, Callbacks *callbacks, const double *val_loss, int epochs, float *rates)
{
    ((MadeUpLoss *)callbacks->items[0])->val_loss = val_loss;
    ((MadeUpLoss *)callbacks->items[2])->rates = rates;
    History history = fit(s->model, &(Fit){.train = s->batches,
                                           .epochs = epochs,
                                           .steps_per_epoch = 1,
                                           .validation = s->batches,
                                           .validation_steps = 1,
                                           .callbacks = callbacks});
    free(history.logs);
}

static void plateau_begin(Small *s, Callbacks *callbacks, int patience, float min_lr, int verbose)
{
    small_begin(s, 64, 32);
    optimizer_set_learning_rate(model_optimizer(s->model), .8f);
    MadeUpLoss *loss = allocate(1, sizeof *loss), *rates = allocate(1, sizeof *rates);
    *loss = (MadeUpLoss){.callback = {.epoch_end = make_up_loss}};
    *rates = (MadeUpLoss){.callback = {.epoch_end = note_rate}};
    callbacks_add(callbacks, &loss->callback);
    callbacks_add(callbacks, reduce_lr_on_plateau(.5f, patience, min_lr, verbose));
    callbacks_add(callbacks, &rates->callback);
}

START_TEST(the_learning_rate_is_reduced_on_a_plateau)
{
    Small s;
    Callbacks callbacks = {0};
    plateau_begin(&s, &callbacks, plateaus[_i].patience, plateaus[_i].min_lr, 0);
    float rates[8];
    reduce(&s, &callbacks, plateaus[_i].val_loss, 8, rates);
    for (int epoch = 0; epoch < 8; epoch++)
        ck_assert_msg(rates[epoch] == plateaus[_i].rates[epoch], "epoch %d: %g, not %g", epoch,
                      (double)rates[epoch], (double)plateaus[_i].rates[epoch]);
    callbacks_free(&callbacks);
    small_end(&s);
}
END_TEST

// Neither the best loss of one training nor the epochs that it waited count in the next.
START_TEST(each_training_has_its_own_plateaus)
{
    static const double first[] = {5, 1, 2}, second[] = {4, 3, 3, 3};
    const float expected[] = {.8f, .8f, .8f, .4f};
    Small s;
    Callbacks callbacks = {0};
    plateau_begin(&s, &callbacks, 2, 0, 0);
    float rates[4];
    reduce(&s, &callbacks, first, 3, rates);
    reduce(&s, &callbacks, second, 4, rates);
    for (int epoch = 0; epoch < 4; epoch++)
        ck_assert_float_eq(rates[epoch], expected[epoch]);
    callbacks_free(&callbacks);
    small_end(&s);
}
END_TEST

static void reduce_aloud(const void *verbose)
{
    static const double losses[] = {5, 5, 5};
    Small s;
    Callbacks callbacks = {0};
    plateau_begin(&s, &callbacks, 1, .3f, *(const int *)verbose);
    float rates[3];
    reduce(&s, &callbacks, losses, 3, rates);
    callbacks_free(&callbacks);
    small_end(&s);
}

START_TEST(a_reduction_is_said_where_it_is_to_be)
{
    int verbose = 1, silent = 0;
    ck_assert_str_eq(run_in_child(reduce_aloud, &verbose).out,
                     "Learning rate reduced to 0.4 after epoch 2\n"
                     "Learning rate reduced to 0.3 after epoch 3\n");
    ck_assert_str_eq(run_in_child(reduce_aloud, &silent).out, "");
}
END_TEST

static const struct {
    float factor;
    int patience;
    float min_lr;
    const char *said;
} no_plateaus[] = {
    {1, 1, 0, "factor is 1; above 0 and below 1"},
    {0, 1, 0, "factor is 0; above 0 and below 1"},
    {-1, 1, 0, "factor is -1; above 0 and below 1"},
    {NAN, 1, 0, "factor is nan; above 0 and below 1"},
    {.5f, -1, 0, "patience is -1; at least 0"},
    {.5f, 1, -1, "min_lr is -1; at least 0"},
    {.5f, 1, NAN, "min_lr is nan; at least 0"},
    {.5f, 1, 0, "there is no validation loss to go by: fit() was given no validation"},
};

static void reduce_without_validation(const void *place)
{
    int i = *(const int *)place;
    Small s;
    small_begin(&s, 64, 32);
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, reduce_lr_on_plateau(no_plateaus[i].factor, no_plateaus[i].patience,
                                                   no_plateaus[i].min_lr, 0));
    fit(s.model,
        &(Fit){.train = s.batches, .epochs = 1, .steps_per_epoch = 1, .callbacks = &callbacks});
}

START_TEST(what_is_no_plateau_is_refused)
{
    Outcome outcome = run_in_child(reduce_without_validation, &_i);
    ck_assert_int_eq(outcome.status, 2);
    char *line = format_text("test_fit: reduce_lr_on_plateau: %s\n", no_plateaus[_i].said);
    ck_assert_str_eq(outcome.err, line);
    free(line);
}
END_TEST

static void zero_steps(const void *unused)
{
    (void)unused;
    Small s;
    small_begin(&s, 64, 32);
    fit(s.model, &(Fit){.train = s.batches, .epochs = 1, .steps_per_epoch = 0});
}

START_TEST(an_epoch_of_no_steps_is_refused)
{
    Outcome outcome = run_in_child(zero_steps, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_str_eq(
        outcome.err,
        "test_fit: fit: steps_per_epoch is 0, but an epoch needs at least 1: 64 images "
        "(--images) in batches of 32 (--batch-size) make 2 of them; more images, "
        "smaller batches or fewer workers make more\n");
    setenv("OMPI_COMM_WORLD_SIZE", "5", 1);
    outcome = run_in_child(zero_steps, NULL);
    ck_assert_ptr_nonnull(strstr(outcome.err, "make 2 of them, for 5 workers; more images"));
}
END_TEST

// ---- Losses that are no numbers.

// A training in which something goes wrong in one step.
typedef struct {
    int epoch, step;    // in which it does, from 0
    float weight;       // that the first variable is overwritten with before the step
    int64_t validation; // steps of it
    int64_t begin;      // the first step of the training
    bool allowed;
    const char *rank, *said; // of a job; and what is said, NULL: nothing
} Trouble;

typedef struct {
    Callback callback;
    const Trouble *trouble;
} Troublemaker;

static void make_trouble(Callback *self, Training *training)
{
    const Trouble *trouble = ((Troublemaker *)self)->trouble;
    if (training->epoch != trouble->epoch || training->step != trouble->step)
        return;
    float *values = allocate(28 * 28 * 10, sizeof *values);
    for (int i = 0; i < 28 * 28 * 10; i++)
        values[i] = trouble->weight;
    model_write_variable(training->model, 0, values);
    free(values);
}

static void train_with_trouble(const void *trouble)
{
    Small s;
    small_begin(&s, 64, 8);
    Troublemaker *maker = allocate(1, sizeof *maker);
    *maker = (Troublemaker){{.name = "trouble", .batch_begin = make_trouble}, trouble};
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, &maker->callback);
    History history =
        fit(s.model, &(Fit){.train = s.batches,
                            .epochs = 3,
                            .steps_per_epoch = 8,
                            .initial_step = maker->trouble->begin,
                            .validation = maker->trouble->validation ? s.batches : NULL,
                            .validation_steps = maker->trouble->validation,
                            .callbacks = &callbacks,
                            .allow_nan = maker->trouble->allowed});
    ck_assert_int_eq(history.epochs, 3);
    ck_assert(isnan(history.logs[2].loss) || !maker->trouble->allowed);
    free(history.logs);
    callbacks_free(&callbacks);
    small_end(&s);
}

static const Trouble troubles[] = {
    {.epoch = 0, .step = 0, .weight = NAN, .said = "the loss is nan in epoch 1, step 1, at"},
    {.epoch = 2, .step = 7, .weight = NAN, .said = "the loss is nan in epoch 3, step 8, at"},
    {.epoch = 1, .step = 2, .weight = INFINITY, .said = "the loss is nan in epoch 2, step 3, at"},
    // Finite still, but the update is not: what comes next sees it.
    {.epoch = 1, .step = 7, .weight = 3e38f, .said = "in epoch 2, step 8, at learning rate 0.01: "},
    {.epoch = 1, .step = 3, .weight = NAN, .rank = "0", .said = "rank 0: the loss is nan"},
    {.epoch = 1, .step = 3, .weight = NAN, .rank = "2", .said = "rank 2: the loss is nan"},
    {.epoch = 0, .step = 5, .weight = NAN, .begin = 4, .said = "in epoch 1, step 6, at"},
    {.epoch = 3, .step = 0, .weight = NAN}, // never
    {.epoch = 1, .step = 3, .weight = NAN, .allowed = true},
    {.epoch = 1, .step = 3, .weight = NAN, .allowed = true, .validation = 1},
};

START_TEST(a_loss_that_is_no_number_ends_the_training)
{
    const Trouble *trouble = &troubles[_i];
    if (trouble->rank) {
        setenv("OMPI_COMM_WORLD_RANK", trouble->rank, 1);
        setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    }
    Outcome outcome = run_in_child(train_with_trouble, trouble);
    ck_assert_msg(outcome.status == (trouble->said ? 1 : 0), "%d: %s", outcome.status, outcome.err);
    if (trouble->said) {
        ck_assert_msg(strstr(outcome.err, trouble->said), "%s", outcome.err);
        ck_assert_str_eq(strchr(outcome.err, '\n'), "\n"); // one line
    } else {
        ck_assert_str_eq(outcome.err, "");
    }
}
END_TEST

// Only the validation sees the last update of the last epoch.
static void train_and_blow_up(const void *unused)
{
    (void)unused;
    Small s;
    small_begin(&s, 64, 32);
    optimizer_set_learning_rate(model_optimizer(s.model), 3e38f);
    fit(s.model, &(Fit){.train = s.batches,
                        .epochs = 1,
                        .steps_per_epoch = 1,
                        .validation = s.batches,
                        .validation_steps = 2});
}

START_TEST(validation_looks_too)
{
    Outcome outcome = run_in_child(train_and_blow_up, NULL);
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_ptr_nonnull(strstr(outcome.err, "the validation loss is nan in epoch 1, at learning "
                                              "rate 3e+38: "));
}
END_TEST

static void silent_training(const void *verbose)
{
    Small s;
    small_begin(&s, 64, 32);
    History history = fit(s.model, &(Fit){.train = s.batches,
                                          .epochs = 1,
                                          .steps_per_epoch = 2,
                                          .validation = s.batches,
                                          .validation_steps = 1,
                                          .verbose = *(const int *)verbose});
    evaluate(s.model, s.batches, *(const int *)verbose);
    free(history.logs);
    small_end(&s);
}

START_TEST(verbose_0_prints_nothing)
{
    int verbose = 0;
    Outcome outcome = run_in_child(silent_training, &verbose);
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_str_eq(outcome.out, "");
}
END_TEST

START_TEST(verbose_1_prints_a_line_per_epoch_where_there_is_no_terminal)
{
    int verbose = 1;
    Outcome outcome = run_in_child(silent_training, &verbose);
    double seconds, loss, accuracy, val_loss, val_accuracy, lr;
    int end = 0;
    sscanf(outcome.out,
           "Epoch 1/1\n2/2 - %lfs - loss: %lf - accuracy: %lf - val_loss: %lf - val_accuracy: %lf "
           "- lr: %lf%n",
           &seconds, &loss, &accuracy, &val_loss, &val_accuracy, &lr, &end);
    ck_assert_msg(end > 0, "%s", outcome.out);
    ck_assert_str_eq(outcome.out + end, "\n");
}
END_TEST

static void training_with_bar(const void *verbose)
{
    settings()->progress = PROGRESS_BAR;
    silent_training(verbose);
}

START_TEST(a_bar_ends_in_the_same_figures)
{
    int verbose = 1;
    Outcome outcome = run_in_child(training_with_bar, &verbose);
    ck_assert_ptr_nonnull(strstr(outcome.out, "\r2/2 [==============================] - "));
    ck_assert_ptr_nonnull(strstr(outcome.out, "- val_loss: "));
    ck_assert_ptr_nonnull(strstr(outcome.out, "ETA: "));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fit");
    TCase *loop = tcase_create("loop"), *output = tcase_create("output");
    tcase_add_test(loop, callbacks_run_in_the_order_in_which_they_were_added);
    tcase_add_test(loop, an_epoch_runs_the_steps_that_it_is_asked_for);
    tcase_add_test(loop, a_training_begins_where_it_is_told_to);
    tcase_add_test(loop, without_validation_there_are_no_validation_figures);
    tcase_add_test(loop, evaluation_sees_each_image_once);
    tcase_add_test(loop, an_evaluation_leaves_the_metrics_of_the_epoch);
    tcase_add_test(loop, the_schedule_sets_the_learning_rate_of_each_epoch);
    tcase_add_loop_test(loop, training_stops_after_patience_epochs_above_the_target, 0,
                        sizeof stops / sizeof *stops);
    tcase_add_test(loop, each_training_counts_its_own_epochs_above_the_target);
    tcase_add_loop_test(loop, the_learning_rate_is_reduced_on_a_plateau, 0,
                        sizeof plateaus / sizeof *plateaus);
    tcase_add_test(loop, each_training_has_its_own_plateaus);
    tcase_add_test(loop, a_reduction_is_said_where_it_is_to_be);
    tcase_add_loop_test(loop, what_is_no_plateau_is_refused, 0,
                        sizeof no_plateaus / sizeof *no_plateaus);
    tcase_add_test(loop, an_epoch_of_no_steps_is_refused);
    tcase_add_loop_test(loop, a_loss_that_is_no_number_ends_the_training, 0,
                        sizeof troubles / sizeof *troubles);
    tcase_add_test(loop, validation_looks_too);
    tcase_add_test(output, verbose_0_prints_nothing);
    tcase_add_test(output, verbose_1_prints_a_line_per_epoch_where_there_is_no_terminal);
    tcase_add_test(output, a_bar_ends_in_the_same_figures);
    suite_add_tcase(suite, loop);
    suite_add_tcase(suite, output);
    return run_suite(suite);
}
