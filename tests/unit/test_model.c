// What models promise: names, order and layout of their variables, and the same results from the
// same seed. (What does not fit is in test_misfits.c.) The source of the steps is part of this
// test, so that its model can be held against the one that replay and the benchmark use.

#define STEP 0
#define TODO 0
#define main baseline_main
#include "../../labs/02-six-steps/master.c"
#undef main

#include <math.h>
#include <string.h>
#include "child.h"
#include "models/models.h"
#include "normal_batch.h"
#include "nn/lower.h"
#include "nn/weights.h"
#include "operation.h"
#include "base/clock.h"
#include "base/memory.h"

static const ModelShape original = {.height = 28, .width = 28, .channels = 1, .dropout = true};

static Model *compiled(Model *model)
{
    return compile(model, CATEGORICAL_CROSSENTROPY, sgd(0.01f));
}

// Up to 32 random images, in memory that the next call uses again.
static Batch random_batch(int count, uint64_t seed)
{
    return normal_batch(count, 28, seed);
}

static float *read_variable(const Model *model, int index, size_t *size)
{
    *size = variable_size(model_variable(model, index));
    float *values = allocate(*size, sizeof *values);
    model_read_variable(model, index, values);
    return values;
}

// Compares two models bit by bit, and frees them.
static void assert_same_variables(Model *a, Model *b)
{
    ck_assert_int_eq(model_variable_count(a), model_variable_count(b));
    for (int i = 0; i < model_variable_count(a); i++) {
        size_t size_a, size_b;
        float *x = read_variable(a, i, &size_a), *y = read_variable(b, i, &size_b);
        ck_assert_uint_eq(size_a, size_b);
        ck_assert_msg(memcmp(x, y, size_a * sizeof *x) == 0, "%s differs",
                      model_variable(a, i)->name);
        free(x);
        free(y);
    }
    model_free(a);
    model_free(b);
}

START_TEST(variables_are_named_as_keras_names_them)
{
    Model *model = compiled(wide_resnet(original));
    const char *first[] = {"conv2d/kernel",
                           "conv2d/bias",
                           "batch_normalization/gamma",
                           "batch_normalization/beta",
                           "batch_normalization/moving_mean",
                           "batch_normalization/moving_variance",
                           "conv2d_1/kernel"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        ck_assert_str_eq(model_variable(model, (int)i)->name, first[i]);
    // The 1x1 convolution of a block comes first.
    ck_assert_int_eq(model_variable(model, 6)->dims[0], 1);
    ck_assert_str_eq(model_variable(model, model_variable_count(model) - 1)->name, "dense/bias");
    model_free(model);
}
END_TEST

static size_t trainable_parameters(const Model *model)
{
    size_t count = 0;
    for (int i = 0; i < model_variable_count(model); i++)
        if (model_variable(model, i)->trainable)
            count += variable_size(model_variable(model, i));
    return count;
}

START_TEST(the_reference_model_has_17_million_parameters)
{
    Model *model = compiled(create_model(10, 0));
    ck_assert_uint_eq(trainable_parameters(model) / 100000, 171);
    model_free(model);
}
END_TEST

START_TEST(the_page_of_the_step_is_the_named_model)
{
    Batch batch = random_batch(8, 1);
    set_seed(3);
    Model *step = compiled(create_model(1, 0.1f));
    for (int i = 0; i < 2; i++)
        train_on_batch(step, &batch);
    set_seed(3);
    Model *named = compiled(l2_penalty(wide_resnet(original), 0.1f));
    for (int i = 0; i < 2; i++)
        train_on_batch(named, &batch);
    assert_same_variables(step, named);
}
END_TEST

START_TEST(kernels_begin_glorot_uniform_and_all_else_as_keras_has_it)
{
    Model *model = compiled(wide_resnet(original));
    for (int i = 0; i < model_variable_count(model); i++) {
        const Variable *v = model_variable(model, i);
        size_t size;
        float *values = read_variable(model, i, &size);
        double largest = 0, sum = 0;
        for (size_t k = 0; k < size; k++) {
            largest = fmax(largest, fabs((double)values[k]));
            sum += (double)values[k];
        }
        if (v->ndims > 1) {
            double window = v->ndims == 4 ? v->dims[0] * v->dims[1] : 1;
            double limit = sqrt(6 / (window * (v->dims[v->ndims - 2] + v->dims[v->ndims - 1])));
            ck_assert_double_le(largest, (double)(float)limit);
            ck_assert_double_ge(largest, 0.9 * limit);
            ck_assert_double_le(fabs(sum / (double)size), 6 * limit / sqrt(3 * (double)size));
        } else {
            bool ones = strstr(v->name, "gamma") || strstr(v->name, "moving_variance");
            for (size_t k = 0; k < size; k++)
                ck_assert_float_eq(values[k], ones ? 1 : 0);
        }
        free(values);
    }
    model_free(model);
}
END_TEST

START_TEST(embeddings_begin_uniform_within_a_twentieth)
{
    Model *model = compiled(bag_of_words((ModelShape){.width = 5}));
    size_t size;
    float *values = read_variable(model, 0, &size);
    double largest = 0, sum = 0;
    for (size_t k = 0; k < size; k++) {
        largest = fmax(largest, fabs((double)values[k]));
        sum += (double)values[k];
    }
    ck_assert_str_eq(model_variable(model, 0)->name, "embedding/embeddings");
    ck_assert_uint_eq(size, 10000 * 16);
    ck_assert(largest <= (double)0.05f && largest > 0.0499);
    ck_assert_double_le(fabs(sum / (double)size), 6 * 0.05 / sqrt(3 * (double)size));
    free(values);
    model_free(model);
}
END_TEST

START_TEST(a_variable_that_is_written_reads_the_same)
{
    ModelShape narrow = {28, 28, 3, {5, 9, 17, 33}, false}; // widths that fill no block of channels
    Model *model = compiled(wide_resnet(narrow));
    Rng rng = rng_stream_of(1, RNG_WEIGHTS, 0);
    for (int i = 0; i < model_variable_count(model); i++) {
        size_t size = variable_size(model_variable(model, i));
        float *written = allocate(size, sizeof *written), *read = allocate(size, sizeof *read);
        for (size_t k = 0; k < size; k++)
            written[k] = rng_normal(&rng);
        model_write_variable(model, i, written);
        model_read_variable(model, i, read);
        ck_assert_int_eq(memcmp(written, read, size * sizeof *read), 0);
        free(written);
        free(read);
    }
    model_free(model);
}
END_TEST

// The lab's schedule: base for epochs 0 to 14, then a tenth, a hundredth, a thousandth.
START_TEST(the_steps_learning_rate_falls_after_15_25_and_35_epochs)
{
    const struct {
        int epoch;
        float factor;
    } expected[] = {{0, 1},      {14, 1},     {15, 0.1f},   {24, 0.1f},
                    {25, 0.01f}, {34, 0.01f}, {35, 0.001f}, {39, 0.001f}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        ck_assert_float_eq_tol(lr_schedule(expected[i].epoch, 0.02f), 0.02f * expected[i].factor,
                               1e-9f);
}
END_TEST

// What a distributed optimizer would see of one backward pass.
static size_t ready_until;
static int ready_calls;

static void note_ready(Optimizer *self, const Parameters *parameters, size_t offset, size_t length)
{
    (void)self;
    (void)parameters;
    ck_assert_uint_ge(offset, ready_until); // never before what was ready already
    ck_assert_uint_lt(offset - ready_until, 16);
    ready_until = offset + length;
    ready_calls++;
}

START_TEST(gradients_become_ready_from_the_arenas_beginning_to_its_end)
{
    Optimizer *optimizer = sgd(0.01f);
    optimizer->gradient_ready = note_ready;
    Model *model = compile(wide_resnet(original), CATEGORICAL_CROSSENTROPY, optimizer);
    Batch batch = random_batch(2, 1);
    train_on_batch(model, &batch);
    ck_assert_int_eq(ready_calls, 16 + 13 + 1); // convolutions, batch norms, dense
    ck_assert_uint_lt(model_parameters(model)->length - ready_until, 16);
    model_free(model);
}
END_TEST

static Model *trained(uint64_t seed, int batches)
{
    seed_process(seed);
    Model *model = compiled(create_model(1, 5e-6f));
    for (int i = 0; i < batches; i++) {
        Batch batch = random_batch(i % 2 ? 32 : 7, (uint64_t)i);
        train_on_batch(model, &batch);
    }
    return model;
}

// Nothing is to be exchanged for it, and nothing updates it.
START_TEST(a_bias_before_a_batch_norm_is_in_no_segment)
{
    Tensor image = input(4, 4, 1);
    Tensor x = relu(batch_norm(conv2d(image, 16, 3)));
    Model *m = model(image, softmax(dense(global_average_pool(x), 3)));
    compile(m, CATEGORICAL_CROSSENTROPY, sgd(0.1f));
    const Parameters *p = model_parameters(m);
    size_t listed = 0;
    for (int i = 0; i < p->segment_count; i++)
        listed += p->segments[i].length;
    ck_assert_int_eq(p->segment_count, 5); // two kernels, gamma, beta, the dense layer's bias
    ck_assert_uint_ge(p->length - listed, 16);
    model_free(m);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_bits)
{
    assert_same_variables(trained(5, 4), trained(5, 4));
}
END_TEST

START_TEST(another_seed_gives_other_weights)
{
    Model *five = trained(5, 0), *six = trained(6, 0);
    size_t size;
    float *a = read_variable(five, 0, &size), *b = read_variable(six, 0, &size);
    ck_assert_int_ne(memcmp(a, b, size * sizeof *a), 0);
    free(a);
    free(b);
    model_free(five);
    model_free(six);
}
END_TEST

START_TEST(a_model_learns_one_batch_by_heart)
{
    Model *model = compile(lenet(original), CATEGORICAL_CROSSENTROPY, adam(0.001f));
    Batch batch = random_batch(32, 1);
    for (int i = 0; i < 60; i++)
        train_on_batch(model, &batch);
    model_reset_metrics(model);
    test_on_batch(model, &batch);
    Metrics metrics = model_metrics(model);
    ck_assert_double_eq(metrics.images, 32);
    ck_assert_double_eq(metrics.correct, 32);
    ck_assert_double_lt(metrics.loss / metrics.images, 0.05);
    model_free(model);
}
END_TEST

static void copy_each_gradient(Model *to, const Model *from, float *room)
{
    for (int i = 0; i < model_variable_count(from); i++)
        if (model_variable(from, i)->trainable) {
            model_read_gradient(from, i, room);
            model_write_gradient(to, i, room);
        }
}

static Model *with_the_same_weights(void)
{
    seed_process(1);
    return compiled(create_model(1, 0));
}

// What was read makes, written into another model with the same weights, the same update.
START_TEST(gradients_can_be_read_and_written)
{
    Model *from = with_the_same_weights(), *to = with_the_same_weights(),
          *one_by_one = with_the_same_weights();
    Batch batch = random_batch(16, 1);
    size_t length = model_parameters(from)->length;
    float *gradients = calloc(length, sizeof *gradients);
    compute_gradients(from, &batch);
    copy_each_gradient(one_by_one, from, gradients);
    model_read_gradients(from, gradients);
    apply_gradients(from);
    model_write_gradients(to, gradients);
    apply_gradients(to);
    apply_gradients(one_by_one);
    ck_assert_double_eq(model_fingerprints(from).weights, model_fingerprints(to).weights);
    ck_assert_double_eq(model_fingerprints(from).weights, model_fingerprints(one_by_one).weights);
    free(gradients);
    model_free(from);
    model_free(to);
    model_free(one_by_one);
}
END_TEST

START_TEST(a_pace_is_kept_where_gradients_are_computed)
{
    Model *model = compiled(create_model(1, 0));
    Batch batch = random_batch(4, 1);
    train_on_batch(model, &batch); // what is done once
    settings()->pace = 300;
    double begin = seconds_now();
    compute_gradients(model, &batch);
    double computed = seconds_now();
    train_on_batch(model, &batch);
    double trained = seconds_now();
    settings()->pace = 0;
    ck_assert_double_ge(computed - begin, 0.3);
    ck_assert_double_ge(trained - computed, 0.3);
    model_free(model);
}
END_TEST

// Also those of one update, whose weights are the same.
START_TEST(each_forward_pass_drops_other_units)
{
    Tensor image = input(28, 28, 1);
    Model *m = compiled(model(image, softmax(dense(dropout(dense(flatten(image), 64), 0.5f), 10))));
    Batch batch = random_batch(4, 1);
    double losses[4];
    for (int pass = 0; pass < 4; pass++) {
        model_set_passes(m, pass == 3 ? 1 : pass);
        model_reset_metrics(m);
        compute_gradients(m, &batch);
        losses[pass] = model_metrics(m).loss;
        ck_assert_int_eq(model_passes(m), (pass == 3 ? 1 : pass) + 1);
    }
    ck_assert(losses[0] != losses[1] && losses[1] != losses[2] && losses[0] != losses[2]);
    ck_assert_double_eq(losses[3], losses[1]);
    model_free(m);
}
END_TEST

START_TEST(testing_changes_nothing)
{
    seed_process(1);
    Model *model = compiled(create_model(1, 0)), *same;
    seed_process(1);
    same = compiled(create_model(1, 0));
    Batch batch = random_batch(16, 1);
    test_on_batch(model, &batch);
    assert_same_variables(model, same);
}
END_TEST

START_TEST(predictions_are_probabilities_and_agree_with_the_loss)
{
    Model *model = compiled(create_model(1, 0));
    Batch batch = random_batch(4, 1);
    float p[4][10];
    double loss = 0;
    predict_on_batch(model, &batch, &p[0][0]);
    for (int n = 0; n < 4; n++) {
        double sum = 0;
        for (int c = 0; c < 10; c++)
            sum += (double)p[n][c];
        ck_assert_double_eq_tol(sum, 1, 1e-6);
        loss -= log((double)p[n][batch.labels[n]]);
    }
    model_reset_metrics(model);
    test_on_batch(model, &batch);
    ck_assert_double_eq_tol(model_metrics(model).loss, loss, 1e-5);
    model_free(model);
}
END_TEST

// More batch sizes than the model keeps plans for, each time with the same result.
START_TEST(batch_sizes_may_change_at_every_step)
{
    Model *model = compiled(create_model(1, 0));
    Batch batch = random_batch(9, 1);
    double loss[10] = {0};
    for (int round = 0; round < 2; round++)
        for (batch.count = 1; batch.count <= 9; batch.count++) {
            model_reset_metrics(model);
            test_on_batch(model, &batch);
            double now = model_metrics(model).loss;
            ck_assert(round == 0 || loss[batch.count] == now);
            ck_assert(batch.count == 1 || now > loss[batch.count - 1]);
            loss[batch.count] = now;
        }
    model_free(model);
}
END_TEST

// But not where another layer reads it, too.
START_TEST(a_relu_goes_behind_a_pool_that_alone_reads_it)
{
    Tensor image = input(8, 8, 1), x = relu(conv2d(image, 16, 3)), pooled = max_pool(x, 2);
    if (_i)
        pooled = add(pooled, max_pool(conv2d(x, 16, 3), 2));
    Tensor logits = dense(flatten(pooled), 4);
    Program program = lower(logits->graph, logits, true);
    ck_assert(program.ops[0].kind == OP_CONV2D && program.ops[0].relu == _i);
    ck_assert(program.ops[1].kind == OP_MAX_POOL && program.ops[1].relu == !_i);
    ck_assert(program.ops[1].input == program.ops[0].output && program.ops[1].size == 2);
    ck_assert(program.ops[1].in.height == 8 && program.ops[1].out.height == 4);
    ck_assert_int_eq(program.op_count, _i ? 7 : 4);
    free(program.ops);
    graph_free(logits->graph);
}
END_TEST

START_TEST(vectors_are_added_whatever_they_come_from)
{
    Tensor d = dense(input_vector(5), 4);
    Tensor logits = add(relu(batch_norm(d)), dropout(d, 0.5f));
    Program program = lower(logits->graph, logits, true);
    const Op *last = &program.ops[program.op_count - 1];
    ck_assert(last->kind == OP_BATCH_NORM && last->residual >= 0 && last->flat);
    free(program.ops);
    graph_free(logits->graph);
}
END_TEST

static Model *three_words(void)
{
    return compiled(bag_of_words((ModelShape){.width = 3, .widths = {10, 4}}));
}

static const Batch two_sentences = {(float[]){0, 9, NO_TOKEN, 3, 3, 9}, (int[]){1, 2}, 2};

// A row is there once, however often the batch names it; what is put back has rows that stand there
// twice added up, and zeros elsewhere.
START_TEST(a_sparse_gradient_holds_the_rows_that_the_batch_named)
{
    Model *m = three_words();
    float dense[10 * 4], again[10 * 4], weights[2][10 * 4];
    compute_gradients(m, &two_sentences);
    model_read_gradient(m, 0, dense);
    SparseGradient g = model_sparse_gradient(m, 0);
    ck_assert(g.count == 3 && g.dimension == 4);
    ck_assert(g.rows[0] == 0 && g.rows[1] == 3 && g.rows[2] == 9);
    for (int i = 0; i < 3; i++)
        ck_assert_mem_eq(g.values + 4 * i, dense + 4 * g.rows[i], 4 * sizeof *dense);
    ck_assert_uint_eq(nonzeros(dense, 10 * 4), 3 * 4);

    g.rows[0] = 9;
    model_write_sparse_gradient(m, 0, &g);
    model_read_gradient(m, 0, again);
    for (int i = 0; i < 10 * 4; i++)
        ck_assert_float_eq(again[i], i < 12   ? 0
                                     : i < 16 ? dense[i]
                                     : i < 36 ? 0
                                              : dense[i - 36] + dense[i]);
    model_read_variable(m, 0, weights[0]);
    apply_gradients(m);
    model_read_variable(m, 0, weights[1]);
    for (int i = 0; i < 10 * 4; i++)
        ck_assert_float_eq_tol(weights[1][i], weights[0][i] - 0.01f * again[i], 1e-8f);
    sparse_gradient_free(&g);
    model_free(m);
}
END_TEST

static void print_summary(const void *index)
{
    ModelShape words = {.width = 12, .widths = {500, 16, 4}};
    const int which = *(const int *)index;
    Tensor values = input_vector(12);
    model_summary(which == 0   ? lenet(original)
                  : which == 1 ? mlp(original)
                  : which == 2 ? create_model(10, 0)
                  : which == 3 ? bag_of_words(words)
                               : model(values, softmax(values)));
}

static const struct {
    int model;
    const char *line;
} summaries[] = {
    {0, "\ninput (InputLayer)                                (None, 28, 28, 1)     0\n"},
    {0, "\nconv2d_1 (Conv2D)                                 (None, 14, 14, 64)    18,496\n"},
    {0, "\nre_lu_2 (ReLU)                                    (None, 512)           0\n"},
    {0, "\nsoftmax (Softmax)                                 (None, 10)            0\n"},
    {0, "\nParameters: 1,630,090\nTrainable: 1,630,090\nNot trainable: 0\n"},
    {1, "\ndense_1 (Dense)                                   (None, 256)           65,792\n"},
    {1, "\nParameters: 269,322\nTrainable: 269,322\nNot trainable: 0\n"},
    {2, "\nParameters: 17,130,954\nTrainable: 17,121,962\nNot trainable: 8,992\n"},
    {3, "\ninput (InputLayer)                                (None, 12)            0\n"},
    {3, "\nembedding (Embedding)                             (None, 12, 16)        8,000\n"},
    {4, "\ninput (InputLayer)                                (None, 12)            0\n"},
    {3, "\nParameters: 8,068\nTrainable: 8,068\nNot trainable: 0\n"},
};

START_TEST(a_summary_counts_parameters)
{
    Outcome outcome = run_in_child(print_summary, &summaries[_i].model);
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_msg(strstr(outcome.out, summaries[_i].line), "%s", outcome.out);
}
END_TEST

int main(void)
{
    use_test_device();
    Suite *suite = suite_create("model");
    TCase *variables = tcase_create("variables"), *steps = tcase_create("steps");
    tcase_add_test(variables, variables_are_named_as_keras_names_them);
    tcase_add_test(variables, the_reference_model_has_17_million_parameters);
    tcase_add_test(variables, a_bias_before_a_batch_norm_is_in_no_segment);
    tcase_add_test(variables, kernels_begin_glorot_uniform_and_all_else_as_keras_has_it);
    tcase_add_test(variables, embeddings_begin_uniform_within_a_twentieth);
    tcase_add_test(variables, a_variable_that_is_written_reads_the_same);
    tcase_add_test(variables, vectors_are_added_whatever_they_come_from);
    tcase_add_loop_test(variables, a_relu_goes_behind_a_pool_that_alone_reads_it, 0, 2);
    tcase_set_timeout(steps, 60);
    tcase_add_test(steps, the_page_of_the_step_is_the_named_model);
    tcase_add_test(steps, the_steps_learning_rate_falls_after_15_25_and_35_epochs);
    tcase_add_test(steps, gradients_become_ready_from_the_arenas_beginning_to_its_end);
    tcase_add_test(steps, the_same_seed_gives_the_same_bits);
    tcase_add_test(steps, another_seed_gives_other_weights);
    tcase_add_test(steps, a_model_learns_one_batch_by_heart);
    tcase_add_test(steps, gradients_can_be_read_and_written);
    tcase_add_test(steps, a_pace_is_kept_where_gradients_are_computed);
    tcase_add_test(steps, each_forward_pass_drops_other_units);
    tcase_add_test(steps, testing_changes_nothing);
    tcase_add_test(steps, predictions_are_probabilities_and_agree_with_the_loss);
    tcase_add_test(steps, a_sparse_gradient_holds_the_rows_that_the_batch_named);
    tcase_add_test(steps, batch_sizes_may_change_at_every_step);
    tcase_add_loop_test(steps, a_summary_counts_parameters, 0, COUNT(summaries));
    suite_add_tcase(suite, variables);
    suite_add_tcase(suite, steps);
    return run_suite(suite);
}
