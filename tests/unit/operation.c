// Runs one operation through backend.h, and nothing else of a backend. How values lie in device
// memory is the backend's business, so they go in through the backward pass of flatten and come out
// through its forward pass; that this is NHWC order is proved by the convolutions that read images.

#include "operation.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "run/args.h"
#include "child.h"
#include "base/error.h"
#include "base/memory.h"

#define GAP 16 // floats between variables in an arena

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
    case OP_EMBEDDING:
        return (Shape){1, in.width, s->filters};
    case OP_BATCH_NORM:
    case OP_RELU:
    case OP_DROPOUT:
    case OP_ADD:
    case OP_SOFTMAX:
    case OP_CUSTOM:
        break;
    }
    return in;
}

const char *describe(const Spec *s)
{
    static const char *const names[OP_KINDS] = {
        [OP_CONV2D] = "conv2d",
        [OP_BATCH_NORM] = "batch_norm",
        [OP_RELU] = "relu",
        [OP_DROPOUT] = "dropout",
        [OP_ADD] = "add",
        [OP_MAX_POOL] = "max_pool",
        [OP_GLOBAL_AVERAGE_POOL] = "average",
        [OP_FLATTEN] = "flatten",
        [OP_DENSE] = "dense",
        [OP_EMBEDDING] = "embedding",
        [OP_SOFTMAX] = "softmax",
        [OP_CUSTOM] = "custom",
    };
    static char text[160];
    snprintf(text, sizeof text, "%s %dx%dx%dx%d to %d channels, size %d%s%s%s%s%s%s%s%s",
             names[s->kind], s->batch, s->in.height, s->in.width, s->in.channels,
             output_shape(s).channels, s->size, s->image ? ", image" : "", s->flat ? ", flat" : "",
             s->relu ? ", relu" : "", s->dropout_rate > 0 ? ", dropout" : "",
             s->residual ? ", residual" : "", s->no_gradient ? ", bias without gradient" : "",
             s->no_bias ? ", without bias" : "", s->two_parts ? ", gradient in two parts" : "");
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
        count = s->no_bias ? 1 : 2;
    } else if (s->kind == OP_EMBEDDING) {
        variables[EMBEDDINGS] = (Variable){.ndims = 2, .dims = {s->size, channels}};
        count = 1;
    } else if (s->kind == OP_BATCH_NORM) {
        for (count = 0; count < MAX_VARIABLES; count++)
            variables[count] = (Variable){.ndims = 1, .dims = {channels}};
    }
    for (int i = 0; i < count; i++) {
        variables[i].trainable = i < MOVING_MEAN;
        op->variables[i] = &variables[i];
    }
}

// The values of a trial.

float *floats(size_t count)
{
    return count ? allocate(count, sizeof(float)) : NULL;
}

// The nearest number that a bfloat16 can hold: the upper half of a float.
static float to_bf16(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    word = (word + 0x7fff + (word >> 16 & 1)) & 0xffff0000;
    memcpy(&value, &word, sizeof value);
    return value;
}

// With bfloat16 the values are such that the device has them exactly.
void fill_normal(Rng *rng, float *values, size_t count, float mean, float deviation)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = mean + deviation * rng_normal(rng);
        if (settings()->precision == PRECISION_BF16)
            values[i] = to_bf16(values[i]);
    }
}

// Tokens, some of them none, and many of them alike.
static void fill_tokens(Rng *rng, float *tokens, size_t count, int vocabulary)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t range = (uint32_t)(rng_below(rng, 2) ? vocabulary : (vocabulary + 3) / 4);
        tokens[i] = (float)rng_below(rng, range + 1) - 1;
    }
}

// Values of a size that keeps the output near 1; gammas of both signs.
static void fill_source(const Trial *t, int source, Rng *rng)
{
    const Op *op = &t->op;
    size_t count = source_size(op, t->batch, source);
    if (op->kind == OP_EMBEDDING && source == INPUT)
        fill_tokens(rng, t->sources[source], count, op->size);
    else if (op->kind == OP_BATCH_NORM && source == GAMMA)
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

Trial *trial_create(const Spec *spec)
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
    for (int part = 0; part < (spec->two_parts ? 2 : 1); part++) {
        t->output_gradient[part] = floats(count);
        fill_normal(&rng, t->output_gradient[part], count, 0, 1);
    }
    return t;
}

void trial_free(Trial *t)
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

const Backend *backend(void)
{
    return backend_of(device_current());
}

// Device memory.

void *device_memory(size_t bytes)
{
    void *poison = allocate(1, bytes + 1),
         *memory = backend()->allocate(device_current(), bytes + 1);
    memset(poison, 0xff, bytes + 1);
    backend()->write(device_current(), memory, poison, bytes + 1);
    free(poison);
    return memory;
}

float *host_copy(const void *memory, size_t bytes)
{
    float *copy = allocate(1, bytes + 1);
    backend()->read(device_current(), copy, memory, bytes);
    return copy;
}

size_t nonzeros(const float *values, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += values[i] != 0;
    return found;
}

static size_t nonzeros_of_bf16(const uint16_t *values, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += (values[i] & 0x7fff) != 0;
    return found;
}

// Where the layout is wider than the tensor, the rest must be zero: the next operation counts on
// it.
static void check_padding(const void *memory, size_t bytes, bool bf16, const float *values,
                          size_t count)
{
    float *raw = host_copy(memory, bytes);
    size_t found = bf16 ? nonzeros_of_bf16((uint16_t *)raw, bytes / sizeof(uint16_t))
                        : nonzeros(raw, bytes / sizeof(float));
    ck_assert_uint_eq(found, nonzeros(values, count));
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
    OpState *state = backend()->op_create(device_current(), &flatten, batch, &sizes);
    void *scratch = device_memory(sizes.scratch), *vector = device_memory(sizes.output);
    backend()->write(device_current(), vector, nhwc, sizes.output);
    backend()->backward(
        state,
        &(BackwardArgs){.output_gradient = vector, .input_gradient = to, .scratch = scratch});
    backend()->release(device_current(), vector);
    backend()->release(device_current(), scratch);
    backend()->op_free(state);
}

static void from_layout(Shape shape, int batch, const void *from, float *nhwc)
{
    Op flatten = flatten_of(shape);
    OpSizes sizes;
    OpState *state = backend()->op_create(device_current(), &flatten, batch, &sizes);
    void *scratch = device_memory(sizes.scratch), *vector = device_memory(sizes.output);
    backend()->forward(state, &(ForwardArgs){.input = from, .output = vector, .scratch = scratch});
    backend()->read(device_current(), nhwc, vector, sizes.output);
    check_padding(from, sizes.input, device_precision() == PRECISION_BF16, nhwc,
                  sizes.output / sizeof(float));
    backend()->release(device_current(), vector);
    backend()->release(device_current(), scratch);
    backend()->op_free(state);
}

// `vector`: it lies in memory as the tests have it.
static void put(Shape shape, int batch, bool vector, const float *nhwc, void *to)
{
    if (vector)
        backend()->write(device_current(), to, nhwc, value_size(shape, batch) * sizeof(float));
    else
        to_layout(shape, batch, nhwc, to);
}

static void get(Shape shape, int batch, bool vector, const void *from, float *nhwc)
{
    if (vector)
        backend()->read(device_current(), nhwc, from, value_size(shape, batch) * sizeof(float));
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
    uint64_t *dropout_key;
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
    s->arenas.weights =
        backend()->allocate(device_current(), (s->weights_length + GAP) * sizeof(float));
    s->arenas.statistics =
        backend()->allocate(device_current(), (s->statistics_length + GAP) * sizeof(float));
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
        backend()->write_variable(device_current(), &t->op, v, arena_of(s, v), t->sources[i]);
        size_t count = source_size(&t->op, t->batch, i);
        float *again = floats(v->length);
        backend()->read_variable(device_current(), &t->op, v, arena_of(s, v), again);
        ck_assert_mem_eq(again, t->sources[i], count * sizeof *again);
        memset(again, 0, v->length * sizeof *again);
        if (v->no_gradient)
            backend()->write(device_current(), s->arenas.gradients + v->offset, again,
                             v->length * sizeof *again);
        free(again);
    }
}

static Stage stage_create(Trial *t)
{
    Stage s = {0};
    const Op *op = &t->op;
    lay_out_variables(t, &s);
    write_variables(t, &s);
    s.state = backend()->op_create(device_current(), op, t->batch, &s.sizes);
    s.input = device_memory(s.sizes.input);
    s.output = device_memory(s.sizes.output);
    s.saved = device_memory(s.sizes.saved);
    s.scratch = device_memory(s.sizes.scratch);
    s.dropout_key = device_memory(sizeof *s.dropout_key);
    backend()->write(device_current(), s.dropout_key, &t->dropout_key, sizeof *s.dropout_key);
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
                   s->saved,          s->scratch,          s->dropout_key};
    for (size_t i = 0; i < COUNT(all); i++)
        backend()->release(device_current(), all[i]);
    backend()->op_free(s->state);
}

static Operations operations_of(const Stage *s)
{
    static const size_t start = 0;
    return (Operations){&s->state, 1, s->saved, &start, s->arenas};
}

static void forward(Trial *t, const Stage *s, bool training)
{
    Operations ops = operations_of(s);
    if (backend()->begin_forward)
        backend()->begin_forward(device_current(), &ops);
    backend()->forward(s->state, &(ForwardArgs){.input = s->input,
                                                .residual = s->residual,
                                                .output = s->output,
                                                .saved = s->saved,
                                                .scratch = s->scratch,
                                                .arenas = s->arenas,
                                                .training = training,
                                                .dropout_key = s->dropout_key});
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
                        .dropout_key = s->dropout_key});
    Operations ops = operations_of(s);
    if (backend()->end_backward)
        backend()->end_backward(device_current(), &ops);
    if (!op->input_is_image)
        get(op->in, t->batch, vector_input(op), input_gradient, t->gradients[INPUT]);
    if (op->residual >= 0)
        get(op->out, t->batch, vector, residual_gradient, t->gradients[RESIDUAL]);
    if (!in_place)
        backend()->release(device_current(), input_gradient);
    if (residual_gradient != gradient)
        backend()->release(device_current(), residual_gradient);
    backend()->release(device_current(), gradient2);
    backend()->release(device_current(), gradient);
}

static void read_statistics(Trial *t, const Stage *s)
{
    for (int i = 0; i < MAX_VARIABLES && t->op.variables[i]; i++)
        if (!t->op.variables[i]->trainable)
            backend()->read_variable(device_current(), &t->op, t->op.variables[i],
                                     s->arenas.statistics, t->gradients[i]);
}

// The gradients of the weights. What lies between them must be as it was: not a number.
static void read_gradients(Trial *t, const Stage *s)
{
    size_t length = s->weights_length + GAP, between = length;
    for (int i = 0; i < MAX_VARIABLES && t->op.variables[i]; i++) {
        const Variable *v = t->op.variables[i];
        if (!v->trainable)
            continue;
        backend()->read_variable(device_current(), &t->op, v, s->arenas.gradients, t->gradients[i]);
        check_padding(s->arenas.gradients + v->offset, v->length * sizeof(float), false,
                      t->gradients[i], source_size(&t->op, t->batch, i));
        between -= v->length;
    }
    float *raw = host_copy(s->arenas.gradients, length * sizeof(float));
    size_t untouched = 0;
    for (size_t i = 0; i < length; i++)
        untouched += isnan(raw[i]) != 0;
    ck_assert_uint_eq(untouched, between);
    free(raw);
}

void trial_forward(Trial *t, bool training)
{
    Stage s = stage_create(t);
    forward(t, &s, training);
    read_statistics(t, &s);
    stage_free(&s);
}

void trial_run(Trial *t)
{
    Stage s = stage_create(t);
    forward(t, &s, true);
    backward(t, &s);
    read_statistics(t, &s);
    read_gradients(t, &s);
    stage_free(&s);
}

uint64_t trial_fingerprint(const Trial *t)
{
    uint64_t hash = FNV_START;
    for (int source = -1; source < SOURCES; source++) {
        const float *values = source < 0 ? t->output : t->gradients[source];
        size_t count =
            source < 0 ? value_size(t->op.out, t->batch) : source_size(&t->op, t->batch, source);
        hash = hash_bytes(hash, values, count * sizeof *values);
    }
    return hash;
}

// For the suites.

// The place of an environment variable's value among `values`, 0 where it is not set.
static int choice(const char *variable, const char *const *values, int count)
{
    const char *value = getenv(variable);
    for (int i = 0; value && i < count; i++)
        if (strcmp(value, values[i]) == 0)
            return i;
    if (value)
        die("%s=%s is not one of its values", variable, value);
    return 0;
}

void use_test_device(void)
{
    static const char *const devices[] = {"cpu", "gpu"};
    static const char *const precisions[] = {"fp32", "tf32", "bf16"};
    settings()->device = DEVICE_CPU + (DeviceKind)choice("HVDLAB_TEST_DEVICE", devices, 2);
    settings()->precision =
        PRECISION_FP32 + (Precision)choice("HVDLAB_TEST_PRECISION", precisions, 3);
    if (settings()->precision == PRECISION_BF16 && settings()->device == DEVICE_CPU &&
        !device_cpu_has_bfloat16()) {
        puts("skipped: this processor does not compute bfloat16");
        exit(77);
    }
}

// Asked in a process of its own, as devices stay in use.
static int devices_there(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(device_count());
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

bool use_two_test_devices(void)
{
    setenv("HVDLAB_DEVICES", "2", 1);
    use_test_device();
    settings()->deterministic = true;
    set_seed(1);
    bool there = devices_there() >= 2;
    if (!there)
        puts("skipped: there is one GPU, and it takes two");
    return there;
}

TCase *operation_case(Suite *suite, const char *name)
{
    use_test_device();
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 100);
    suite_add_tcase(suite, tcase);
    return tcase;
}
