// What a model in two halves, or in more parts, promises: whatever the schedule and the number of micro-batches, the
// weights become those of one device with the whole batch; each half works on its device. (What can't be done:
// test_stage_faults.c.)
//
// On the CPU, and with HVDLAB_TEST_DEVICE=gpu on GPUs, where there are two. Each run is a process
// of its own, since devices are never given back.

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>
#include "child.h"
#include "hvdlab.h"
#include "operation.h"
#include "scratch.h"
#include "staged_models.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"

enum { UPDATES = 5 };

// ---- Schedules.

// Never more than two micro-batches on their way.
static void two_on_their_way(Stage *stage, int micro_batches)
{
    for (int k = 0; k < micro_batches + 2; k++) {
        if (k >= 2) {
            stage_receive(stage, k - 2);
            stage_backward(stage, k - 2);
        }
        if (k < micro_batches) {
            stage_forward(stage, k);
            stage_send(stage, k);
        }
    }
    stage_apply(stage);
}

// Keeps the values of all of them.
static void last_one_first(Stage *stage, int micro_batches)
{
    for (int k = 0; k < micro_batches; k++) {
        stage_receive(stage, k);
        stage_forward(stage, k);
    }
    for (int k = micro_batches - 1; k >= 0; k--) {
        stage_backward(stage, k);
        stage_send(stage, k);
    }
    stage_apply(stage);
}

// ---- The same as one device.

typedef struct {
    bool images;
    Optimizer *(*optimizer)(float learning_rate);
    float learning_rate;
    int micro_batches;
    Schedule first, second;
} Case;

static float *variable(const Model *model, int index, size_t *size)
{
    *size = variable_size(model_variable(model, index));
    float *values = allocate(*size, sizeof *values);
    model_read_variable(model, index, values);
    return values;
}

static void check_variable(const Model *a, int i, const Model *b, int k)
{
    size_t size, other_size;
    float *x = variable(a, i, &size), *y = variable(b, k, &other_size);
    CHECK(size == other_size);
    for (size_t n = 0; n < size; n++)
        if (!(fabsf(x[n] - y[n]) <= 1e-5f))
            die("%s: %g is not %g", model_variable(a, i)->name, (double)x[n], (double)y[n]);
    free(x);
    free(y);
}

static void check_variables(const Model *whole, const Model *first, const Model *second)
{
    int before = model_variable_count(first);
    CHECK(model_variable_count(whole) == before + model_variable_count(second));
    for (int i = 0; i < model_variable_count(whole); i++)
        check_variable(whole, i, i < before ? first : second, i < before ? i : i - before);
}

static void check_metrics(Metrics a, Metrics b)
{
    CHECK(a.images == b.images && a.correct == b.correct);
    CHECK(fabs(a.loss - b.loss) <= 1e-4 * a.loss);
}

static void check_scores(Model *whole, Stages *stages)
{
    Dataset data = synthetic_data(TEST, 1, 50);
    data.height = data.width = SIZE; // the first bytes of each 784
    Batches *batches = plain_batches(&data, image_statistics(&data), 20);
    Metrics before = stages_metrics(stages);
    Score a = evaluate(whole, batches, 0), b = evaluate_in_stages(stages, batches);
    CHECK(fabs(a.loss - b.loss) <= 1e-4 * a.loss && a.accuracy == b.accuracy);
    CHECK(stages_metrics(stages).images == before.images);
    batches_free(batches);
    dataset_free(&data);
}

static void train_both_ways(const void *argument)
{
    const Case *c = argument;
    Model *first = first_half(c->images), *second = second_half(c->images);
    Stages *stages = two_stages(first, c->optimizer(c->learning_rate), second,
                                c->optimizer(c->learning_rate), two_devices);
    Model *whole =
        compile(whole_model(c->images), CATEGORICAL_CROSSENTROPY, c->optimizer(c->learning_rate));
    check_variables(whole, first, second); // they begin alike
    for (int update = 0; update < UPDATES; update++) {
        Batch batch = random_batch(update == 3 ? 2 : BATCH, (uint64_t)update);
        train_in_stages(stages, &batch, c->micro_batches, c->first, c->second);
        train_on_batch(whole, &batch);
    }
    check_metrics(model_metrics(whole), stages_metrics(stages));
    check_variables(whole, first, second);
    check_scores(whole, stages);
    stages_reset_metrics(stages);
    CHECK(stages_metrics(stages).images == 0);
    stages_free(stages);
    model_free(whole);
}

static void run_ok(void (*body)(const void *), const void *argument)
{
    Outcome outcome = run_in_child(body, argument);
    ck_assert_msg(outcome.status == 0, "status %d: %s", outcome.status, outcome.err);
    ck_assert_str_eq(outcome.err, "");
}

static const Schedule firsts[] = {one_at_a_time, fill_and_drain, two_on_their_way};
static const int numbers[] = {1, 2, 3, 5};

// 16 images are no multiple of 3 or of 5, and one batch has only two.
START_TEST(any_number_of_micro_batches_gives_the_weights_of_one_device)
{
    Case c = {.images = _i % 2,
              .optimizer = sgd,
              .learning_rate = 0.1f,
              .micro_batches = numbers[_i / 2],
              .first = fill_and_drain,
              .second = at_once};
    run_ok(train_both_ways, &c);
}
END_TEST

START_TEST(any_schedule_gives_the_weights_of_one_device)
{
    Case c = {.images = false,
              .optimizer = _i % 2 ? adam : rmsprop,
              .learning_rate = 0.001f,
              .micro_batches = 5,
              .first = firsts[_i],
              .second = at_once};
    run_ok(train_both_ways, &c);
}
END_TEST

START_TEST(a_stage_may_keep_the_values_of_all_micro_batches)
{
    Case c = {.images = true,
              .optimizer = sgd,
              .learning_rate = 0.1f,
              .micro_batches = 5,
              .first = fill_and_drain,
              .second = last_one_first};
    run_ok(train_both_ways, &c);
}
END_TEST

// ---- Stages in a row.

static Model *whole_row(int count)
{
    Tensor in = input(SIZE, SIZE, 1), x = flatten(in);
    for (int s = 0; s < count; s++)
        x = relu(dense(x, 24));
    return l2_penalty(model(in, softmax(dense(x, CLASSES))), 0.01f);
}

static void forward_first(Stage *stage, int micro_batches)
{
    for (int k = 0; k < micro_batches; k++)
        row_forward(stage, k);
    for (int k = 0; k < micro_batches; k++)
        row_backward(stage, k);
    stage_apply(stage);
}

static int fewer(int a, int b)
{
    return a < b ? a : b;
}

static void one_forward_one_backward(Stage *stage, int micro_batches)
{
    int ahead = fewer(stage_count(stage) - stage_index(stage) - 1, micro_batches);
    for (int k = 0; k < micro_batches + ahead; k++) {
        if (k < micro_batches)
            row_forward(stage, k);
        if (k >= ahead)
            row_backward(stage, k - ahead);
    }
    stage_apply(stage);
}

static void check_row(const Model *whole, Model *const models[], int count)
{
    int before = 0;
    for (int s = 0; s < count; s++) {
        for (int i = 0; i < model_variable_count(models[s]); i++)
            check_variable(whole, before + i, models[s], i);
        before += model_variable_count(models[s]);
    }
    CHECK(before == model_variable_count(whole));
}

// By both schedules; what a stage keeps is counted, and its memory grows with that.
static void train_row(const void *argument)
{
    int count = *(const int *)argument;
    Model *models[MAX_STAGES];
    Stages *stages = row_of(count, models);
    Model *whole = compile(whole_row(count), CATEGORICAL_CROSSENTROPY, sgd(0.1f));
    check_row(whole, models, count); // they begin alike
    for (int update = 0; update < UPDATES; update++) {
        const int micro_batches = update == 1 ? 2 : 8;
        Batch batch = random_batch(update == 3 ? 3 : BATCH, (uint64_t)update);
        double alone = 0; // the memory of the stage that keeps one
        stages_reset_metrics(stages);
        CHECK(stage_use(stages, 0).kept == 0 && stage_use(stages, 0).idle == 0);
        train_by_schedule(stages, &batch, micro_batches,
                          update < UPDATES - 1 ? one_forward_one_backward : forward_first);
        for (int s = count - 1; s >= 0; s--) {
            StageUse use = stage_use(stages, s);
            int there = fewer(micro_batches, batch.count);
            CHECK(use.kept == (update < UPDATES - 1 ? fewer(count - s, there) : there));
            CHECK(use.idle >= 0 && use.idle < 1);
            alone = s == count - 2 ? use.megabytes / use.kept : alone;
            if (update == 0 && s > 0 && s < count - 2) // stages in the middle are alike
                CHECK(fabs(use.megabytes - alone * use.kept) <= 0.01 * use.megabytes);
        }
        train_on_batch(whole, &batch);
    }
    check_row(whole, models, count);
    stages_free(stages);
    model_free(whole);
}

static const int rows[] = {1, 2, 3, 5};

START_TEST(stages_in_a_row_give_the_weights_of_one_device)
{
    run_ok(train_row, &rows[_i]);
}
END_TEST

// ---- The rest.

static void its_gradient(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_receive(stage, 0);
    stage_forward(stage, 0);
    stage_backward(stage, 0);
    stage_send(stage, 0);
}

static void one_without_update(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_forward(stage, 0);
    stage_send(stage, 0);
    stage_receive(stage, 0);
    stage_backward(stage, 0);
}

// What a batch left behind has no part in the next one.
static void leaves_something_behind(const void *unused)
{
    (void)unused;
    Model *first = first_half(false), *second = second_half(false);
    Stages *stages = two_stages(first, sgd(0.1f), second, sgd(0.1f), two_devices);
    Model *whole = compile(whole_model(false), CATEGORICAL_CROSSENTROPY, sgd(0.1f));
    Batch batch = random_batch(9, 1);
    train_in_stages(stages, &batch, 3, forgets_one, does_nothing);
    train_in_stages(stages, &batch, 3, one_without_update, its_gradient);
    train_in_stages(stages, &batch, 3, does_nothing, does_nothing);
    check_variables(whole, first, second);
    train_in_stages(stages, &batch, 3, fill_and_drain, at_once);
    train_on_batch(whole, &batch);
    check_variables(whole, first, second);
    stages_free(stages);
    model_free(whole);
}

START_TEST(what_a_schedule_leaves_behind_is_dropped)
{
    run_ok(leaves_something_behind, NULL);
}
END_TEST

static void on_one_device(const void *unused)
{
    (void)unused;
    setenv("HVDLAB_DEVICES", "1", 1);
    const Case c = {false, sgd, 0.1f, 3, fill_and_drain, at_once};
    train_both_ways(&c);
}

START_TEST(two_stages_may_share_one_device)
{
    Outcome outcome = run_in_child(on_one_device, NULL);
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_str_eq(outcome.err, "test_stages: warning: rank 0: device 1 is not there, this node "
                                  "has 1; using device 0\n");
}
END_TEST

// Alone a batch takes 120 ms, 20 of them forward in each half; of two micro-batches in a pipeline
// three quarters of that.
static void slow_devices(const void *unused)
{
    (void)unused;
    settings()->pace = 120;
    Stages *stages = small_stages();
    Batch batch = random_batch(BATCH, 1);
    train_in_stages(stages, &batch, 2, fill_and_drain, at_once);
    double begin = seconds_now();
    train_in_stages(stages, &batch, 2, one_at_a_time, at_once);
    double middle = seconds_now();
    CHECK(middle - begin >= 0.120);
    train_in_stages(stages, &batch, 2, fill_and_drain, at_once);
    CHECK(seconds_now() - middle >= 0.090);
    stages_free(stages);
}

START_TEST(a_pace_makes_the_devices_slow)
{
    run_ok(slow_devices, NULL);
}
END_TEST

// ---- What is traced, and that nothing else changes by it.

static void print_weights(const void *traced)
{
    if (traced)
        setenv("HVDLAB_TRACE", scratch, 1);
    Model *first = first_half(true), *second = second_half(true);
    Stages *stages = two_stages(first, sgd(0.1f), second, sgd(0.1f), two_devices);
    for (int update = 0; update < 2; update++) {
        Batch batch = random_batch(7, (uint64_t)update);
        train_in_stages(stages, &batch, 3, fill_and_drain, at_once);
    }
    printf("%.17g %.17g %.17g\n", model_fingerprints(first).weights,
           model_fingerprints(second).weights, stages_metrics(stages).loss);
    stages_free(stages);
}

typedef struct {
    double whole[2], applied[2];
    int applies, begun, ended;
} Traced;

static double number(const cJSON *event, const char *field)
{
    return cJSON_GetObjectItem(event, field)->valuedouble;
}

static void take_event(Traced *traced, const cJSON *event)
{
    const char *name = cJSON_GetObjectItem(event, "event")->valuestring;
    traced->begun += strcmp(name, "stage_begin") == 0;
    traced->ended += strcmp(name, "stage_end") == 0;
    if (strncmp(name, "stage", strlen("stage")) != 0 || number(event, "batch") != 1)
        return;
    int s = (int)number(event, "stage");
    if (strcmp(name, "staged_batch") == 0) {
        ck_assert_int_eq((int)number(event, "device"), s);
        ck_assert_int_eq((int)number(event, "images"), 7);
        ck_assert_int_eq((int)number(event, "micro_batches"), 3);
        traced->whole[s] = number(event, "value");
    } else if (strcmp(name, "stage_apply") == 0) {
        traced->applied[s] = number(event, "value");
        traced->applies++;
    }
}

START_TEST(a_trace_tells_the_calls_and_the_gradient_of_the_whole_batch)
{
    make_scratch();
    Outcome plain = run_in_child(print_weights, NULL), traced = run_in_child(print_weights, "");
    ck_assert_int_eq(traced.status, 0);
    ck_assert_str_eq(plain.out, traced.out);
    FILE *file = fopen(in_scratch("rank-0.jsonl"), "r");
    ck_assert_ptr_nonnull(file);
    Traced found = {0};
    for (char line[4096]; fgets(line, sizeof line, file);) {
        cJSON *event = cJSON_Parse(line);
        ck_assert_ptr_nonnull(event);
        take_event(&found, event);
        cJSON_Delete(event);
    }
    ck_assert_int_eq(found.begun, 2 * 2 * 3 * 4);
    ck_assert_int_eq(found.ended, found.begun);
    ck_assert_int_eq(found.applies, 2);
    for (int s = 0; s < 2; s++)
        ck_assert_double_eq_tol(found.applied[s], found.whole[s], 1e-5);
    fclose(file);
    remove_scratch();
}
END_TEST

int main(void)
{
    if (!use_two_test_devices())
        return EXIT_SUCCESS;
    Suite *suite = suite_create("stages");
    TCase *tests = operation_case(suite, "two");
    settings()->precision = PRECISION_FP32; // what is compared are weights, to 1e-5
    tcase_add_loop_test(tests, any_number_of_micro_batches_gives_the_weights_of_one_device, 0,
                        2 * COUNT(numbers));
    tcase_add_loop_test(tests, any_schedule_gives_the_weights_of_one_device, 0, COUNT(firsts));
    tcase_add_test(tests, a_stage_may_keep_the_values_of_all_micro_batches);
    tcase_add_loop_test(tests, stages_in_a_row_give_the_weights_of_one_device, 0, COUNT(rows));
    tcase_add_test(tests, what_a_schedule_leaves_behind_is_dropped);
    if (settings()->device == DEVICE_CPU)
        tcase_add_test(tests, two_stages_may_share_one_device);
    tcase_add_test(tests, a_pace_makes_the_devices_slow);
    tcase_add_test(tests, a_trace_tells_the_calls_and_the_gradient_of_the_whole_batch);
    return run_suite(suite);
}
