// Every operation of a backend, alone, against the double-precision reference: those that have no
// program of their own, what holds for all, and what a backend does beside operations. Only through
// backend.h, so that every backend has to pass.

#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/backend.h"
#include "child.h"
#include "comparison.h"
#include "operation.h"
#include "reference.h"
#include "base/rng.h"
#include "nn/layers.h"

// Layers that stand alone.

START_TEST(elementwise_operations_are_right)
{
    static const Spec forms[] = {
        {OP_RELU, .batch = 0}, {OP_DROPOUT, .dropout_rate = 0.4f}, {OP_ADD, .residual = true}};
    static const Spec shapes[] = {{.batch = 2, .in = {5, 7, 17}},
                                  {.batch = 1, .in = {1, 1, 1}},
                                  {.batch = 3, .in = {3, 2, 8}},
                                  {.batch = 64, .in = {14, 14, 32}},
                                  {.batch = 3, .in = {1, 1, 33}, .flat = true},
                                  {.batch = 64, .in = {1, 1, 128}, .flat = true}};
    for (size_t i = 0; i < COUNT(forms) * COUNT(shapes); i++) {
        Spec spec = shapes[i % COUNT(shapes)], form = forms[i / COUNT(shapes)];
        spec.kind = form.kind;
        spec.dropout_rate = form.dropout_rate;
        spec.residual = form.residual;
        check_spec(spec);
    }
}
END_TEST

START_TEST(max_pool_is_right)
{
    static const Spec specs[] = {
        {OP_MAX_POOL, .batch = 2, .in = {7, 6, 17}, .size = 2},
        {OP_MAX_POOL, .batch = 1, .in = {3, 3, 5}, .size = 3},
        {OP_MAX_POOL, .batch = 2, .in = {5, 7, 33}, .size = 3},
        {OP_MAX_POOL, .batch = 3, .in = {2, 2, 8}, .size = 2},
        {OP_MAX_POOL, .batch = 2, .in = {3, 5, 1}, .size = 1},
        {OP_MAX_POOL, .batch = 64, .in = {28, 28, 16}, .size = 2},
        {OP_MAX_POOL, .batch = 32, .in = {14, 14, 32}, .size = 3},
        {OP_MAX_POOL, .batch = 1, .in = {15, 31, 9}, .size = 15},
        {OP_MAX_POOL, .batch = 3, .in = {7, 6, 17}, .size = 2, .relu = true},
        {OP_MAX_POOL, .batch = 2, .in = {5, 7, 33}, .size = 3, .relu = true},
        {OP_MAX_POOL, .batch = 5, .in = {3, 5, 1}, .size = 1, .relu = true},
        {OP_MAX_POOL, .batch = 64, .in = {28, 28, 16}, .size = 2, .relu = true},
    };
    CHECK_SPECS(specs);
}
END_TEST

// Pixel `place` of the window of the i-th output, of images of 4x4 pixels and 9 channels, in
// windows of 2.
static size_t pixel_of_window(size_t i, size_t place)
{
    size_t n = i / 36, y = i / 18 % 2, x = i / 9 % 2, c = i % 9;
    return ((n * 4 + 2 * y + place / 2) * 4 + 2 * x + place % 2) * 9 + c;
}

// To the first of them, as TensorFlow does. Pixels before it are smaller.
START_TEST(max_pool_gives_the_gradient_of_equal_pixels_to_the_first)
{
    Spec spec = {OP_MAX_POOL, .batch = 2, .in = {4, 4, 9}, .size = 2, .relu = _i / 4};
    size_t first = (size_t)_i % 4;
    Trial *t = trial_create(&spec);
    size_t count = value_size(spec.in, spec.batch);
    for (size_t i = 0; i < count / 4; i++)
        for (size_t k = 0; k < 4; k++)
            t->sources[INPUT][pixel_of_window(i, k)] = k < first ? 1 : 2;
    trial_run(t);
    for (size_t i = 0; i < count / 4; i++)
        ck_assert_float_eq(t->gradients[INPUT][pixel_of_window(i, first)],
                           t->output_gradient[0][i]);
    ck_assert_uint_eq(nonzeros(t->gradients[INPUT], count), count / 4);
    trial_free(t);
}
END_TEST

// Zeros, and what is below, get none through a ReLU.
START_TEST(max_pool_with_relu_gives_no_gradient_where_nothing_is_above_zero)
{
    Spec spec = {OP_MAX_POOL, .batch = 2, .in = {4, 4, 9}, .size = 2, .relu = true};
    Trial *t = trial_create(&spec);
    size_t count = value_size(spec.in, spec.batch);
    for (size_t i = 0; i < count; i++)
        t->sources[INPUT][i] = _i ? 0 : -1 - fabsf(t->sources[INPUT][i]);
    trial_run(t);
    ck_assert_uint_eq(nonzeros(t->output, count / 4), 0);
    ck_assert_uint_eq(nonzeros(t->gradients[INPUT], count), 0);
    trial_free(t);
}
END_TEST

START_TEST(global_average_pool_is_right)
{
    static const Spec specs[] = {
        {OP_GLOBAL_AVERAGE_POOL, .batch = 2, .in = {5, 7, 17}},
        {OP_GLOBAL_AVERAGE_POOL, .batch = 1, .in = {1, 1, 3}},
        {OP_GLOBAL_AVERAGE_POOL, .batch = 3, .in = {7, 7, 33}},
        {OP_GLOBAL_AVERAGE_POOL, .batch = 2, .in = {2, 3, 8}},
        {OP_GLOBAL_AVERAGE_POOL, .batch = 64, .in = {7, 7, 64}},
    };
    CHECK_SPECS(specs);
}
END_TEST

START_TEST(flatten_is_right)
{
    static const Spec specs[] = {
        {OP_FLATTEN, .batch = 2, .in = {3, 5, 17}},
        {OP_FLATTEN, .batch = 1, .in = {2, 2, 1}},
        {OP_FLATTEN, .batch = 32, .in = {7, 7, 64}},
        {OP_FLATTEN, .batch = 2, .in = {4, 3, 3}, .image = true},
        {OP_FLATTEN, .batch = 64, .in = {28, 28, 1}, .image = true},
        {OP_FLATTEN, .batch = 3, .in = {1, 1, 10}, .flat = true},
    };
    CHECK_SPECS(specs);
}
END_TEST

START_TEST(embedding_is_right)
{
    static const Spec specs[] = {
        {OP_EMBEDDING, .batch = 3, .in = {1, 7, 1}, .size = 11, .filters = 5, .image = true},
        {OP_EMBEDDING, .batch = 1, .in = {1, 1, 1}, .size = 1, .filters = 1, .image = true},
        {OP_EMBEDDING, .batch = 2, .in = {1, 40, 1}, .size = 3, .filters = 17, .image = true},
        {OP_EMBEDDING, .batch = 32, .in = {1, 12, 1}, .size = 500, .filters = 16, .image = true},
        {OP_EMBEDDING, .batch = 64, .in = {1, 20, 1}, .size = 90, .filters = 33, .image = true},
    };
    CHECK_SPECS(specs);
}
END_TEST

// Rows that no token of the batch names have a gradient of zero, whatever was there before.
START_TEST(embedding_gives_no_gradient_to_other_rows)
{
    Spec spec = {OP_EMBEDDING, .batch = 2, .in = {1, 3, 1}, .size = 6, .filters = 9, .image = true};
    static const float tokens[] = {4, NO_TOKEN, 1, 1, 4, NO_TOKEN};
    Trial *t = trial_create(&spec);
    memcpy(t->sources[INPUT], tokens, sizeof tokens);
    trial_run(t);
    for (size_t row = 0; row < 6; row++)
        ck_assert_uint_eq(nonzeros(t->gradients[EMBEDDINGS] + row * 9, 9),
                          row == 1 || row == 4 ? 9 : 0);
    ck_assert_uint_eq(nonzeros(t->output + 9, 9), 0);
    ck_assert_uint_eq(nonzeros(t->output + 45, 9), 0);
    trial_free(t);
}
END_TEST

START_TEST(dense_is_right)
{
    static const Spec shapes[] = {
        {.batch = 1, .in = {1, 1, 1}, .filters = 1},
        {.batch = 3, .in = {1, 1, 17}, .filters = 33},
        {.batch = 2, .in = {1, 1, 9}, .filters = 5},
        {.batch = 64, .in = {1, 1, 128}, .filters = 10},
        {.batch = 32, .in = {1, 1, 784}, .filters = 512},
    };
    for (size_t i = 0; i < 2 * COUNT(shapes); i++) {
        Spec spec = shapes[i / 2];
        spec.kind = OP_DENSE;
        spec.flat = true;
        spec.relu = i % 2;
        check_spec(spec);
    }
}
END_TEST

START_TEST(softmax_as_a_layer_is_right)
{
    static const Spec specs[] = {
        {OP_SOFTMAX, .batch = 3, .in = {1, 1, 10}, .flat = true},
        {OP_SOFTMAX, .batch = 1, .in = {1, 1, 1}, .flat = true},
        {OP_SOFTMAX, .batch = 2, .in = {1, 1, 33}, .flat = true},
        {OP_SOFTMAX, .batch = 64, .in = {1, 1, 10}, .flat = true},
        {OP_SOFTMAX, .batch = 5, .in = {1, 1, 10}, .flat = true, .two_parts = true},
    };
    CHECK_SPECS(specs);
}
END_TEST

// For all kinds of operations.

// Work is divided among threads, but nothing may be rounded in another order. Matrix products and
// convolutions are left out: oneDNN does not promise it for them.
START_TEST(results_do_not_depend_on_the_number_of_threads)
{
    static const Spec specs[] = {
        {OP_BATCH_NORM, .batch = 7, .in = {5, 6, 33}, .relu = true},
        {OP_BATCH_NORM, .batch = 7, .in = {5, 6, 33}, .relu = true, .dropout_rate = 0.3f},
        {OP_BATCH_NORM, .batch = 4, .in = {5, 6, 9}, .residual = true, .two_parts = true},
        {OP_BATCH_NORM, .batch = 9, .in = {1, 1, 33}, .flat = true, .relu = true,
         .dropout_rate = 0.3f},
        {OP_RELU, .batch = 3, .in = {5, 7, 17}},
        {OP_DROPOUT, .batch = 3, .in = {5, 7, 17}, .dropout_rate = 0.3f},
        {OP_ADD, .batch = 3, .in = {5, 7, 17}, .residual = true},
        {OP_MAX_POOL, .batch = 3, .in = {5, 7, 17}, .size = 2},
        {OP_GLOBAL_AVERAGE_POOL, .batch = 3, .in = {5, 7, 17}},
    };
    backend();
    for (size_t i = 0; i < COUNT(specs); i++) {
        Trial *t = trial_create(&specs[i]);
        omp_set_num_threads(1);
        trial_run(t);
        uint64_t alone = trial_fingerprint(t);
        for (int threads = 2; threads <= 5; threads++) {
            omp_set_num_threads(threads);
            trial_run(t);
            ck_assert_msg(trial_fingerprint(t) == alone, "%s: other bits with %d threads",
                          describe(&specs[i]), threads);
        }
        trial_free(t);
    }
}
END_TEST

// Where two layers read a value.
START_TEST(a_gradient_in_two_parts_is_their_sum)
{
    static const Spec specs[] = {
        {OP_CONV2D, .batch = 2, .in = {5, 7, 17}, .filters = 9, .size = 3, .relu = true},
        {OP_RELU, .batch = 3, .in = {5, 7, 17}},
        {OP_RELU, .batch = 3, .in = {1, 1, 33}, .flat = true},
        {OP_DROPOUT, .batch = 3, .in = {5, 7, 16}, .dropout_rate = 0.4f},
        {OP_ADD, .batch = 3, .in = {5, 7, 17}, .residual = true},
        {OP_MAX_POOL, .batch = 2, .in = {7, 6, 17}, .size = 2},
        {OP_GLOBAL_AVERAGE_POOL, .batch = 3, .in = {5, 7, 17}},
        {OP_FLATTEN, .batch = 3, .in = {3, 5, 17}},
        {OP_EMBEDDING, .batch = 3, .in = {1, 7, 1}, .size = 11, .filters = 5, .image = true},
        {OP_DENSE, .batch = 3, .in = {1, 1, 17}, .filters = 33, .flat = true, .relu = true},
        {OP_BATCH_NORM, .batch = 3, .in = {5, 7, 17}, .relu = true},
    };
    for (size_t i = 0; i < COUNT(specs); i++) {
        Spec spec = specs[i];
        spec.two_parts = true;
        check_spec(spec);
    }
}
END_TEST

static size_t nans(const float *values, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += isnan(values[i]) != 0;
    return found;
}

// One input that is not a number makes all outputs so that depend on it.
static void check_nan(const Spec *spec, bool training)
{
    Trial *t = trial_create(spec);
    size_t element = value_size(spec->in, spec->batch) / 2;
    t->sources[INPUT][element] = NAN;
    trial_forward(t, training);
    Box box =
        reach(&(Reference){.op = &t->op, .batch = t->batch, .training = training}, INPUT, element);
    size_t expected = (size_t)(box.n.end - box.n.begin) * (size_t)(box.y.end - box.y.begin) *
                      (size_t)(box.x.end - box.x.begin) * (size_t)(box.c.end - box.c.begin);
    size_t found = nans(t->output, value_size(t->op.out, t->batch));
    ck_assert_msg(found >= expected, "%s: of %zu outputs that must be NaN only %zu are",
                  describe(spec), expected, found);
    trial_free(t);
}

static const Spec nan_specs[] = {
    {OP_CONV2D, .batch = 2, .in = {5, 5, 16}, .filters = 16, .size = 3},
    {OP_CONV2D, .batch = 2, .in = {5, 5, 16}, .filters = 16, .size = 3, .relu = true},
    {OP_CONV2D, .batch = 64, .in = {14, 14, 32}, .filters = 32, .size = 3, .relu = true},
    {OP_CONV2D, .batch = 4, .in = {7, 7, 1}, .filters = 16, .size = 3, .image = true, .relu = true},
    {OP_BATCH_NORM, .batch = 2, .in = {5, 5, 17}},
    {OP_BATCH_NORM, .batch = 2, .in = {5, 5, 17}, .relu = true},
    {OP_BATCH_NORM, .batch = 2, .in = {5, 5, 17}, .relu = true, .residual = true},
    {OP_BATCH_NORM, .batch = 3, .in = {1, 1, 17}, .flat = true, .relu = true},
    {OP_RELU, .batch = 2, .in = {5, 5, 17}},
    {OP_RELU, .batch = 3, .in = {1, 1, 17}, .flat = true},
    {OP_ADD, .batch = 2, .in = {5, 5, 17}, .residual = true},
    {OP_MAX_POOL, .batch = 2, .in = {5, 5, 17}, .size = 2},
    {OP_MAX_POOL, .batch = 2, .in = {5, 5, 17}, .size = 2, .relu = true},
    {OP_GLOBAL_AVERAGE_POOL, .batch = 2, .in = {5, 5, 17}},
    {OP_FLATTEN, .batch = 2, .in = {5, 5, 17}},
    {OP_DENSE, .batch = 2, .in = {1, 1, 17}, .filters = 9, .flat = true},
    {OP_DENSE, .batch = 2, .in = {1, 1, 17}, .filters = 9, .flat = true, .relu = true},
    {OP_DENSE, .batch = 2, .in = {1, 1, 17}, .filters = 9, .flat = true, .no_bias = true},
    {OP_DENSE, .batch = 2, .in = {1, 1, 17}, .filters = 9, .flat = true, .relu = true,
     .no_bias = true},
    {OP_SOFTMAX, .batch = 2, .in = {1, 1, 17}, .flat = true},
};

START_TEST(nan_is_not_hidden)
{
    check_nan(&nan_specs[_i / 2], _i % 2);
}
END_TEST

// Wherever in the window it stands, and whatever stands beside it.
START_TEST(max_pool_does_not_hide_nan)
{
    Spec spec = {OP_MAX_POOL, .batch = 2, .in = {4, 4, 9}, .size = 2, .relu = _i / 4};
    Trial *t = trial_create(&spec);
    size_t count = value_size(t->op.out, spec.batch);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < 4; k++)
            if (k == (size_t)_i % 4 || i % 3 == 0)
                t->sources[INPUT][pixel_of_window(i, k)] = NAN;
    trial_forward(t, true);
    ck_assert_uint_eq(nans(t->output, count), count);
    trial_free(t);
}
END_TEST

START_TEST(dropout_does_not_hide_nan)
{
    static const Spec specs[] = {
        {OP_DROPOUT, .batch = 2, .in = {5, 5, 17}, .dropout_rate = 0.5f},
        {OP_BATCH_NORM, .batch = 2, .in = {5, 5, 17}, .dropout_rate = 0.5f, .relu = true},
    };
    for (size_t i = 0; i < COUNT(specs); i++) {
        Trial *t = trial_create(&specs[i]);
        size_t count = value_size(specs[i].in, specs[i].batch);
        for (size_t k = 0; k < count; k++)
            t->sources[INPUT][k] = NAN;
        trial_forward(t, true);
        ck_assert_uint_eq(nans(t->output, count), nonzeros(t->output, count));
        ck_assert_uint_gt(nans(t->output, count), count / 3);
        trial_free(t);
    }
}
END_TEST

// What a backend does beside operations.

#define BATCH   5
#define CLASSES 10

// Of one row: softmax, and the logarithm of the sum of exponentials.
static double exact_softmax(const float *logits, double *probabilities)
{
    double largest = -INFINITY, sum = 0;
    for (int c = 0; c < CLASSES; c++)
        largest = fmax(largest, (double)logits[c]);
    for (int c = 0; c < CLASSES; c++)
        sum += exp((double)logits[c] - largest);
    for (int c = 0; c < CLASSES; c++)
        probabilities[c] = exp((double)logits[c] - largest) / sum;
    return largest + log(sum);
}

// Logits whose exponentials a float cannot hold are among them.
static void fill_logits(float *logits)
{
    Rng rng = rng_stream_of(6, RNG_SYNTHETIC_DATA, 0);
    fill_normal(&rng, logits, BATCH * CLASSES, 0, 3);
    for (int c = 0; c < CLASSES; c++) {
        logits[c] += 1000;
        logits[CLASSES + c] -= 1000;
    }
}

START_TEST(softmax_is_right)
{
    float logits[BATCH * CLASSES];
    double expected[BATCH * CLASSES];
    fill_logits(logits);
    for (int row = 0; row < BATCH; row++)
        exact_softmax(logits + row * CLASSES, expected + row * CLASSES);
    float *from = device_memory(sizeof logits), *to = device_memory(sizeof logits);
    backend()->write(device_current(), from, logits, sizeof logits);
    backend()->softmax(device_current(), from, to, BATCH, CLASSES);
    float *result = host_copy(to, sizeof logits);
    ck_assert_double_le(largest_error(result, expected, BATCH * CLASSES), 1e-6);
    backend()->release(device_current(), from);
    backend()->release(device_current(), to);
    free(result);
}
END_TEST

// What cross-entropy must add to the metrics, and its gradient: (softmax - label) / batch.
static Metrics exact_cross_entropy(const float *logits, const int *labels, double *gradient)
{
    Metrics metrics = {.images = BATCH};
    for (int row = 0; row < BATCH; row++) {
        const float *z = logits + row * CLASSES;
        double *g = gradient + row * CLASSES, log_sum = exact_softmax(z, g);
        metrics.loss += log_sum - (double)z[labels[row]];
        bool correct = true;
        for (int c = 0; c < CLASSES; c++)
            correct &= z[c] <= z[labels[row]];
        metrics.correct += correct;
        g[labels[row]] -= 1;
        for (int c = 0; c < CLASSES; c++)
            g[c] /= BATCH;
    }
    return metrics;
}

START_TEST(cross_entropy_is_right)
{
    float logits[BATCH * CLASSES];
    double expected[BATCH * CLASSES];
    int labels[BATCH] = {9, 0, 4, 7, 2};
    fill_logits(logits);
    logits[2 * CLASSES + 4] = logits[3 * CLASSES + 7] = 12; // two that are right
    Metrics once = exact_cross_entropy(logits, labels, expected), metrics = {0};
    ck_assert_double_ge(once.correct, 2);

    float *from = device_memory(sizeof logits), *to = device_memory(sizeof logits);
    int *on_device = device_memory(sizeof labels);
    Metrics *sums = device_memory(sizeof metrics);
    backend()->write(device_current(), from, logits, sizeof logits);
    backend()->write(device_current(), on_device, labels, sizeof labels);
    backend()->write(device_current(), sums, &metrics, sizeof metrics);
    for (int i = 0; i < 3; i++)
        backend()->cross_entropy(device_current(), from, on_device, to, BATCH, CLASSES, sums);
    backend()->read(device_current(), &metrics, sums, sizeof metrics);
    float *result = host_copy(to, sizeof logits);
    ck_assert_double_le(largest_error(result, expected, BATCH * CLASSES), 1e-6);
    ck_assert_double_eq_tol(metrics.loss, 3 * once.loss, 1e-5 * once.loss);
    ck_assert_double_eq(metrics.correct, 3 * once.correct);
    ck_assert_double_eq(metrics.images, 3 * BATCH);
    ck_assert_double_eq(metrics.batches, 3);
    ck_assert_double_eq(metrics.finite, 3);
    backend()->release(device_current(), from);
    backend()->release(device_current(), to);
    backend()->release(device_current(), on_device);
    backend()->release(device_current(), sums);
    free(result);
}
END_TEST

// Which batch was the first whose loss is no finite number: told from the sums, also when good ones
// follow, and whichever logit is to blame.
START_TEST(cross_entropy_counts_finite_batches)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float logits[BATCH * CLASSES];
    int labels[BATCH] = {9, 0, 4, 7, 2};
    float *on_device = device_memory(sizeof logits), *gradient = device_memory(sizeof logits);
    int *labels_there = device_memory(sizeof labels);
    Metrics *sums = device_memory(sizeof(Metrics));
    backend()->write(device_current(), labels_there, labels, sizeof labels);
    for (int first = 0; first < 3; first++)
        for (int place = 0; place < 2; place++) {
            Metrics metrics = {0};
            backend()->write(device_current(), sums, &metrics, sizeof metrics);
            for (int i = 0; i < 4; i++) {
                fill_logits(logits);
                if (i == first) // -INFINITY is only seen where the label is
                    logits[3 * CLASSES + 7] = bad[place == 0 ? 0 : 2];
                if (i == first && place == 1)
                    logits[CLASSES + 5] = bad[1];
                backend()->write(device_current(), on_device, logits, sizeof logits);
                backend()->cross_entropy(device_current(), on_device, labels_there, gradient, BATCH,
                                         CLASSES, sums);
            }
            backend()->read(device_current(), &metrics, sums, sizeof metrics);
            ck_assert_double_eq(metrics.batches, 4);
            ck_assert_double_eq(metrics.finite, first);
        }
    backend()->release(device_current(), on_device);
    backend()->release(device_current(), gradient);
    backend()->release(device_current(), labels_there);
    backend()->release(device_current(), sums);
}
END_TEST

// Sums over many equal numbers, where one float loses digits with each. All inputs and gradients
// are 0.7; `sum` is the gradient that then is 0.7 for each pixel of the batch (or the output, the
// mean).
enum { MEAN_ITSELF = -1 };
static const struct {
    Spec spec;
    int sum;
} long_sums[] = {
    {{OP_GLOBAL_AVERAGE_POOL, .batch = 1, .in = {700, 700, 16}}, MEAN_ITSELF},
    {{OP_GLOBAL_AVERAGE_POOL, .batch = 1, .in = {700, 700, 3}}, MEAN_ITSELF},
    {{OP_BATCH_NORM, .batch = 1, .in = {700, 700, 16}}, BETA},
    {{OP_BATCH_NORM, .batch = 1, .in = {700, 700, 8}, .relu = true}, BETA},
    {{OP_BATCH_NORM, .batch = 1, .in = {700, 700, 3}}, BETA},
    {{OP_BATCH_NORM, .batch = 490000, .in = {1, 1, 5}, .flat = true}, BETA},
    {{OP_CONV2D, .batch = 1, .in = {700, 700, 1}, .filters = 16, .size = 3, .image = true}, BIAS},
    {{OP_CONV2D, .batch = 1, .in = {700, 700, 16}, .filters = 16, .size = 3}, BIAS},
    {{OP_DENSE, .batch = 490000, .in = {1, 1, 2}, .filters = 3, .flat = true}, BIAS},
    {{OP_EMBEDDING, .batch = 1, .in = {1, 490000, 1}, .size = 1, .filters = 9, .image = true},
     EMBEDDINGS},
};

START_TEST(long_sums_keep_their_digits)
{
    const Spec *spec = &long_sums[_i].spec;
    Trial *t = trial_create(spec);
    const double count = 490000, value = 0.7f;
    for (size_t i = 0; i < value_size(t->op.in, t->batch); i++)
        t->sources[INPUT][i] = spec->kind == OP_EMBEDDING ? 0 : (float)value;
    for (size_t i = 0; i < value_size(t->op.out, t->batch); i++)
        t->output_gradient[0][i] = (float)value;
    for (int c = 0; spec->kind == OP_BATCH_NORM && c < spec->in.channels; c++)
        t->sources[BETA][c] = 1; // through the ReLU
    trial_run(t);
    bool mean = long_sums[_i].sum == MEAN_ITSELF;
    double got = (double)(mean ? t->output[0] : t->gradients[long_sums[_i].sum][0]);
    double expected = mean ? value : count * value;
    ck_assert_msg(fabs(got - expected) <= 2e-5 * expected, "%s: %.9g instead of %.9g",
                  describe(spec), got, expected);
    trial_free(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("operations");

    TCase *others = operation_case(suite, "other operations");
    tcase_add_test(others, elementwise_operations_are_right);
    tcase_add_test(others, max_pool_is_right);
    tcase_add_loop_test(others, max_pool_gives_the_gradient_of_equal_pixels_to_the_first, 0, 8);
    tcase_add_loop_test(others, max_pool_with_relu_gives_no_gradient_where_nothing_is_above_zero, 0,
                        2);
    tcase_add_test(others, global_average_pool_is_right);
    tcase_add_test(others, flatten_is_right);
    tcase_add_test(others, embedding_is_right);
    tcase_add_test(others, embedding_gives_no_gradient_to_other_rows);
    tcase_add_test(others, dense_is_right);
    tcase_add_test(others, softmax_as_a_layer_is_right);

    TCase *all = operation_case(suite, "all operations");
    tcase_add_test(all, results_do_not_depend_on_the_number_of_threads);
    tcase_add_test(all, a_gradient_in_two_parts_is_their_sum);
    tcase_add_loop_test(all, nan_is_not_hidden, 0, 2 * COUNT(nan_specs));
    tcase_add_loop_test(all, max_pool_does_not_hide_nan, 0, 8);
    tcase_add_test(all, dropout_does_not_hide_nan);

    TCase *sums = operation_case(suite, "long sums");
    if (settings()->precision != PRECISION_BF16)
        tcase_add_loop_test(sums, long_sums_keep_their_digits, 0, COUNT(long_sums));

    TCase *rest = operation_case(suite, "beside operations");
    tcase_add_test(rest, softmax_is_right);
    tcase_add_test(rest, cross_entropy_is_right);
    tcase_add_test(rest, cross_entropy_counts_finite_batches);

    return run_suite(suite);
}
