// Batch norm with all that may be fused to it, its statistics, and dropout, alone and fused,
// against the double-precision reference. Only through backend.h, so that every backend has to
// pass.

#include <float.h>
#include <math.h>
#include <string.h>

#include "child.h"
#include "comparison.h"
#include "operation.h"
#include "reference.h"
#include "base/rng.h"
#include "base/memory.h"

// Batch norm.

// Every form that lowering produces (lower.c), each with one and with two parts of the gradient.
static void check_batch_norm(int batch, Shape in, bool flat)
{
    static const Spec forms[] = {
        {.relu = false},
        {.relu = true},
        {.relu = true, .dropout_rate = 0.25f},
        {.relu = true, .residual = true},
        {.residual = true},
    };
    for (size_t i = 0; i < 2 * COUNT(forms); i++) {
        Spec spec = forms[i / 2];
        spec.kind = OP_BATCH_NORM;
        spec.batch = batch;
        spec.in = in;
        spec.flat = flat;
        spec.two_parts = i % 2;
        check_spec(spec);
    }
}

START_TEST(batch_norm_is_right)
{
    check_batch_norm(2, (Shape){5, 7, 17}, false);
    check_batch_norm(1, (Shape){1, 1, 3}, false);
    check_batch_norm(3, (Shape){1, 1, 9}, false);
    check_batch_norm(3, (Shape){3, 2, 8}, false);
    check_batch_norm(2, (Shape){7, 1, 33}, false);
    check_batch_norm(1, (Shape){4, 6, 16}, false);
    check_batch_norm(3, (Shape){5, 5, 5}, false);
    check_batch_norm(2, (Shape){2, 3, 1}, false);
}
END_TEST

START_TEST(batch_norm_of_vectors_is_right)
{
    check_batch_norm(3, (Shape){1, 1, 10}, true);
    check_batch_norm(8, (Shape){1, 1, 33}, true);
    check_batch_norm(5, (Shape){1, 1, 16}, true); // as many channels as a block has: another path
    check_batch_norm(7, (Shape){1, 1, 8}, true);
    check_batch_norm(4, (Shape){1, 1, 1}, true);
    check_batch_norm(64, (Shape){1, 1, 128}, true);
}
END_TEST

START_TEST(batch_norm_is_right_in_wide_resnet)
{
    check_batch_norm(32, (Shape){28, 28, 16}, false);
    check_batch_norm(64, (Shape){14, 14, 32}, false);
    check_batch_norm(64, (Shape){7, 7, 64}, false);
}
END_TEST

// The mean is kept as a float, so all of a channel is off by up to half of the mean's last place.
START_TEST(batch_statistics_keep_digits_beside_a_large_mean)
{
    static const float deviations[] = {1, 0.3f, 0.1f};
    for (size_t i = 0; i < COUNT(deviations); i++) {
        Spec spec = {OP_BATCH_NORM, .batch = 4, .in = {9, 9, 17}};
        Trial *t = trial_create(&spec);
        Rng rng = rng_stream_of(3, RNG_SYNTHETIC_DATA, i);
        fill_normal(&rng, t->sources[INPUT], value_size(spec.in, spec.batch), 1000, deviations[i]);
        memset(t->sources[MOVING_VARIANCE], 0, 17 * sizeof(float)); // it would hide the batch's
        Reference r = reference_create(t);
        reference_forward(&r, all_outputs(&r));
        trial_run(t);
        check_statistics(&spec, t, &r);
        double mean_error = 1000 * (double)FLT_EPSILON / (double)deviations[i];
        check_error(&spec, "the output",
                    largest_error(t->output, r.output, value_size(spec.in, spec.batch)),
                    mean_error + FORWARD_TOLERANCE);
        reference_free(&r);
        trial_free(t);
    }
}
END_TEST

START_TEST(a_constant_channel_is_normalized_to_beta)
{
    Spec spec = {OP_BATCH_NORM, .batch = 3, .in = {5, 4, 9}, .relu = true};
    Trial *t = trial_create(&spec);
    size_t count = value_size(spec.in, spec.batch);
    for (size_t i = 0; i < count; i++)
        if (i % 9 % 2 == 0)
            t->sources[INPUT][i] = 1000.1f * (float)(i % 9);
    check_trial(&spec, t);
    trial_forward(t, true);
    for (size_t i = 0; i < count; i++)
        if (i % 9 % 2 == 0)
            ck_assert_float_eq(t->output[i], fmaxf(t->sources[BETA][i % 9], 0));
    trial_free(t);
}
END_TEST

START_TEST(batch_statistics_keep_digits_over_many_pixels)
{
    Spec spec = {OP_BATCH_NORM, .batch = 128, .in = {64, 64, 8}};
    Trial *t = trial_create(&spec);
    Rng rng = rng_stream_of(4, RNG_SYNTHETIC_DATA, 0);
    fill_normal(&rng, t->sources[INPUT], value_size(spec.in, spec.batch), 3, 1);
    Reference r = reference_create(t);
    reference_forward(&r, all_outputs(&r));
    trial_run(t);
    check_statistics(&spec, t, &r);
    check_output(&spec, t, &r, "the output");
    reference_free(&r);
    trial_free(t);
}
END_TEST

// Dropout.

// A trial where nothing but dropout makes zeros: behind batch norm all values are 1.
static Trial *dropout_trial(const Spec *spec)
{
    Trial *t = trial_create(spec);
    for (int c = 0; spec->kind == OP_BATCH_NORM && c < spec->in.channels; c++) {
        t->sources[GAMMA][c] = 0;
        t->sources[BETA][c] = 1;
    }
    return t;
}

static void check_scaled(const Spec *spec, const float *values, const float *all,
                         const float *output, size_t count)
{
    float scale = 1 / (1 - spec->dropout_rate), tolerance = fmaxf(1e-6f, (float)rounding());
    for (size_t i = 0; i < count; i++) {
        float expected = output[i] == 0 ? 0 : all[i] * scale;
        ck_assert_msg(fabsf(values[i] - expected) <= tolerance * fabsf(expected),
                      "%s: %g instead of %g", describe(spec), (double)values[i], (double)expected);
    }
}

static void check_dropout(const Spec *spec)
{
    Trial *t = dropout_trial(spec);
    size_t count = value_size(spec->in, spec->batch), bytes = count * sizeof(float);
    float *all = floats(count);
    trial_forward(t, false);
    memcpy(all, t->output, bytes);
    trial_run(t);
    check_scaled(spec, t->output, all, t->output, count);
    if (spec->kind == OP_DROPOUT)
        check_scaled(spec, t->gradients[INPUT], t->output_gradient[0], t->output, count);

    double dropped = (double)(count - nonzeros(t->output, count)),
           rate = (double)spec->dropout_rate;
    double deviation = sqrt((double)count * rate * (1 - rate));
    ck_assert_msg(fabs(dropped - (double)count * rate) <= 5 * deviation,
                  "%s: %g of %zu dropped at the rate %g", describe(spec), dropped, count, rate);
    free(all);
    trial_free(t);
}

START_TEST(dropout_drops_at_its_rate_and_scales_the_rest)
{
    static const float rates[] = {0, 0.01f, 0.1f, 0.5f, 0.9f};
    static const Spec shapes[] = {
        {OP_DROPOUT, .batch = 8, .in = {14, 13, 16}},
        {OP_DROPOUT, .batch = 3, .in = {31, 17, 9}},
        {OP_DROPOUT, .batch = 64, .in = {1, 1, 129}, .flat = true},
        {OP_BATCH_NORM, .batch = 8, .in = {14, 13, 16}, .relu = true},
        {OP_BATCH_NORM, .batch = 3, .in = {31, 17, 9}, .relu = true},
        {OP_BATCH_NORM, .batch = 64, .in = {1, 1, 129}, .flat = true, .relu = true},
    };
    for (size_t i = 0; i < COUNT(shapes) * COUNT(rates); i++) {
        Spec spec = shapes[i / COUNT(rates)];
        spec.dropout_rate = rates[i % COUNT(rates)];
        check_dropout(&spec);
    }
}
END_TEST

// The pattern of a key: 1 where an element is kept, -1 where it is dropped.
static float *dropout_pattern(Trial *t, uint64_t key)
{
    size_t count = value_size(t->op.out, t->batch);
    float *pattern = floats(count);
    t->dropout_key = key;
    trial_forward(t, true);
    for (size_t i = 0; i < count; i++)
        pattern[i] = t->output[i] == 0 ? -1 : 1;
    return pattern;
}

// The correlation of two independent patterns of rate 1/2 is normal with deviation 1 / sqrt(count).
static void check_uncorrelated(const float *a, const float *b, size_t count, const char *what)
{
    double correlation = dot(a, b, count) / (double)count;
    ck_assert_msg(fabs(correlation) <= 5 / sqrt((double)count), "%s are correlated: %g over %zu",
                  what, correlation, count);
}

static void check_patterns(Trial *t, const uint64_t *keys, size_t count)
{
    size_t length = value_size(t->op.out, t->batch);
    float **patterns = allocate(count, sizeof *patterns);
    for (size_t i = 0; i < count; i++)
        patterns[i] = dropout_pattern(t, keys[i]);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++)
            check_uncorrelated(patterns[i], patterns[j], length, "the patterns of two keys");
        for (size_t lag = 1; lag < length / 2; lag = lag < 70 ? lag + 1 : 2 * lag) {
            const float *shifted = patterns[i] + lag, *other = patterns[i ? i - 1 : count - 1];
            check_uncorrelated(patterns[i], shifted, length - lag, "elements of a pattern");
            check_uncorrelated(other, shifted, length - lag, "shifted patterns of two keys");
        }
    }
    for (size_t i = 0; i < count; i++)
        free(patterns[i]);
    free(patterns);
}

START_TEST(dropout_patterns_are_independent)
{
    // Keys that differ little, then keys as a model draws them from one step to the next.
    uint64_t keys[12] = {0, 1, 2, 3, 4, 5};
    for (uint64_t step = 0; step < 6; step++) {
        Rng rng = rng_stream_of(1, RNG_DROPOUT, step << 16);
        keys[6 + step] = rng_next(&rng);
    }
    Spec alone = {OP_DROPOUT, .batch = 8, .in = {14, 14, 32}, .dropout_rate = 0.5f};
    Spec fused = alone;
    fused.kind = OP_BATCH_NORM;
    fused.relu = true;
    Trial *trials[] = {dropout_trial(&alone), dropout_trial(&fused)};
    for (int i = 0; i < 2; i++) {
        check_patterns(trials[i], keys, COUNT(keys));
        trial_free(trials[i]);
    }
}
END_TEST

START_TEST(every_bit_of_the_key_changes_the_dropout_pattern)
{
    Spec spec = {OP_DROPOUT, .batch = 1, .in = {5, 5, 16}, .dropout_rate = 0.5f};
    Trial *t = dropout_trial(&spec);
    size_t bytes = value_size(spec.in, spec.batch) * sizeof(float);
    float *first = dropout_pattern(t, 0);
    for (int bit = 0; bit < 64; bit++) {
        float *other = dropout_pattern(t, UINT64_C(1) << bit);
        ck_assert_msg(memcmp(first, other, bytes) != 0, "bit %d does not matter", bit);
        free(other);
    }
    free(first);
    trial_free(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch norm");

    TCase *norm = operation_case(suite, "batch norm");
    tcase_add_test(norm, batch_norm_is_right);
    tcase_add_test(norm, batch_norm_of_vectors_is_right);
    tcase_add_test(norm, batch_norm_is_right_in_wide_resnet);
    tcase_add_test(norm, batch_statistics_keep_digits_beside_a_large_mean);
    tcase_add_test(norm, batch_statistics_keep_digits_over_many_pixels);
    tcase_add_test(norm, a_constant_channel_is_normalized_to_beta);

    TCase *dropout = operation_case(suite, "dropout");
    tcase_add_test(dropout, dropout_drops_at_its_rate_and_scales_the_rest);
    tcase_add_test(dropout, dropout_patterns_are_independent);
    tcase_add_test(dropout, every_bit_of_the_key_changes_the_dropout_pattern);

    return run_suite(suite);
}
