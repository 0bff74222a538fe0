// Compares what an operation gave with the double-precision reference: the forward pass directly,
// the backward pass with finite differences.

#include "comparison.h"

#include <math.h>

#include "child.h"
#include "run/device.h"
#include "base/memory.h"

#define GRADIENT_TOLERANCE 1e-4 // includes what finite differences leave out

#define STEP 1e-5 // of finite differences

double rounding(void)
{
    static const double errors[] = {
        [PRECISION_FP32] = 0, [PRECISION_TF32] = 2e-3, [PRECISION_BF16] = 2e-2};
    return errors[device_precision()];
}

// Outputs closer to a kink than this get no gradient.
static double margin(void)
{
    return fmax(1e-3, 2 * rounding());
}

double *doubles(size_t count)
{
    return count ? allocate(count, sizeof(double)) : NULL;
}

double *widen(const float *values, size_t count)
{
    double *wide = doubles(count);
    for (size_t i = 0; i < count; i++)
        wide[i] = (double)values[i];
    return wide;
}

Reference reference_create(const Trial *t)
{
    size_t count = value_size(t->op.out, t->batch);
    Reference r = {.op = &t->op, .batch = t->batch, .training = true};
    for (int source = 0; source < SOURCES; source++)
        r.sources[source] = widen(t->sources[source], source_size(&t->op, t->batch, source));
    r.kept = doubles(count);
    r.output = doubles(count);
    r.distance = doubles(count);
    for (size_t i = 0; i < count; i++)
        r.distance[i] = INFINITY;
    return r;
}

void reference_free(Reference *r)
{
    for (int source = 0; source < SOURCES; source++)
        free(r->sources[source]);
    free(r->kept);
    free(r->output);
    free(r->distance);
}

// The reference drops what the backend drops; which pattern that is has tests of its own.
static void copy_dropout(const Trial *t, Reference *r)
{
    for (size_t i = 0; i < value_size(t->op.out, t->batch); i++)
        r->kept[i] = t->output[i] != 0;
}

// At a kink, rounding decides on which side a float falls, and the derivative is another on each.
static void ignore_kinks(const Trial *t, const Reference *r)
{
    for (size_t i = 0; i < value_size(t->op.out, t->batch); i++)
        for (int part = 0; part < 2; part++)
            if (t->output_gradient[part] && r->distance[i] < margin())
                t->output_gradient[part][i] = 0;
}

double largest_error(const float *values, const double *expected, size_t count)
{
    double difference = 0, largest = 1e-6;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)values[i] - expected[i]);
        difference = d <= difference ? difference : isnan(d) ? INFINITY : d;
        largest = fmax(largest, fabs(expected[i]));
    }
    return difference / largest;
}

void check_error(const Spec *spec, const char *what, double error, double tolerance)
{
    tolerance = fmax(tolerance, rounding());
    ck_assert_msg(error <= tolerance,
                  "%s: %s is off by %.1e of its largest value (%.0e is allowed)", describe(spec),
                  what, error, tolerance);
}

void check_output(const Spec *spec, const Trial *t, const Reference *r, const char *what)
{
    double error = largest_error(t->output, r->output, value_size(t->op.out, t->batch));
    check_error(spec, what, error, FORWARD_TOLERANCE);
}

static double finite_difference(const Reference *r, int source, size_t element,
                                const double *weights)
{
    Box box = reach(r, source, element);
    double *place = &r->sources[source][element], before = *place;
    *place = before + STEP;
    double above = reference_loss(r, box, weights);
    *place = before - STEP;
    double below = reference_loss(r, box, weights);
    *place = before;
    return (above - below) / (2 * STEP);
}

// How many elements of a source to try: all, or as many as can be had for some work.
static size_t sample_count(const Reference *r, int source, size_t count)
{
    double affordable = 2e6 / reference_cost(r, reach(r, source, count / 2));
    size_t samples = affordable > 12 ? (size_t)affordable : 12;
    return samples < count ? samples : count;
}

static void check_gradient(const Spec *spec, const Trial *t, const Reference *r, int source,
                           const double *weights)
{
    static const char *const names[SOURCES] = {"the gradient of kernel or gamma",
                                               "the gradient of bias or beta",
                                               "",
                                               "",
                                               "the input's gradient",
                                               "the residual's gradient"};
    size_t count = source_size(&t->op, t->batch, source), samples = sample_count(r, source, count);
    float *values = floats(samples);
    double *expected = doubles(samples);
    Rng rng = rng_stream_of(2, RNG_SYNTHETIC_DATA, 0);
    for (size_t i = 0; i < samples; i++) {
        size_t begin = i * count / samples, end = (i + 1) * count / samples;
        size_t element = begin + rng_below(&rng, (uint32_t)(end - begin));
        values[i] = t->gradients[source][element];
        expected[i] = finite_difference(r, source, element, weights);
    }
    check_error(spec, names[source], largest_error(values, expected, samples), GRADIENT_TOLERANCE);
    free(values);
    free(expected);
}

static bool has_gradient(const Op *op, int batch, int source)
{
    if (source == INPUT)
        return !op->input_is_image;
    if (source == RESIDUAL)
        return op->residual >= 0;
    return source_size(op, batch, source) > 0 && op->variables[source]->trainable &&
           !op->variables[source]->no_gradient;
}

static void check_gradients(const Spec *spec, const Trial *t, const Reference *r)
{
    size_t count = value_size(t->op.out, t->batch);
    double *weights = widen(t->output_gradient[0], count);
    for (size_t i = 0; t->output_gradient[1] && i < count; i++)
        weights[i] += (double)t->output_gradient[1][i];
    for (int source = 0; source < SOURCES; source++)
        if (has_gradient(&t->op, t->batch, source))
            check_gradient(spec, t, r, source, weights);
    if (spec->no_gradient)
        ck_assert_uint_eq(nonzeros(t->gradients[BIAS], (size_t)spec->filters), 0);
    free(weights);
}

double dot(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

// A convolution is linear in its input and in its kernel, so sum(output * r) without the bias is
// the product of either with its gradient. Unlike the samples above this sees every element.
static void check_linear(const Spec *spec, const Trial *t)
{
    const float *r = t->output_gradient[0], *bias = t->sources[BIAS];
    size_t count = value_size(t->op.out, t->batch), channels = (size_t)t->op.out.channels;
    double expected = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        double y = (double)t->output[i] - (double)bias[i % channels];
        expected += y * (double)r[i];
        squares += y * y * (double)r[i] * (double)r[i];
    }
    for (int source = 0; source < SOURCES; source++)
        if (source == KERNEL || (source == INPUT && !t->op.input_is_image)) {
            double sum = dot(t->sources[source], t->gradients[source],
                             source_size(&t->op, t->batch, source));
            check_error(spec, "input or kernel times its gradient",
                        fabs(sum - expected) / sqrt(squares), 1e-4);
        }
}

void check_statistics(const Spec *spec, const Trial *t, const Reference *r)
{
    size_t channels = (size_t)t->op.in.channels;
    double count = (double)source_size(&t->op, t->batch, INPUT) / (double)channels;
    double unbiased = count > 1 ? count / (count - 1) : 1, rate = r->training ? 0.01 : 0;
    double *means = doubles(channels), *variances = doubles(channels);
    for (size_t c = 0; c < channels; c++) {
        double mean, variance;
        reference_moments(r, (int)c, &mean, &variance);
        means[c] = (1 - rate) * r->sources[MOVING_MEAN][c] + rate * mean;
        variances[c] = (1 - rate) * r->sources[MOVING_VARIANCE][c] + rate * unbiased * variance;
    }
    check_error(spec, "the moving mean", largest_error(t->gradients[MOVING_MEAN], means, channels),
                1e-6);
    check_error(spec, "the moving variance",
                largest_error(t->gradients[MOVING_VARIANCE], variances, channels), 1e-6);
    free(means);
    free(variances);
}

static void check_inference(const Spec *spec, Trial *t, Reference *r)
{
    r->training = false;
    trial_forward(t, false);
    reference_forward(r, all_outputs(r));
    check_output(spec, t, r, "the output in inference");
    if (spec->kind == OP_BATCH_NORM)
        check_statistics(spec, t, r);
}

void check_trial(const Spec *spec, Trial *t)
{
    Reference r = reference_create(t);
    if (spec->dropout_rate > 0) {
        trial_forward(t, true);
        copy_dropout(t, &r);
    }
    reference_forward(&r, all_outputs(&r));
    ignore_kinks(t, &r);
    trial_run(t);
    check_output(spec, t, &r, "the output");
    check_gradients(spec, t, &r);
    if (spec->kind == OP_CONV2D && !spec->relu)
        check_linear(spec, t);
    if (spec->kind == OP_BATCH_NORM)
        check_statistics(spec, t, &r);
    uint64_t before = trial_fingerprint(t);
    trial_run(t);
    ck_assert_msg(trial_fingerprint(t) == before, "%s: other bits when repeated", describe(spec));
    if (spec->kind == OP_BATCH_NORM || spec->dropout_rate > 0)
        check_inference(spec, t, &r);
    reference_free(&r);
}

void check_spec(Spec spec)
{
    Trial *t = trial_create(&spec);
    check_trial(&spec, t);
    trial_free(t);
}

void check_specs(const Spec *specs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_spec(specs[i]);
}
