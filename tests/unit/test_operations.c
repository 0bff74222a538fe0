// Every operation of a backend, alone, against the double-precision reference: the forward pass
// directly, the backward pass by finite differences. Only through backend.h, so that every backend
// has to pass. How values lie in device memory is the backend's business, so they go in through the
// backward pass of flatten and come out through its forward pass; that this is NHWC order is proved
// by the convolutions that read images.

#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend.h"
#include "child.h"
#include "onednn.h"
#include "reference.h"
#include "rng.h"
#include "util.h"

// Errors are relative to the tensor's largest value. A float has 6e-8, and sums of some hundred
// products lose one to two digits; so does Winograd. Sums over all pixels lose a little more.
#define FORWARD_TOLERANCE  1e-5
#define WINOGRAD_TOLERANCE 2e-5
#define GRADIENT_TOLERANCE 1e-4 // includes what finite differences leave out

#define STEP   1e-5 // of finite differences
#define MARGIN 1e-3 // outputs closer to a kink than this get no gradient
#define GAP    16   // floats between variables in an arena

#define COUNT(array) (sizeof(array) / sizeof *(array))

// An operation in few words.
typedef struct {
    OpKind kind;
    int batch;
    Shape in;
    int filters; // of a convolution; units of a dense layer
    int size;
    bool relu, residual, image, flat, no_gradient;
    bool two_parts; // the output's gradient comes in two
    float dropout_rate;
} Spec;

// From a spec to an operation with its variables.

static Shape output_shape(const Spec *s)
{
    Shape in = s->in;
    switch (s->kind) {
    case OP_CONV2D:
        return (Shape){in.height, in.width, s->filters};
    case OP_MAX_POOL:
        return (Shape){in.height / s->size, in.width / s->size, in.channels};
    case OP_GLOBAL_AVERAGE_POOL:
        return (Shape){1, 1, in.channels};
    case OP_FLATTEN:
        return (Shape){1, 1, in.height * in.width * in.channels};
    case OP_DENSE:
        return (Shape){1, 1, s->filters};
    case OP_BATCH_NORM:
    case OP_RELU:
    case OP_DROPOUT:
    case OP_ADD:
        break;
    }
    return in;
}

static const char *describe(const Spec *s)
{
    static const char *const names[] = {"conv2d",   "batch_norm", "relu",    "dropout", "add",
                                        "max_pool", "average",    "flatten", "dense"};
    static char text[160];
    snprintf(text, sizeof text, "%s %dx%dx%dx%d to %d channels, size %d%s%s%s%s%s%s%s",
             names[s->kind], s->batch, s->in.height, s->in.width, s->in.channels,
             output_shape(s).channels, s->size, s->image ? ", image" : "", s->flat ? ", flat" : "",
             s->relu ? ", relu" : "", s->dropout_rate > 0 ? ", dropout" : "",
             s->residual ? ", residual" : "", s->no_gradient ? ", bias without gradient" : "",
             s->two_parts ? ", gradient in two parts" : "");
    return text;
}

static Op op_of(const Spec *s)
{
    return (Op){.kind = s->kind,
                .residual = s->residual ? 2 : -1,
                .input = 0,
                .output = 1,
                .in = s->in,
                .out = output_shape(s),
                .size = s->size,
                .relu = s->relu,
                .dropout_rate = s->dropout_rate,
                .input_is_image = s->image,
                .flat = s->flat};
}

static void make_variables(const Spec *s, Op *op, Variable *variables)
{
    int channels = op->out.channels, count = 0;
    if (s->kind == OP_CONV2D || s->kind == OP_DENSE) {
        variables[KERNEL] = (Variable){.ndims = 2, .dims = {s->in.channels, channels}};
        if (s->kind == OP_CONV2D)
            variables[KERNEL] =
                (Variable){.ndims = 4, .dims = {s->size, s->size, s->in.channels, channels}};
        variables[BIAS] = (Variable){.ndims = 1, .dims = {channels}, .no_gradient = s->no_gradient};
        count = 2;
    } else if (s->kind == OP_BATCH_NORM) {
        for (count = 0; count < MAX_VARIABLES; count++)
            variables[count] = (Variable){.ndims = 1, .dims = {channels}};
    }
    for (int i = 0; i < count; i++) {
        variables[i].trainable = i < MOVING_MEAN;
        op->variables[i] = &variables[i];
    }
}

// One operation with values for all that it reads, and room for all that it gives.
typedef struct {
    Op op;
    Variable variables[MAX_VARIABLES];
    int batch;
    uint64_t dropout_key;
    float *sources[SOURCES];   // in Keras's order, NULL where the operation has none
    float *output_gradient[2]; // its parts; the second may be NULL
    float *output;             // results
    float *gradients[SOURCES]; // results; of a moving statistic its new value
} Trial;

static float *floats(size_t count)
{
    return count ? allocate(count, sizeof(float)) : NULL;
}

static double *doubles(size_t count)
{
    return count ? allocate(count, sizeof(double)) : NULL;
}

static void fill_normal(Rng *rng, float *values, size_t count, float mean, float deviation)
{
    for (size_t i = 0; i < count; i++)
        values[i] = mean + deviation * rng_normal(rng);
}

// Values of a size that keeps the output near 1; gammas of both signs.
static void fill_source(const Trial *t, int source, Rng *rng)
{
    const Op *op = &t->op;
    size_t count = source_size(op, t->batch, source);
    if (op->kind == OP_BATCH_NORM && source == GAMMA)
        fill_normal(rng, t->sources[source], count, 0.5f, 1);
    else if (op->kind == OP_BATCH_NORM && source == MOVING_VARIANCE)
        for (size_t i = 0; i < count; i++)
            t->sources[source][i] = 0.5f + rng_uniform(rng);
    else if (op->kind != OP_BATCH_NORM && source == KERNEL)
        fill_normal(rng, t->sources[source], count, 0,
                    sqrtf((float)op->out.channels / (float)count));
    else
        fill_normal(rng, t->sources[source], count, 0, 1);
}

// Not movable: the operation points to the variables beside it.
static Trial *trial_create(const Spec *spec)
{
    Trial *t = allocate(1, sizeof *t);
    *t = (Trial){.op = op_of(spec), .batch = spec->batch, .dropout_key = 0x123456789abcdef0};
    make_variables(spec, &t->op, t->variables);
    Rng rng = rng_stream_of(1, RNG_SYNTHETIC_DATA, 0);
    for (int source = 0; source < SOURCES; source++) {
        size_t count = source_size(&t->op, t->batch, source);
        t->sources[source] = floats(count);
        t->gradients[source] = floats(count);
        fill_source(t, source, &rng);
    }
    size_t count = value_size(t->op.out, t->batch);
    t->output = floats(count);
    for (int part = 0; part <= spec->two_parts; part++) {
        t->output_gradient[part] = floats(count);
        fill_normal(&rng, t->output_gradient[part], count, 0, 1);
    }
    return t;
}

static void trial_free(Trial *t)
{
    for (int source = 0; source < SOURCES; source++) {
        free(t->sources[source]);
        free(t->gradients[source]);
    }
    free(t->output_gradient[0]);
    free(t->output_gradient[1]);
    free(t->output);
    free(t);
}

// Device memory.

// Not zeroed but full of NaN, so that a result shows what was read before it was written.
static void *device_memory(size_t bytes)
{
    void *poison = allocate(1, bytes + 1), *memory = backend()->allocate(bytes + 1);
    memset(poison, 0xff, bytes + 1);
    backend()->write(memory, poison, bytes + 1);
    free(poison);
    return memory;
}

static float *host_copy(const void *memory, size_t bytes)
{
    float *copy = allocate(1, bytes + 1);
    backend()->read(copy, memory, bytes);
    return copy;
}

static size_t nonzeros(const float *values, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += values[i] != 0;
    return found;
}

// Where the layout is wider than the tensor, the rest must be zero: the next operation counts on
// it.
static void check_padding(const void *memory, size_t bytes, const float *values, size_t count)
{
    float *raw = host_copy(memory, bytes);
    ck_assert_uint_eq(nonzeros(raw, bytes / sizeof(float)), nonzeros(values, count));
    free(raw);
}

static bool vector_input(const Op *op)
{
    return op->input_is_image || op->flat;
}

static bool vector_output(const Op *op)
{
    return op->flat || op->kind == OP_GLOBAL_AVERAGE_POOL || op->kind == OP_FLATTEN;
}

// Changes an activation's layout: the two passes of flatten.

static Op flatten_of(Shape shape)
{
    return op_of(&(Spec){OP_FLATTEN, .in = shape});
}

static void to_layout(Shape shape, int batch, const float *nhwc, void *to)
{
    Op flatten = flatten_of(shape);
    OpSizes sizes;
    OpState *state = backend()->op_create(&flatten, batch, &sizes);
    void *scratch = device_memory(sizes.scratch), *vector = device_memory(sizes.output);
    backend()->write(vector, nhwc, sizes.output);
    backend()->backward(
        state,
        &(BackwardArgs){.output_gradient = vector, .input_gradient = to, .scratch = scratch});
    backend()->release(vector);
    backend()->release(scratch);
    backend()->op_free(state);
}

static void from_layout(Shape shape, int batch, const void *from, float *nhwc)
{
    Op flatten = flatten_of(shape);
    OpSizes sizes;
    OpState *state = backend()->op_create(&flatten, batch, &sizes);
    void *scratch = device_memory(sizes.scratch), *vector = device_memory(sizes.output);
    backend()->forward(state, &(ForwardArgs){.input = from, .output = vector, .scratch = scratch});
    backend()->read(nhwc, vector, sizes.output);
    check_padding(from, sizes.input, nhwc, sizes.output / sizeof(float));
    backend()->release(vector);
    backend()->release(scratch);
    backend()->op_free(state);
}

// `vector`: it lies in memory as the tests have it.
static void put(Shape shape, int batch, bool vector, const float *nhwc, void *to)
{
    if (vector)
        backend()->write(to, nhwc, value_size(shape, batch) * sizeof(float));
    else
        to_layout(shape, batch, nhwc, to);
}

static void get(Shape shape, int batch, bool vector, const void *from, float *nhwc)
{
    if (vector)
        backend()->read(nhwc, from, value_size(shape, batch) * sizeof(float));
    else
        from_layout(shape, batch, from, nhwc);
}

// A trial on the device.
typedef struct {
    OpState *state;
    OpSizes sizes;
    Arenas arenas;
    size_t weights_length, statistics_length;
    void *input, *residual, *output, *saved, *scratch;
} Stage;

static void lay_out_variables(Trial *t, Stage *s)
{
    backend()->declare_variables(&t->op);
    for (int i = 0; i < MAX_VARIABLES && t->op.variables[i]; i++) {
        Variable *v = t->op.variables[i];
        size_t *end = v->trainable ? &s->weights_length : &s->statistics_length;
        *end += GAP;
        v->offset = *end;
        *end += (v->length + GAP - 1) / GAP * GAP;
    }
    s->arenas.weights = backend()->allocate((s->weights_length + GAP) * sizeof(float));
    s->arenas.statistics = backend()->allocate((s->statistics_length + GAP) * sizeof(float));
    s->arenas.gradients = device_memory((s->weights_length + GAP) * sizeof(float));
}

static float *arena_of(const Stage *s, const Variable *v)
{
    return v->trainable ? s->arenas.weights : s->arenas.statistics;
}

// A bias that has no gradient finds zeros in its place, and must leave them there.
static void write_variables(const Trial *t, const Stage *s)
{
    for (int i = 0; i < MAX_VARIABLES && t->op.variables[i]; i++) {
        const Variable *v = t->op.variables[i];
        backend()->write_variable(&t->op, v, arena_of(s, v), t->sources[i]);
        size_t count = source_size(&t->op, t->batch, i);
        float *again = floats(v->length);
        backend()->read_variable(&t->op, v, arena_of(s, v), again);
        ck_assert_mem_eq(again, t->sources[i], count * sizeof *again);
        memset(again, 0, v->length * sizeof *again);
        if (v->no_gradient)
            backend()->write(s->arenas.gradients + v->offset, again, v->length * sizeof *again);
        free(again);
    }
}

static Stage stage_create(Trial *t)
{
    Stage s = {0};
    const Op *op = &t->op;
    lay_out_variables(t, &s);
    write_variables(t, &s);
    s.state = backend()->op_create(op, t->batch, &s.sizes);
    s.input = device_memory(s.sizes.input);
    s.output = device_memory(s.sizes.output);
    s.saved = device_memory(s.sizes.saved);
    s.scratch = device_memory(s.sizes.scratch);
    put(op->in, t->batch, vector_input(op), t->sources[INPUT], s.input);
    if (op->residual >= 0) {
        s.residual = device_memory(s.sizes.output);
        put(op->out, t->batch, vector_output(op), t->sources[RESIDUAL], s.residual);
    }
    return s;
}

static void stage_free(Stage *s)
{
    void *all[] = {s->arenas.weights, s->arenas.gradients, s->arenas.statistics,
                   s->input,          s->residual,         s->output,
                   s->saved,          s->scratch};
    for (size_t i = 0; i < COUNT(all); i++)
        backend()->release(all[i]);
    backend()->op_free(s->state);
}

static void forward(Trial *t, const Stage *s, bool training)
{
    backend()->forward(s->state, &(ForwardArgs){.input = s->input,
                                                .residual = s->residual,
                                                .output = s->output,
                                                .saved = s->saved,
                                                .scratch = s->scratch,
                                                .arenas = s->arenas,
                                                .training = training,
                                                .dropout_key = t->dropout_key});
    get(t->op.out, t->batch, vector_output(&t->op), s->output, t->output);
}

// Where the plan of a model puts gradients (plan.c): over each other where that is allowed.
static void backward(Trial *t, const Stage *s)
{
    const Op *op = &t->op;
    bool vector = vector_output(op), in_place = op_in_place(op) || op->kind == OP_ADD;
    void *gradient = device_memory(s->sizes.output), *gradient2 = NULL;
    void *residual_gradient = op->kind == OP_ADD ? device_memory(s->sizes.output) : gradient;
    void *input_gradient = in_place ? gradient : device_memory(s->sizes.input);
    put(op->out, t->batch, vector, t->output_gradient[0], gradient);
    if (t->output_gradient[1]) {
        gradient2 = device_memory(s->sizes.output);
        put(op->out, t->batch, vector, t->output_gradient[1], gradient2);
    }
    backend()->backward(
        s->state,
        &(BackwardArgs){.input = s->input,
                        .output = s->output,
                        .saved = s->saved,
                        .scratch = s->scratch,
                        .arenas = s->arenas,
                        .output_gradient = gradient,
                        .output_gradient2 = gradient2,
                        .input_gradient = op->input_is_image ? NULL : input_gradient,
                        .residual_gradient = op->kind == OP_ADD ? residual_gradient : NULL,
                        .dropout_key = t->dropout_key});
    if (!op->input_is_image)
        get(op->in, t->batch, vector_input(op), input_gradient, t->gradients[INPUT]);
    if (op->residual >= 0)
        get(op->out, t->batch, vector, residual_gradient, t->gradients[RESIDUAL]);
    if (!in_place)
        backend()->release(input_gradient);
    if (residual_gradient != gradient)
        backend()->release(residual_gradient);
    backend()->release(gradient2);
    backend()->release(gradient);
}

static void read_statistics(Trial *t, const Stage *s)
{
    for (int i = 0; i < MAX_VARIABLES && t->op.variables[i]; i++)
        if (!t->op.variables[i]->trainable)
            backend()->read_variable(&t->op, t->op.variables[i], s->arenas.statistics,
                                     t->gradients[i]);
}

// The gradients of the weights. What lies between them must be as it was: not a number.
static void read_gradients(Trial *t, const Stage *s)
{
    size_t length = s->weights_length + GAP, between = length;
    for (int i = 0; i < MAX_VARIABLES && t->op.variables[i]; i++) {
        const Variable *v = t->op.variables[i];
        if (!v->trainable)
            continue;
        backend()->read_variable(&t->op, v, s->arenas.gradients, t->gradients[i]);
        check_padding(s->arenas.gradients + v->offset, v->length * sizeof(float), t->gradients[i],
                      source_size(&t->op, t->batch, i));
        between -= v->length;
    }
    float *raw = host_copy(s->arenas.gradients, length * sizeof(float));
    size_t untouched = 0;
    for (size_t i = 0; i < length; i++)
        untouched += isnan(raw[i]) != 0;
    ck_assert_uint_eq(untouched, between);
    free(raw);
}

static void run_forward(Trial *t, bool training)
{
    Stage s = stage_create(t);
    forward(t, &s, training);
    read_statistics(t, &s);
    stage_free(&s);
}

// A training step: both passes.
static void run(Trial *t)
{
    Stage s = stage_create(t);
    forward(t, &s, true);
    backward(t, &s);
    read_statistics(t, &s);
    read_gradients(t, &s);
    stage_free(&s);
}

// A number that stands for all bits of the results.
static uint64_t fingerprint(const Trial *t)
{
    uint64_t hash = 0xcbf29ce484222325; // FNV-1a, by words
    for (int source = -1; source < SOURCES; source++) {
        const float *values = source < 0 ? t->output : t->gradients[source];
        size_t count =
            source < 0 ? value_size(t->op.out, t->batch) : source_size(&t->op, t->batch, source);
        for (size_t i = 0; i < count; i++) {
            uint32_t word;
            memcpy(&word, &values[i], sizeof word);
            hash = (hash ^ word) * 0x100000001b3;
        }
    }
    return hash;
}

// The same operation on the same values in double precision.

static double *widen(const float *values, size_t count)
{
    double *wide = doubles(count);
    for (size_t i = 0; i < count; i++)
        wide[i] = (double)values[i];
    return wide;
}

static Reference reference_create(const Trial *t)
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

static void reference_free(Reference *r)
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
            if (t->output_gradient[part] && r->distance[i] < MARGIN)
                t->output_gradient[part][i] = 0;
}

// Comparisons.

// The largest difference relative to the largest expected value; infinite where one is not a
// number.
static double largest_error(const float *values, const double *expected, size_t count)
{
    double difference = 0, largest = 1e-6;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)values[i] - expected[i]);
        difference = d <= difference ? difference : isnan(d) ? INFINITY : d;
        largest = fmax(largest, fabs(expected[i]));
    }
    return difference / largest;
}

static void check_error(const Spec *spec, const char *what, double error, double tolerance)
{
    ck_assert_msg(error <= tolerance,
                  "%s: %s is off by %.1e of its largest value (%.0e is allowed)", describe(spec),
                  what, error, tolerance);
}

static void check_output(const Spec *spec, const Trial *t, const Reference *r, const char *what)
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

static double dot(const float *a, const float *b, size_t count)
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

// Batch norm's moving statistics, after a training step or after inference.
static void check_statistics(const Spec *spec, const Trial *t, const Reference *r)
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
    run_forward(t, false);
    reference_forward(r, all_outputs(r));
    check_output(spec, t, r, "the output in inference");
    if (spec->kind == OP_BATCH_NORM)
        check_statistics(spec, t, r);
}

static void check_trial(const Spec *spec, Trial *t)
{
    Reference r = reference_create(t);
    if (spec->dropout_rate > 0) {
        run_forward(t, true);
        copy_dropout(t, &r);
    }
    reference_forward(&r, all_outputs(&r));
    ignore_kinks(t, &r);
    run(t);
    check_output(spec, t, &r, "the output");
    check_gradients(spec, t, &r);
    if (spec->kind == OP_CONV2D && !spec->relu)
        check_linear(spec, t);
    if (spec->kind == OP_BATCH_NORM)
        check_statistics(spec, t, &r);
    uint64_t before = fingerprint(t);
    run(t);
    ck_assert_msg(fingerprint(t) == before, "%s: other bits when repeated", describe(spec));
    if (spec->kind == OP_BATCH_NORM || spec->dropout_rate > 0)
        check_inference(spec, t, &r);
    reference_free(&r);
}

static void check_spec(Spec spec)
{
    Trial *t = trial_create(&spec);
    check_trial(&spec, t);
    trial_free(t);
}

static void check_specs(const Spec *specs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_spec(specs[i]);
}

#define CHECK_SPECS(specs) check_specs(specs, COUNT(specs))

// Convolution.

START_TEST(conv2d_is_right)
{
    static const Spec shapes[] = {
        {.batch = 1, .in = {1, 1, 1}, .filters = 1, .size = 3},
        {.batch = 2, .in = {5, 7, 17}, .filters = 33, .size = 3},
        {.batch = 3, .in = {4, 3, 8}, .filters = 9, .size = 1},
        {.batch = 1, .in = {7, 6, 33}, .filters = 5, .size = 3},
        {.batch = 3, .in = {3, 5, 16}, .filters = 16, .size = 3},
        {.batch = 2, .in = {6, 6, 9}, .filters = 17, .size = 5},
        {.batch = 2, .in = {2, 1, 5}, .filters = 3, .size = 3},
        {.batch = 1, .in = {1, 7, 3}, .filters = 8, .size = 1},
        {.batch = 2, .in = {7, 5, 1}, .filters = 8, .size = 3, .image = true},
        {.batch = 3, .in = {5, 6, 3}, .filters = 16, .size = 3, .image = true},
        {.batch = 2, .in = {6, 5, 3}, .filters = 17, .size = 1, .image = true},
        {.batch = 1, .in = {7, 7, 1}, .filters = 33, .size = 5, .image = true},
        {.batch = 2, .in = {4, 7, 5}, .filters = 9, .size = 3, .image = true},
        {.batch = 1, .in = {3, 3, 17}, .filters = 1, .size = 3, .image = true},
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        Spec spec = shapes[i];
        spec.kind = OP_CONV2D;
        check_spec(spec);
        spec.relu = true;
        check_spec(spec);
        spec.relu = false;
        spec.no_gradient = true;
        check_spec(spec);
    }
}
END_TEST

// Wide ResNet's convolutions, at batch sizes where oneDNN changes to Winograd: with AVX-512 forward
// and for the input's gradient. Shortcuts have a kernel of 1.
START_TEST(conv2d_is_right_in_wide_resnet)
{
    static const Spec specs[] = {
        {OP_CONV2D, .batch = 64, .in = {28, 28, 1}, .filters = 16, .size = 3, .image = true},
        {OP_CONV2D, .batch = 32, .in = {28, 28, 3}, .filters = 16, .size = 3, .image = true},
        {OP_CONV2D, .batch = 32, .in = {28, 28, 16}, .filters = 16, .size = 3, .no_gradient = true},
        {OP_CONV2D, .batch = 64, .in = {28, 28, 16}, .filters = 16, .size = 1},
        {OP_CONV2D, .batch = 64, .in = {14, 14, 16}, .filters = 32, .size = 3, .no_gradient = true},
        {OP_CONV2D, .batch = 64, .in = {14, 14, 16}, .filters = 32, .size = 1},
        {OP_CONV2D, .batch = 64, .in = {14, 14, 32}, .filters = 32, .size = 3, .relu = true},
        {OP_CONV2D, .batch = 32, .in = {14, 14, 32}, .filters = 32, .size = 3},
        {OP_CONV2D, .batch = 32, .in = {7, 7, 32}, .filters = 64, .size = 1},
        {OP_CONV2D, .batch = 64, .in = {7, 7, 64}, .filters = 64, .size = 3, .no_gradient = true},
    };
    CHECK_SPECS(specs);
}
END_TEST

// A cheap shape, of odd size, for which oneDNN 2.6 with AVX-512 takes Winograd in all three
// directions. The choice depends on the number of threads: this one is for two.
#define WIDE .batch = 16, .in = {7, 7, 256}, .filters = 256, .size = 3

START_TEST(conv2d_is_right_with_winograd_in_all_directions)
{
    backend();
    omp_set_num_threads(2);
    check_spec((Spec){OP_CONV2D, WIDE, .no_gradient = true});
}
END_TEST

// How far Winograd is from the truth, beside direct convolution.

typedef enum { FORWARD, INPUT_GRADIENT, KERNEL_GRADIENT, DIRECTIONS } Direction;
static const char *const direction_names[] = {"output", "input's gradient", "kernel's gradient"};

// The input's gradient is a convolution too: of the output's gradient, with the kernel turned by
// half a turn and its channels swapped.
static double *exact_input_gradient(const Trial *t, const Reference *forward_pass)
{
    const Op *op = &t->op;
    int in = op->in.channels, out = op->out.channels, taps = op->size * op->size;
    Op turned = *op;
    turned.in = op->out;
    turned.out = op->in;
    Reference r = {.op = &turned, .batch = t->batch};
    size_t count = value_size(turned.out, t->batch);
    r.output = doubles(count);
    r.sources[INPUT] = widen(t->output_gradient[0], value_size(turned.in, t->batch));
    r.sources[BIAS] = doubles((size_t)in);
    r.sources[KERNEL] = doubles((size_t)taps * (size_t)in * (size_t)out);
    for (int tap = 0; tap < taps; tap++)
        for (int i = 0; i < in; i++)
            for (int o = 0; o < out; o++)
                r.sources[KERNEL][((taps - 1 - tap) * out + o) * in + i] =
                    forward_pass->sources[KERNEL][(tap * in + i) * out + o];
    reference_forward(&r, all_outputs(&r));
    for (int source = 0; source < SOURCES; source++)
        free(r.sources[source]);
    return r.output;
}

// What one pixel of the output's gradient adds to the gradient of the kernel.
static void add_kernel_gradient(const Reference *r, const double *gradient, int n, int y, int x,
                                double *sum)
{
    const Op *op = r->op;
    int in = op->in.channels, out = op->out.channels;
    for (int tap = 0; tap < op->size * op->size; tap++) {
        int from_y = y + tap / op->size - op->size / 2, from_x = x + tap % op->size - op->size / 2;
        if (from_y < 0 || from_y >= op->in.height || from_x < 0 || from_x >= op->in.width)
            continue;
        const double *pixel =
            r->sources[INPUT] + ((n * op->in.height + from_y) * op->in.width + from_x) * in;
        for (int i = 0; i < in; i++)
            for (int o = 0; o < out; o++)
                sum[(tap * in + i) * out + o] += pixel[i] * gradient[o];
    }
}

static double *exact_kernel_gradient(const Trial *t, const Reference *r)
{
    Shape out = t->op.out;
    double *sum = doubles(source_size(&t->op, t->batch, KERNEL));
    double *gradient = widen(t->output_gradient[0], value_size(out, t->batch)), *pixel = gradient;
    for (int n = 0; n < t->batch; n++)
        for (int y = 0; y < out.height; y++)
            for (int x = 0; x < out.width; x++, pixel += out.channels)
                add_kernel_gradient(r, pixel, n, y, x, sum);
    free(gradient);
    return sum;
}

// One direction of a direct convolution by oneDNN, in the layouts that it likes. It reads two
// tensors and writes the third: NHWC activations and the kernel in Keras's order.
static dnnl_primitive_desc_t direct_convolution(const Trial *t, Direction direction)
{
    Shape in = t->op.in, out = t->op.out;
    int inputs[] = {t->batch, in.channels, in.height, in.width};
    int outputs[] = {t->batch, out.channels, out.height, out.width};
    int kernel[] = {out.channels, in.channels, t->op.size, t->op.size};
    Convolution c = {.algorithm = dnnl_convolution_direct,
                     .kernel_size = t->op.size,
                     .input = desc_create(4, inputs, dnnl_format_tag_any),
                     .output = desc_create(4, outputs, dnnl_format_tag_any),
                     .kernel = desc_create(4, kernel, dnnl_format_tag_any)};
    dnnl_primitive_desc_t first = convolution_forward(&c), pd = first;
    if (direction == INPUT_GRADIENT)
        pd = convolution_backward_input(&c, first);
    else if (direction == KERNEL_GRADIENT)
        pd = convolution_backward_kernel(&c, first);
    if (pd != first)
        dnnl_primitive_desc_destroy(first);
    desc_free(c.input);
    desc_free(c.output);
    desc_free(c.kernel);
    return pd;
}

static void run_direct(const Trial *t, Direction direction, float *result)
{
    static const struct {
        int argument;
        dnnl_query_t what;
    } roles[DIRECTIONS][3] = {
        {{DNNL_ARG_SRC, dnnl_query_src_md},
         {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
         {DNNL_ARG_DST, dnnl_query_dst_md}},
        {{DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md},
         {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
         {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md}},
        {{DNNL_ARG_SRC, dnnl_query_src_md},
         {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md},
         {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md}},
    };
    static const int written[] = {2, 0, 1};
    Shape in = t->op.in, out = t->op.out;
    Desc outside[] = {
        desc_create(4, (int[]){t->batch, in.channels, in.height, in.width}, dnnl_nhwc),
        desc_create(4, (int[]){out.channels, in.channels, t->op.size, t->op.size}, dnnl_hwio),
        desc_create(4, (int[]){t->batch, out.channels, out.height, out.width}, dnnl_nhwc)};
    void *memory[] = {t->sources[INPUT], t->sources[KERNEL], t->output_gradient[0]};
    PortSpec ports[3];
    for (int i = 0; i < 3; i++)
        ports[i] = (PortSpec){roles[direction][i].argument, roles[direction][i].what, 0, outside[i],
                              i == written[direction]};
    memory[written[direction]] = result;
    Call call = call_prepare(direct_convolution(t, direction), ports, 3);
    void *scratch = allocate(1, call.scratch_bytes + 1);
    call_run(&call, scratch, memory);
    call_free(&call);
    free(scratch);
    for (int i = 0; i < 3; i++)
        desc_free(outside[i]);
}

static void check_winograd(Spec spec)
{
    Trial *t = trial_create(&spec);
    memset(t->sources[BIAS], 0, (size_t)spec.filters * sizeof(float));
    Reference r = reference_create(t);
    reference_forward(&r, all_outputs(&r));
    run(t);
    double *exact[] = {r.output, exact_input_gradient(t, &r), exact_kernel_gradient(t, &r)};
    const float *results[] = {t->output, t->gradients[INPUT], t->gradients[KERNEL]};
    size_t counts[] = {value_size(t->op.out, t->batch), value_size(t->op.in, t->batch),
                       source_size(&t->op, t->batch, KERNEL)};
    for (Direction d = FORWARD; d < DIRECTIONS; d++) {
        float *direct = floats(counts[d]);
        run_direct(t, d, direct);
        double error = largest_error(results[d], exact[d], counts[d]);
        double direct_error = largest_error(direct, exact[d], counts[d]);
        printf("%s: error of the %s %.1e, in direct convolution %.1e\n", describe(&spec),
               direction_names[d], error, direct_error);
        check_error(&spec, direction_names[d], error, WINOGRAD_TOLERANCE);
        check_error(&spec, "direct convolution", direct_error, WINOGRAD_TOLERANCE);
        free(direct);
    }
    free(exact[INPUT_GRADIENT]);
    free(exact[KERNEL_GRADIENT]);
    reference_free(&r);
    trial_free(t);
}

START_TEST(winograd_keeps_enough_digits)
{
    backend();
    omp_set_num_threads(2);
    check_winograd((Spec){OP_CONV2D, .batch = 64, .in = {14, 14, 32}, .filters = 32, .size = 3});
    check_winograd((Spec){OP_CONV2D, WIDE});
}
END_TEST

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
        run(t);
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
    run_forward(t, true);
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
    run(t);
    check_statistics(&spec, t, &r);
    check_output(&spec, t, &r, "the output");
    reference_free(&r);
    trial_free(t);
}
END_TEST

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
    };
    CHECK_SPECS(specs);
}
END_TEST

// After ReLU a window may hold nothing but zeros.
START_TEST(max_pool_gives_the_gradient_of_equal_pixels_to_one)
{
    Spec spec = {OP_MAX_POOL, .batch = 2, .in = {4, 4, 9}, .size = 2};
    Trial *t = trial_create(&spec);
    size_t count = value_size(spec.in, spec.batch);
    memset(t->sources[INPUT], 0, count * sizeof(float));
    run(t);
    for (size_t i = 0; i < count / 4; i++) {
        size_t n = i / 36, y = i / 18 % 2, x = i / 9 % 2, c = i % 9, equal = 0;
        for (size_t k = 0; k < 4; k++) {
            size_t from = ((n * 4 + 2 * y + k / 2) * 4 + 2 * x + k % 2) * 9 + c;
            equal += t->gradients[INPUT][from] == t->output_gradient[0][i];
        }
        ck_assert_uint_eq(equal, 1);
    }
    ck_assert_uint_eq(nonzeros(t->gradients[INPUT], count), count / 4);
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
    float scale = 1 / (1 - spec->dropout_rate);
    for (size_t i = 0; i < count; i++) {
        float expected = output[i] == 0 ? 0 : all[i] * scale;
        ck_assert_msg(fabsf(values[i] - expected) <= 1e-6f * fabsf(expected),
                      "%s: %g instead of %g", describe(spec), (double)values[i], (double)expected);
    }
}

static void check_dropout(const Spec *spec)
{
    Trial *t = dropout_trial(spec);
    size_t count = value_size(spec->in, spec->batch), bytes = count * sizeof(float);
    float *all = floats(count);
    run_forward(t, false);
    memcpy(all, t->output, bytes);
    run(t);
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
    run_forward(t, true);
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

// For all kinds of operations.

// Work is divided among threads, but nothing may be rounded in another order. Matrix products and
// convolutions are left out: oneDNN does not promise it for them.
START_TEST(results_do_not_depend_on_the_number_of_threads)
{
    static const Spec specs[] = {
        {OP_BATCH_NORM, .batch = 7, .in = {5, 6, 33}, .relu = true},
        {OP_BATCH_NORM, .batch = 7, .in = {5, 6, 33}, .relu = true, .dropout_rate = 0.3f},
        {OP_BATCH_NORM, .batch = 4, .in = {5, 6, 9}, .residual = true, .two_parts = true},
        {OP_BATCH_NORM, .batch = 9, .in = {1, 1, 33}, .flat = true, .dropout_rate = 0.3f},
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
        run(t);
        uint64_t alone = fingerprint(t);
        for (int threads = 2; threads <= 5; threads++) {
            omp_set_num_threads(threads);
            run(t);
            ck_assert_msg(fingerprint(t) == alone, "%s: other bits with %d threads",
                          describe(&specs[i]), threads);
        }
        trial_free(t);
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
    run_forward(t, training);
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
    {OP_GLOBAL_AVERAGE_POOL, .batch = 2, .in = {5, 5, 17}},
    {OP_FLATTEN, .batch = 2, .in = {5, 5, 17}},
    {OP_DENSE, .batch = 2, .in = {1, 1, 17}, .filters = 9, .flat = true},
    {OP_DENSE, .batch = 2, .in = {1, 1, 17}, .filters = 9, .flat = true, .relu = true},
};

START_TEST(nan_is_not_hidden)
{
    check_nan(&nan_specs[_i / 2], _i % 2);
}
END_TEST

// oneDNN's largest of a number and NaN is the number. But where nothing else is in the window, what
// comes out must not look like an activation.
START_TEST(max_pool_does_not_hide_a_window_of_nan)
{
    Spec spec = {OP_MAX_POOL, .batch = 2, .in = {4, 4, 9}, .size = 2};
    Trial *t = trial_create(&spec);
    for (size_t i = 0; i < value_size(spec.in, spec.batch); i++)
        t->sources[INPUT][i] = NAN;
    run_forward(t, true);
    for (size_t i = 0; i < value_size(t->op.out, spec.batch); i++)
        ck_assert(!(fabsf(t->output[i]) < 1e30f));
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
        run_forward(t, true);
        ck_assert_uint_eq(nans(t->output, count), nonzeros(t->output, count));
        ck_assert_uint_gt(nans(t->output, count), count / 3);
        trial_free(t);
    }
}
END_TEST

// What a backend does beside operations.

START_TEST(accumulate_adds)
{
    static const size_t lengths[] = {1, 7, 8, 9, 1000};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        size_t count = lengths[i], bytes = count * sizeof(float);
        float *a = floats(count), *b = floats(count);
        Rng rng = rng_stream_of(5, RNG_SYNTHETIC_DATA, i);
        fill_normal(&rng, a, count, 0, 1);
        fill_normal(&rng, b, count, 0, 1);
        void *sum = device_memory(bytes), *other = device_memory(bytes);
        backend()->write(sum, a, bytes);
        backend()->write(other, b, bytes);
        backend()->accumulate(sum, other, bytes);
        float *result = host_copy(sum, bytes);
        for (size_t k = 0; k < count; k++)
            ck_assert_float_eq(result[k], a[k] + b[k]);
        backend()->release(sum);
        backend()->release(other);
        free(result);
        free(a);
        free(b);
    }
}
END_TEST

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
    backend()->write(from, logits, sizeof logits);
    backend()->softmax(from, to, BATCH, CLASSES);
    float *result = host_copy(to, sizeof logits);
    ck_assert_double_le(largest_error(result, expected, BATCH * CLASSES), 1e-6);
    backend()->release(from);
    backend()->release(to);
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
    backend()->write(from, logits, sizeof logits);
    backend()->write(on_device, labels, sizeof labels);
    backend()->write(sums, &metrics, sizeof metrics);
    for (int i = 0; i < 3; i++)
        backend()->cross_entropy(from, on_device, to, BATCH, CLASSES, sums);
    backend()->read(&metrics, sums, sizeof metrics);
    float *result = host_copy(to, sizeof logits);
    ck_assert_double_le(largest_error(result, expected, BATCH * CLASSES), 1e-6);
    ck_assert_double_eq_tol(metrics.loss, 3 * once.loss, 1e-5 * once.loss);
    ck_assert_double_eq(metrics.correct, 3 * once.correct);
    ck_assert_double_eq(metrics.images, 3 * BATCH);
    backend()->release(from);
    backend()->release(to);
    backend()->release(on_device);
    backend()->release(sums);
    free(result);
}
END_TEST

// Sanitizers and busy machines are slow.
static TCase *new_case(Suite *suite, const char *name)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 100);
    suite_add_tcase(suite, tcase);
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("operations");

    TCase *convolution = new_case(suite, "convolution");
    tcase_add_test(convolution, conv2d_is_right);
    tcase_add_test(convolution, conv2d_is_right_in_wide_resnet);
    tcase_add_test(convolution, conv2d_is_right_with_winograd_in_all_directions);
    tcase_add_test(convolution, winograd_keeps_enough_digits);

    TCase *norm = new_case(suite, "batch norm");
    tcase_add_test(norm, batch_norm_is_right);
    tcase_add_test(norm, batch_norm_of_vectors_is_right);
    tcase_add_test(norm, batch_norm_is_right_in_wide_resnet);
    tcase_add_test(norm, batch_statistics_keep_digits_beside_a_large_mean);
    tcase_add_test(norm, batch_statistics_keep_digits_over_many_pixels);
    tcase_add_test(norm, a_constant_channel_is_normalized_to_beta);

    TCase *others = new_case(suite, "other operations");
    tcase_add_test(others, elementwise_operations_are_right);
    tcase_add_test(others, max_pool_is_right);
    tcase_add_test(others, max_pool_gives_the_gradient_of_equal_pixels_to_one);
    tcase_add_test(others, global_average_pool_is_right);
    tcase_add_test(others, flatten_is_right);
    tcase_add_test(others, dense_is_right);

    TCase *dropout = new_case(suite, "dropout");
    tcase_add_test(dropout, dropout_drops_at_its_rate_and_scales_the_rest);
    tcase_add_test(dropout, dropout_patterns_are_independent);
    tcase_add_test(dropout, every_bit_of_the_key_changes_the_dropout_pattern);

    TCase *all = new_case(suite, "all operations");
    tcase_add_test(all, results_do_not_depend_on_the_number_of_threads);
    tcase_add_loop_test(all, nan_is_not_hidden, 0, 2 * COUNT(nan_specs));
    tcase_add_test(all, max_pool_does_not_hide_a_window_of_nan);
    tcase_add_test(all, dropout_does_not_hide_nan);

    TCase *rest = new_case(suite, "beside operations");
    tcase_add_test(rest, accumulate_adds);
    tcase_add_test(rest, softmax_is_right);
    tcase_add_test(rest, cross_entropy_is_right);

    return run_suite(suite);
}
