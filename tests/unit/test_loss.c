// The two forms of the loss, and softmax as a layer that it does not compute: what is trained on,
// what is predicted, and that each form of a model gives the same updates.

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "child.h"
#include "operation.h"
#include "nn/model.h"

enum { SIDE = 4, IMAGES = 5, CLASSES = 10 };

// The same weights each time, and one softmax, two, or none.
static Model *create(int softmaxes, Loss loss)
{
    seed_process(3);
    Tensor image = input(SIDE, SIDE, 1);
    Tensor x = dense(dense(flatten(image), 16), CLASSES); // no kinks
    for (int i = 0; i < softmaxes; i++)
        x = softmax(x);
    return compile(model(image, x), loss, sgd(0.5f));
}

static Batch random_batch(void)
{
    static float images[IMAGES * SIDE * SIDE];
    static int labels[IMAGES] = {3, 0, 9, 3, 7};
    Rng rng = rng_stream_of(1, RNG_SYNTHETIC_DATA, 0);
    fill_normal(&rng, images, IMAGES * SIDE * SIDE, 0, 1);
    return (Batch){images, labels, IMAGES};
}

static double mean_loss(Model *m, const Batch *batch)
{
    model_reset_metrics(m);
    test_on_batch(m, batch);
    return model_metrics(m).loss / IMAGES;
}

// From what a model predicts, as logits or as probabilities.
static double loss_of(const float *predictions, const int *labels, bool logits)
{
    double loss = 0;
    for (int i = 0; i < IMAGES; i++) {
        const float *row = predictions + i * CLASSES;
        double sum = 0;
        for (int c = 0; c < CLASSES; c++)
            sum += logits ? exp((double)row[c]) : (double)row[c];
        loss += log(sum) - (logits ? (double)row[labels[i]] : log((double)row[labels[i]]));
    }
    return loss / IMAGES;
}

START_TEST(logits_train_as_softmax_at_the_end_does)
{
    Model *usual = create(1, CATEGORICAL_CROSSENTROPY);
    Model *logits = create(0, CATEGORICAL_CROSSENTROPY_FROM_LOGITS);
    Batch batch = random_batch();
    for (int i = 0; i < 5; i++) {
        train_on_batch(usual, &batch);
        train_on_batch(logits, &batch);
    }
    ck_assert_double_eq(model_fingerprints(usual).weights, model_fingerprints(logits).weights);
    Metrics a = model_metrics(usual), b = model_metrics(logits);
    ck_assert_mem_eq(&a, &b, sizeof a);
    model_free(usual);
    model_free(logits);
}
END_TEST

START_TEST(a_model_predicts_what_it_gives_out)
{
    float probabilities[IMAGES * CLASSES], logits[IMAGES * CLASSES], twice[IMAGES * CLASSES];
    Batch batch = random_batch();
    Model *m = create(1, CATEGORICAL_CROSSENTROPY);
    predict_on_batch(m, &batch, probabilities);
    ck_assert_double_eq_tol(loss_of(probabilities, batch.labels, false), mean_loss(m, &batch),
                            1e-5);
    model_free(m);
    m = create(0, CATEGORICAL_CROSSENTROPY_FROM_LOGITS);
    predict_on_batch(m, &batch, logits);
    ck_assert_double_eq_tol(loss_of(logits, batch.labels, true), mean_loss(m, &batch), 1e-5);
    model_free(m);
    m = create(1, CATEGORICAL_CROSSENTROPY_FROM_LOGITS);
    predict_on_batch(m, &batch, twice);
    for (int i = 0; i < IMAGES * CLASSES; i++)
        ck_assert_float_eq_tol(twice[i], probabilities[i], 1e-6f);
    ck_assert_double_eq_tol(loss_of(twice, batch.labels, true), mean_loss(m, &batch), 1e-5);
    ck_assert_double_gt(mean_loss(m, &batch), log(exp(1) + 9) - 1);
    model_free(m);
}
END_TEST

// By finite differences of the loss, for every weight of the model.
START_TEST(the_gradient_through_two_softmaxes_is_right)
{
    Model *m = _i == 0 ? create(1, CATEGORICAL_CROSSENTROPY_FROM_LOGITS)
                       : create(2, CATEGORICAL_CROSSENTROPY);
    Batch batch = random_batch();
    const float step = 1e-2f;
    compute_gradients(m, &batch);
    for (int v = 0; v < model_variable_count(m); v++) {
        size_t size = variable_size(model_variable(m, v));
        float *values = floats(size), *gradient = floats(size);
        model_read_variable(m, v, values);
        model_read_gradient(m, v, gradient);
        for (size_t i = 0; i < size; i++) {
            float value = values[i];
            double loss[2];
            for (int side = 0; side < 2; side++) {
                values[i] = side ? value + step : value - step;
                model_write_variable(m, v, values);
                loss[side] = mean_loss(m, &batch);
            }
            values[i] = value;
            ck_assert_double_eq_tol((loss[1] - loss[0]) / (2 * (double)step), (double)gradient[i],
                                    3e-5);
        }
        model_write_variable(m, v, values);
        free(values);
        free(gradient);
    }
    model_free(m);
}
END_TEST

START_TEST(a_model_says_what_its_loss_reads)
{
    Model *m = create(1, CATEGORICAL_CROSSENTROPY_FROM_LOGITS);
    ck_assert_ptr_nonnull(
        strstr(model_parameters(m)->description, "softmax of layer 3, 1x1x10, read as logits\n"));
    model_free(m);
    m = create(1, CATEGORICAL_CROSSENTROPY);
    ck_assert_ptr_null(strstr(model_parameters(m)->description, "logits"));
    model_free(m);
}
END_TEST

static void logits_of_an_image(const void *unused)
{
    (void)unused;
    Tensor image = input(4, 4, 1);
    compile(model(image, conv2d(image, 10, 3)), CATEGORICAL_CROSSENTROPY_FROM_LOGITS, sgd(1));
}

static void layers_behind_the_output(const void *unused)
{
    (void)unused;
    Tensor image = input(4, 4, 1), x = dense(flatten(image), 10);
    (void)!softmax(x);
    compile(model(image, x), CATEGORICAL_CROSSENTROPY_FROM_LOGITS, sgd(1));
}

static void softmax_of_an_image(const void *unused)
{
    (void)unused;
    Tensor image = input(4, 4, 1);
    Tensor x = dense(flatten(softmax(conv2d(image, 10, 3))), 10);
    compile(model(image, x), CATEGORICAL_CROSSENTROPY_FROM_LOGITS, sgd(1));
}

static void no_softmax(const void *unused)
{
    (void)unused;
    create(0, CATEGORICAL_CROSSENTROPY);
}

static void another_loss(const void *unused)
{
    (void)unused;
    create(1, (Loss)7);
}

static const struct {
    void (*body)(const void *);
    const char *message;
} misfits[] = {
    {logits_of_an_image, "the loss reads a vector"},
    {layers_behind_the_output, "there are layers after the model's output"},
    {softmax_of_an_image, "softmax reads a vector"},
    {no_softmax, "a model that ends in softmax, or has to be told that it gets logits"},
    {another_loss, "there is no loss 7"},
};

START_TEST(what_does_not_fit_ends_with_one_line)
{
    Outcome outcome = run_in_child(misfits[_i].body, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_msg(strstr(outcome.err, misfits[_i].message), "%s", outcome.err);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loss");
    TCase *tcase = operation_case(suite, "loss");
    tcase_add_test(tcase, logits_train_as_softmax_at_the_end_does);
    tcase_add_test(tcase, a_model_predicts_what_it_gives_out);
    tcase_add_loop_test(tcase, the_gradient_through_two_softmaxes_is_right, 0, 2);
    tcase_add_test(tcase, a_model_says_what_its_loss_reads);
    tcase_add_loop_test(tcase, what_does_not_fit_ends_with_one_line, 0, COUNT(misfits));
    return run_suite(suite);
}
