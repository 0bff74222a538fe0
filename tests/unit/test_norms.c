// What measure_norms() promises: the largest norms of the gradients that were computed, and of those
// that reached the innermost optimizer.

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"
#include "lessons/norms.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "child.h"

static Model *two_layers(Optimizer *optimizer)
{
    Tensor image = input(2, 2, 1);
    Tensor x = relu(dense(flatten(image), 5));
    return compile(model(image, softmax(dense(x, 3))), CATEGORICAL_CROSSENTROPY, optimizer);
}

static void compute(Model *model, float scale)
{
    const float images[8] = {0.5f * scale, -1, 2 * scale, 1, 1, scale, -1, 3};
    const int labels[2] = {0, 2};
    compute_gradients(model, &(Batch){.images = images, .labels = labels, .count = 2});
}

static double norm_in(const Model *model)
{
    size_t length = model_parameters(model)->length;
    float *gradients = allocate(length, sizeof *gradients);
    model_read_gradients(model, gradients);
    double squares = 0;
    for (size_t i = 0; i < length; i++)
        squares += (double)gradients[i] * (double)gradients[i];
    free(gradients);
    return sqrt(squares);
}

static void write_first(Model *model, float value)
{
    float *gradients = allocate(model_parameters(model)->length, sizeof *gradients);
    gradients[0] = value;
    model_write_gradients(model, gradients);
    free(gradients);
}

START_TEST(the_largest_norms_are_kept_until_they_are_read)
{
    Model *model = two_layers(sgd(0.1f));
    measure_norms();
    double largest = 0;
    const float scales[] = {1, 20, 3};
    for (int i = 0; i < 3; i++) {
        compute(model, scales[i]);
        largest = fmax(largest, norm_in(model));
        write_first(model, i == 1 ? -4 : 3);
        apply_gradients(model);
    }
    Norms norms = largest_norms();
    ck_assert_double_gt(largest, 0);
    ck_assert_double_eq_tol(norms.computed, largest, 1e-6 * largest);
    ck_assert_double_eq(norms.applied, 4);
    norms = largest_norms();
    ck_assert_double_eq(norms.computed, 0);
    ck_assert_double_eq(norms.applied, 0);
    model_free(model);
}
END_TEST

START_TEST(a_norm_that_is_not_a_number_is_kept)
{
    Model *model = two_layers(sgd(0));
    measure_norms();
    const float values[] = {1, NAN, 2};
    for (int i = 0; i < 3; i++) {
        compute(model, 1);
        write_first(model, values[i]);
        apply_gradients(model);
    }
    ck_assert_double_nan(largest_norms().applied);
    model_free(model);
}
END_TEST

static void apply_half(Optimizer *self, const Parameters *parameters)
{
    for (size_t i = 0; i < parameters->length; i++)
        parameters->gradients[i] /= 2;
    self->inner->apply(self->inner, parameters);
}

START_TEST(what_the_innermost_optimizer_gets_is_applied)
{
    Optimizer *half = calloc(1, sizeof *half);
    *half = (Optimizer){.name = "Half", .inner = sgd(0.1f), .apply = apply_half};
    Model *model = two_layers(half);
    measure_norms();
    compute(model, 1);
    write_first(model, 6);
    apply_gradients(model);
    ck_assert_double_eq(largest_norms().applied, 3);
    model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("norms");
    tcase_add_test(tests, the_largest_norms_are_kept_until_they_are_read);
    tcase_add_test(tests, a_norm_that_is_not_a_number_is_kept);
    tcase_add_test(tests, what_the_innermost_optimizer_gets_is_applied);
    Suite *suite = suite_create("norms");
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
