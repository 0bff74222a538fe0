// What replicas on several devices promise: they compute what one device makes of the whole batch,
// whatever the remainder, and stay equal to each other; one device changes nothing; evaluation
// sees each image once; what callbacks change reaches all. (Mistakes: test_misuse_devices.c.)
//
// On the CPU, and with HVDLAB_TEST_DEVICE=gpu on GPUs, which are simulated. Each run is a process
// of its own, since devices are never given back.

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include "child.h"
#include "hvdlab.h"
#include "models/models.h"
#include "base/error.h"
#include "base/memory.h"
#include "scratch.h"

enum { SIZE = 8, PIXELS = SIZE * SIZE, MAX_IMAGES = 64, CLASSES = 10, MAX_VALUES = 1 << 16 };

typedef enum { MLP, CNN, NORM, DROPOUT } Network;

// A training.
typedef struct {
    Network network;
    int devices; // 0: fit() on one
    int images, batch_size, epochs;
    bool adam, scheduled, restored;
    int list[4], listed; // devices that are chosen
} Case;

// What it comes to.
typedef struct {
    float values[MAX_VALUES]; // all variables, one after another
    size_t count;
    bool equal; // in all replicas
    double loss, accuracy, val_loss, val_accuracy;
    Score score;
    int used[4]; // devices
} Result;

static Case now; // of this process

static Dataset random_dataset(int count)
{
    static uint8_t images[MAX_IMAGES * PIXELS], labels[MAX_IMAGES];
    Rng rng = rng_stream_of(0, RNG_SYNTHETIC_DATA, 0);
    for (int i = 0; i < count * PIXELS; i++)
        images[i] = (uint8_t)rng_below(&rng, 256);
    for (int i = 0; i < count; i++)
        labels[i] = (uint8_t)rng_below(&rng, CLASSES);
    return (Dataset){.images = images,
                     .labels = labels,
                     .count = count,
                     .height = SIZE,
                     .width = SIZE,
                     .channels = 1,
                     .classes = CLASSES};
}

static Model *dropping(void)
{
    Tensor image = input(SIZE, SIZE, 1);
    Tensor x = dropout(relu(dense(flatten(image), 24)), 0.5f);
    return model(image, softmax(dense(x, CLASSES)));
}

static Model *normalizing(void)
{
    Tensor image = input(SIZE, SIZE, 1);
    Tensor x = relu(batch_norm(conv2d(image, 8, 3)));
    return model(image, softmax(dense(flatten(max_pool(x, 2)), CLASSES)));
}

static Model *network(void)
{
    ModelShape small = {SIZE, SIZE, 1, {24, 16, CLASSES}, false};
    ModelShape convolutions = {SIZE, SIZE, 1, {8, 8, 16, CLASSES}, false};
    switch (now.network) {
    case MLP:
        return mlp(small);
    case CNN:
        return cifar_cnn(convolutions);
    case NORM:
        return normalizing();
    case DROPOUT:
        return dropping();
    }
    return NULL;
}

static Optimizer *optimizer(void)
{
    return now.adam ? adam(0.001f) : sgd_momentum(0.05f, 0.9f, false);
}

static float schedule(int epoch, float rate)
{
    return epoch == 0 ? rate : rate / 4;
}

// ---- Runs, each in a process.

static void setup_process(void)
{
    char devices[16];
    snprintf(devices, sizeof devices, "%d", now.devices ? now.devices : 1);
    setenv("HVDLAB_DEVICES", devices, 1);
    setenv("EMULATED_DEVICES", devices, 1);
    const char *device = getenv("HVDLAB_TEST_DEVICE");
    settings()->device = device && strcmp(device, "gpu") == 0 ? DEVICE_GPU : DEVICE_CPU;
    settings()->precision = PRECISION_FP32;
    settings()->deterministic = true;
    set_seed(7);
}

static size_t read_variables(const Model *m, float *to)
{
    size_t count = 0;
    for (int i = 0; i < model_variable_count(m); i++) {
        model_read_variable(m, i, to + count);
        count += variable_size(model_variable(m, i));
        CHECK(count <= MAX_VALUES);
    }
    return count;
}

static void keep_variables(const Model *m, Result *result)
{
    result->count = read_variables(m, result->values);
    result->equal = true;
}

static void compare_replicas(const Mirrored *m, Result *result)
{
    float *own = allocate(MAX_VALUES, sizeof *own);
    for (int i = 0; i < mirrored_devices(m); i++) {
        size_t count = read_variables(mirrored_model(m, i), own);
        result->equal = result->equal && memcmp(own, result->values, count * sizeof *own) == 0;
    }
    free(own);
}

static void note_device(Replica *replica, void *argument)
{
    Result *result = argument;
    result->used[replica->index] = device_index();
}

static void keep_figures(const History *history, Result *result)
{
    const Logs *last = &history->logs[history->epochs - 1];
    result->loss = last->loss;
    result->accuracy = last->accuracy;
    result->val_loss = last->val_loss;
    result->val_accuracy = last->val_accuracy;
}

static void train(const void *argument)
{
    Result *result = (Result *)(uintptr_t)argument;
    setup_process();
    Dataset data = random_dataset(now.images);
    Batches *batches = plain_batches(&data, image_statistics(&data), now.batch_size);
    Callbacks callbacks = {0};
    if (now.scheduled)
        callbacks_add(&callbacks, learning_rate_schedule(schedule, 0.05f));
    Fit plan = {.train = batches,
                .epochs = now.epochs,
                .steps_per_epoch = batches_len(batches),
                .validation = batches,
                .validation_steps = batches_len(batches),
                .callbacks = &callbacks};
    if (now.devices == 0) {
        Model *m = compile(network(), CATEGORICAL_CROSSENTROPY, optimizer());
        History history = fit(m, &plan);
        keep_figures(&history, result);
        result->score = evaluate(m, batches, 0);
        keep_variables(m, result);
        return;
    }
    Mirrored *m = mirrored(network, CATEGORICAL_CROSSENTROPY, optimizer,
                           now.listed ? now.list : NULL, now.listed);
    History history = fit_mirrored(m, &plan);
    keep_figures(&history, result);
    result->score = evaluate_mirrored(m, batches, 0);
    keep_variables(mirrored_model(m, 0), result);
    compare_replicas(m, result);
    on_each_device(m, note_device, result);
    mirrored_free(m);
}

static Result *result_of(Case given)
{
    Result *result =
        mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(result, MAP_FAILED);
    now = given;
    Outcome outcome = run_in_child(train, result);
    ck_assert_msg(outcome.status == 0, "status %d: %s", outcome.status, outcome.err);
    ck_assert_str_eq(outcome.err, "");
    ck_assert(result->equal);
    return result;
}

static double largest_difference(const Result *a, const Result *b)
{
    ck_assert_uint_eq(a->count, b->count);
    double most = 0;
    for (size_t i = 0; i < a->count; i++)
        most = fmax(most, fabs((double)a->values[i] - (double)b->values[i]));
    return most;
}

static Result *without_replicas(Case given)
{
    given.devices = given.listed = 0;
    return result_of(given);
}

static void check_figures(const Result *a, const Result *b, double tolerance)
{
    ck_assert_double_eq_tol(a->loss, b->loss, tolerance);
    ck_assert_double_eq_tol(a->accuracy, b->accuracy, 1e-9);
    ck_assert_double_eq_tol(a->val_loss, b->val_loss, tolerance);
    ck_assert_double_eq_tol(a->val_accuracy, b->val_accuracy, 1e-9);
    ck_assert_double_eq_tol(a->score.loss, b->score.loss, tolerance);
    ck_assert_double_eq_tol(a->score.accuracy, b->score.accuracy, 1e-9);
}

// ---- The same as one device.

// Batches that all, some and none of the numbers of devices divide; a last one of a single image.
static const Case cases[] = {
    {.network = MLP, .devices = 1, .images = 24, .batch_size = 12, .epochs = 1},
    {.network = MLP, .devices = 2, .images = 24, .batch_size = 12, .epochs = 1},
    {.network = MLP, .devices = 4, .images = 26, .batch_size = 12, .epochs = 1},
    {.network = MLP, .devices = 3, .images = 22, .batch_size = 7, .epochs = 1},
    {.network = MLP, .devices = 4, .images = 9, .batch_size = 3, .epochs = 1},
    {.network = CNN, .devices = 2, .images = 21, .batch_size = 10, .epochs = 1},
    {.network = CNN, .devices = 4, .images = 21, .batch_size = 10, .epochs = 1},
    {.network = MLP, .devices = 2, .images = 21, .batch_size = 10, .epochs = 2, .scheduled = true},
    {.network = MLP, .devices = 2, .images = 21, .batch_size = 10, .epochs = 1, .adam = true},
};

START_TEST(replicas_compute_what_one_device_does)
{
    Result *many = result_of(cases[_i]), *one = without_replicas(cases[_i]);
    double off = largest_difference(many, one);
    ck_assert_msg(off <= 1e-5, "%g", off);
    check_figures(many, one, 1e-5);
}
END_TEST

START_TEST(one_device_computes_the_same_bits)
{
    Case given = {
        .network = _i ? NORM : DROPOUT, .devices = 1, .images = 22, .batch_size = 5, .epochs = 2};
    Result *many = result_of(given), *one = without_replicas(given);
    ck_assert(largest_difference(many, one) == 0);
    check_figures(many, one, 1e-12);
}
END_TEST

// Batch norm and dropout differ from one device; the replicas are equal all the same.
START_TEST(replicas_stay_equal)
{
    result_of((Case){
        .network = _i ? NORM : DROPOUT, .devices = 3, .images = 32, .batch_size = 10, .epochs = 2});
}
END_TEST

START_TEST(chosen_devices_are_used)
{
    Case given = {.network = MLP,
                  .devices = 4,
                  .images = 24,
                  .batch_size = 9,
                  .epochs = 1,
                  .list = {3, 1},
                  .listed = 2};
    Result *chosen = result_of(given), *one = without_replicas(given);
    ck_assert_int_eq(chosen->used[0], 3);
    ck_assert_int_eq(chosen->used[1], 1);
    ck_assert(largest_difference(chosen, one) <= 1e-5);
}
END_TEST

// ---- Parts of an update.

static Batch batch_of(const Dataset *data)
{
    Batches *batches = plain_batches(data, image_statistics(data), data->count);
    batches_begin(batches, 1);
    return batches_next(batches);
}

static Mirrored *two_replicas(Network which)
{
    now = (Case){.network = which, .devices = 2};
    setup_process();
    return mirrored(network, CATEGORICAL_CROSSENTROPY, optimizer, NULL, 0);
}

static void compute_all(Replica *replica, void *argument)
{
    compute_gradients(replica->model, argument);
}

static void compute_part(Replica *replica, void *argument)
{
    Batch part = part_of_batch(replica, argument);
    compute_gradients(replica->model, &part);
    average_gradients(replica, part.count);
    apply_gradients(replica->model);
}

static float *gradients_of(const Model *m)
{
    float *gradients = allocate(model_parameters(m)->length, sizeof *gradients);
    model_read_gradients(m, gradients);
    return gradients;
}

// Of the same images both replicas compute the same gradients, unless they drop.
static void compare_gradients(const void *which)
{
    Mirrored *m = two_replicas(which ? DROPOUT : MLP);
    Dataset data = random_dataset(8);
    Batch batch = batch_of(&data);
    on_each_device(m, compute_all, &batch);
    float *a = gradients_of(mirrored_model(m, 0)), *b = gradients_of(mirrored_model(m, 1));
    size_t bytes = model_parameters(mirrored_model(m, 0))->length * sizeof *a;
    CHECK((memcmp(a, b, bytes) == 0) == !which);
    free(a);
    free(b);
}

START_TEST(dropout_differs_between_replicas)
{
    static const char yes[] = "";
    Outcome outcome = run_in_child(compare_gradients, _i ? yes : NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
}
END_TEST

static void read_moving(const Model *m, float *to)
{
    for (int i = 0; i < model_variable_count(m); i++)
        if (!model_variable(m, i)->trainable) {
            model_read_variable(m, i, to);
            to += variable_size(model_variable(m, i));
        }
}

// Three images on one replica, two on the other: what models that see these alone would have.
static void check_statistics(const void *unused)
{
    (void)unused;
    Mirrored *m = two_replicas(NORM);
    Dataset data = random_dataset(5);
    Batch batch = batch_of(&data);
    on_each_device(m, compute_part, &batch);
    float got[16], parts[2][16];
    read_moving(mirrored_model(m, 0), got);
    for (int i = 0; i < 2; i++) {
        Model *alone = compile(network(), CATEGORICAL_CROSSENTROPY, optimizer());
        Batch part = {batch.images + 3 * i * PIXELS, batch.labels + 3 * i, i ? 2 : 3};
        compute_gradients(alone, &part);
        read_moving(alone, parts[i]);
    }
    for (int k = 0; k < 16; k++)
        CHECK(fabsf(got[k] - (0.6f * parts[0][k] + 0.4f * parts[1][k])) <= 1e-6f);
}

START_TEST(moving_statistics_are_the_replicas_mean)
{
    Outcome outcome = run_in_child(check_statistics, NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
}
END_TEST

static void sum_numbers(Replica *replica, void *argument)
{
    float *all = argument, *own = all + replica->index * 5000;
    for (int k = 0; k < 5000; k++)
        own[k] = (float)(k * (replica->index + 1));
    sum_among_replicas(replica, own, 5000);
}

static void check_sum(const void *unused)
{
    (void)unused;
    Mirrored *m = two_replicas(MLP);
    float *all = allocate(10000, sizeof *all);
    on_each_device(m, sum_numbers, all);
    for (int k = 0; k < 10000; k++)
        CHECK(all[k] == (float)(k % 5000 * 3));
    free(all);
}

START_TEST(arrays_are_added_up)
{
    Outcome outcome = run_in_child(check_sum, NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
}
END_TEST

// ---- A loss that is no number. The metrics of replicas are not together after each step.

static void spoil_replica_1(Callback *self, Training *training)
{
    float bias[CLASSES];
    Model *model = mirrored_model(self->state, 1);
    if (training->step != 3)
        return;
    for (int i = 0; i < CLASSES; i++)
        bias[i] = NAN;
    model_write_variable(model, model_variable_count(model) - 1, bias);
}

static void spoil(const void *unused)
{
    (void)unused;
    now = (Case){.network = MLP, .devices = 2, .images = 64, .batch_size = 8};
    setup_process();
    Dataset data = random_dataset(now.images);
    Batches *batches = augmented_batches(&data, image_statistics(&data), now.batch_size);
    Mirrored *m = mirrored(network, CATEGORICAL_CROSSENTROPY, optimizer, NULL, 0);
    Callbacks callbacks = {0};
    callbacks_add(&callbacks,
                  lambda_callback((Callback){.batch_begin = spoil_replica_1, .state = m}));
    Fit plan = {.train = batches,
                .epochs = 1,
                .steps_per_epoch = batches_len(batches),
                .callbacks = &callbacks};
    fit_mirrored(m, &plan);
}

START_TEST(a_loss_that_is_no_number_in_one_replica_ends_the_training)
{
    Outcome outcome = run_in_child(spoil, NULL);
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "the loss is nan in epoch 1, step 4, ") != NULL, "%s",
                  outcome.err);
}
END_TEST

// ---- A training that goes on: what was restored into replica 0 reaches all.

static void train_with_checkpoints(const void *argument)
{
    Result *result = (Result *)(uintptr_t)argument;
    setup_process();
    Dataset data = random_dataset(now.images);
    Batches *batches = augmented_batches(&data, image_statistics(&data), now.batch_size);
    Mirrored *m = mirrored(network, CATEGORICAL_CROSSENTROPY, optimizer, NULL, 0);
    Callbacks callbacks = {0};
    Fit plan = {.train = batches,
                .epochs = now.epochs,
                .steps_per_epoch = batches_len(batches),
                .callbacks = &callbacks};
    if (now.restored)
        restore_checkpoint(mirrored_model(m, 0), &plan, scratch, "ckpt-1-2");
    else
        callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = scratch, .every = 2}));
    History history = fit_mirrored(m, &plan);
    keep_figures(&history, result);
    keep_variables(mirrored_model(m, 0), result);
    compare_replicas(m, result);
}

static Result *resumable(Case given)
{
    Result *result =
        mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(result, MAP_FAILED);
    now = given;
    Outcome outcome = run_in_child(train_with_checkpoints, result);
    ck_assert_msg(outcome.status == 0, "status %d: %s", outcome.status, outcome.err);
    ck_assert(result->equal);
    return result;
}

START_TEST(a_training_goes_on_from_a_checkpoint_of_replica_0)
{
    make_scratch();
    Case given = {.network = _i ? NORM : DROPOUT,
                  .devices = 2,
                  .images = 20,
                  .batch_size = 5,
                  .epochs = 2,
                  .adam = true};
    Result *whole = resumable(given);
    given.restored = true;
    Result *rest = resumable(given);
    ck_assert(largest_difference(whole, rest) == 0);
    ck_assert(whole->loss == rest->loss && whole->accuracy == rest->accuracy);
    remove_scratch();
}
END_TEST

static const int case_count = sizeof cases / sizeof *cases;

int main(void)
{
    Suite *suite = suite_create("mirrored");
    TCase *replicas = tcase_create("replicas");
    tcase_set_timeout(replicas, 30);
    tcase_add_loop_test(replicas, replicas_compute_what_one_device_does, 0, case_count);
    tcase_add_loop_test(replicas, one_device_computes_the_same_bits, 0, 2);
    tcase_add_loop_test(replicas, replicas_stay_equal, 0, 2);
    tcase_add_test(replicas, chosen_devices_are_used);
    tcase_add_loop_test(replicas, dropout_differs_between_replicas, 0, 2);
    tcase_add_test(replicas, moving_statistics_are_the_replicas_mean);
    tcase_add_test(replicas, arrays_are_added_up);
    tcase_add_test(replicas, a_loss_that_is_no_number_in_one_replica_ends_the_training);
    tcase_add_loop_test(replicas, a_training_goes_on_from_a_checkpoint_of_replica_0, 0, 2);
    suite_add_tcase(suite, replicas);
    return run_suite(suite);
}
