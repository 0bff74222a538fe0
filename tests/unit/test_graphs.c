// Random small networks against the double-precision forward of reference.h: prediction, loss,
// gradients (by its finite differences), moving statistics, and weights after updates (rules.h).
//
//     test_graphs          FUZZ_SECONDS (2) long, from FUZZ_SEED, or from the time of day;
//                          without FUZZ_SECONDS always the same networks
//     test_graphs SEED     the network of this seed alone
//
// The instruction set is the environment's (DNNL_MAX_CPU_ISA). A case that fails prints its seed.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "nn/model.h"
#include "reference.h"
#include "rules.h"

enum { MAX_NODES = 24, MAX_CLASSES = 12, ROUNDS = 3, MAX_PRODUCTS = 1000000 };
#define STEP      1e-6 // of finite differences
#define KINK      3e-5 // where a value is nearer to a kink, gradients are not compared
#define TOLERANCE 1e-4 // of a tensor's largest value, as is promised

// A layer, what it reads, and its variables by the reference.
typedef struct {
    Op op;
    Tensor tensor;
    int from, other; // nodes
    int readers;
    int first; // of its variables, as the model counts them
    int variables;
    Variable shapes[MAX_VARIABLES];
    double *values[MAX_VARIABLES];
    double *output, *distance;
} Node;

static struct {
    Rng rng;
    Node nodes[MAX_NODES];
    int count, batch, classes, variables;
    Model *model;
    bool from_logits;
    const NamedRule *rule;
    float rate, penalty;
    float *images;
    int labels[64];
} now;

// Of the case that is running, for the parent process to name it however it ends.
typedef struct {
    uint64_t seed;
    char text[2000]; // the network in words
} Case;
static Case *running;
static bool failed;

static int between(int least, int most)
{
    return least + (int)rng_below(&now.rng, (uint32_t)(most - least + 1));
}

static void say(const char *format, int a, int b)
{
    size_t length = strlen(running->text);
    snprintf(running->text + length, sizeof running->text - length, format, a, b);
}

// ---- A network.

static Node *add_node(OpKind kind, int from, Shape out, Tensor tensor)
{
    Node *node = &now.nodes[now.count++];
    *node = (Node){.tensor = tensor, .from = from, .other = -1, .first = now.variables};
    node->op = (Op){.kind = kind, .residual = -1, .out = out, .in = now.nodes[from].op.out};
    now.nodes[from].readers++;
    size_t size = value_size(out, now.batch);
    node->output = allocate(size, sizeof(double));
    node->distance = allocate(size, sizeof(double));
    return node;
}

static void add_variable(Node *node, int ndims, int a, int b, int c, int d)
{
    Variable *shape = &node->shapes[node->variables];
    *shape = (Variable){.ndims = ndims, .dims = {a, b, c, d}};
    node->op.variables[node->variables] = shape;
    node->values[node->variables++] = allocate(variable_size(shape), sizeof(double));
    now.variables++;
}

static void add_convolution(int last, Shape in)
{
    int filters = between(0, 2) == 0 ? 16 * between(1, 3) : between(1, 12);
    int size = 2 * between(0, 2) + 1;
    if (value_size(in, now.batch) * (size_t)(size * size * filters) > MAX_PRODUCTS)
        return;
    Shape out = {in.height, in.width, filters};
    Node *node = add_node(OP_CONV2D, last, out, conv2d(now.nodes[last].tensor, filters, size));
    node->op.size = size;
    add_variable(node, 4, size, size, in.channels, filters);
    add_variable(node, 1, filters, 0, 0, 0);
    say(" conv2d(%d,%d)", filters, size);
}

static void add_norm(int last, Shape in)
{
    Node *node = add_node(OP_BATCH_NORM, last, in, batch_norm(now.nodes[last].tensor));
    for (int i = 0; i < 4; i++)
        add_variable(node, 1, in.channels, 0, 0, 0);
    say(" batch_norm", 0, 0);
}

static void add_dense(int last, int inputs, int units)
{
    bool bias = between(0, 3) > 0;
    Tensor x = now.nodes[last].tensor;
    Node *node = add_node(OP_DENSE, last, (Shape){1, 1, units},
                          bias ? dense(x, units) : dense_without_bias(x, units));
    add_variable(node, 2, inputs, units, 0, 0);
    if (bias)
        add_variable(node, 1, units, 0, 0, 0);
    say(bias ? " dense(%d)" : " dense_without_bias(%d)", units, 0);
}

// The sum with an earlier node of the same shape that one more layer may read.
static void add_sum(int last, Shape in)
{
    for (int i = last; i > 0; i--) {
        Shape shape = now.nodes[i].op.out;
        if (shape.height != in.height || shape.width != in.width || shape.channels != in.channels ||
            now.nodes[i].readers > (i == last ? 0 : 1) || between(0, 2) == 0)
            continue;
        Node *node = add_node(OP_ADD, last, in, add(now.nodes[last].tensor, now.nodes[i].tensor));
        node->op.residual = node->other = i;
        now.nodes[i].readers++;
        say(" add(%d)", i, 0);
        return;
    }
}

static void add_image_layer(void)
{
    int last = now.count - 1, size = between(2, 3);
    Shape in = now.nodes[last].op.out;
    Tensor x = now.nodes[last].tensor;
    switch (last == 0 ? 0 : between(0, 6)) { // (a convolution alone, or flatten, reads the input)
    case 0:
    case 1:
        add_convolution(last, in);
        break;
    case 2:
        if (now.batch * in.height * in.width >= 8 && now.nodes[last].op.kind != OP_BATCH_NORM)
            add_norm(last, in);
        break;
    case 3:
    case 4:
        add_node(OP_RELU, last, in, relu(x));
        say(" relu", 0, 0);
        break;
    case 5:
        if (in.height < size || in.width < size)
            break;
        add_node(OP_MAX_POOL, last, (Shape){in.height / size, in.width / size, in.channels},
                 max_pool(x, size))
            ->op.size = size;
        say(" max_pool(%d)", size, 0);
        break;
    default:
        add_sum(last, in);
    }
}

static void make_network(void)
{
    now.batch = between(0, 5) == 0 ? 32 : between(1, 9);
    Shape in = {between(1, 12), between(1, 12), between(1, 9)};
    now.nodes[0] = (Node){.op = {.out = in}, .tensor = input(in.height, in.width, in.channels)};
    now.nodes[0].output = allocate(value_size(in, now.batch), sizeof(double));
    now.count = 1;
    say("input(%d,%d,", in.height, in.width);
    say("%d) batch %d:", in.channels, now.batch);
    for (int layers = between(0, 8); layers > 0; layers--)
        add_image_layer();
    int last = now.count - 1;
    Shape shape = now.nodes[last].op.out;
    bool average = last > 0 && between(0, 1) == 0;
    Shape flat = {1, 1, average ? shape.channels : (int)value_size(shape, 1)};
    Tensor x = now.nodes[last].tensor;
    add_node(average ? OP_GLOBAL_AVERAGE_POOL : OP_FLATTEN, last, flat,
             average ? global_average_pool(x) : flatten(x));
    say(average ? " global_average_pool" : " flatten", 0, 0);
    for (int layers = between(0, 2); layers > 0; layers--) {
        int units = between(1, 40);
        add_dense(now.count - 1, now.nodes[now.count - 1].op.out.channels, units);
        add_node(OP_RELU, now.count - 1, (Shape){1, 1, units},
                 relu(now.nodes[now.count - 1].tensor));
    }
    now.classes = between(2, MAX_CLASSES);
    add_dense(now.count - 1, now.nodes[now.count - 1].op.out.channels, now.classes);
}

static void make_model(void)
{
    now.from_logits = between(0, 1) == 0;
    now.rule = &optimizer_rules[between(0, OPTIMIZER_RULES - 1)];
    now.rate = 0.05f;
    now.penalty = running->seed % 2 ? 0.02f : 0;
    Tensor output = now.nodes[now.count - 1].tensor;
    set_seed(running->seed);
    now.model =
        compile(l2_penalty(model(now.nodes[0].tensor, now.from_logits ? output : softmax(output)),
                           now.penalty),
                now.from_logits ? CATEGORICAL_CROSSENTROPY_FROM_LOGITS : CATEGORICAL_CROSSENTROPY,
                now.rule->create(now.rate));
    now.images = allocate(value_size(now.nodes[0].op.out, now.batch), sizeof *now.images);
    say(now.from_logits ? " logits," : " softmax,", 0, 0);
    strncat(running->text, now.rule->name, 40);
    say(now.penalty > 0 ? ", L2 penalty" : "", 0, 0);
}

static void free_all(void)
{
    for (int i = 0; i < now.count; i++) {
        for (int v = 0; v < now.nodes[i].variables; v++)
            free(now.nodes[i].values[v]);
        free(now.nodes[i].output);
        free(now.nodes[i].distance);
    }
    free(now.images);
    model_free(now.model);
}

// ---- The reference.

static void forward(bool training)
{
    for (int i = 1; i < now.count; i++) {
        Node *node = &now.nodes[i];
        Reference r = {&node->op, now.batch, training, {0}, NULL, node->output, node->distance};
        memcpy(r.sources, node->values, sizeof node->values);
        r.sources[INPUT] = now.nodes[node->from].output;
        r.sources[RESIDUAL] = node->other < 0 ? NULL : now.nodes[node->other].output;
        reference_forward(&r, all_outputs(&r));
    }
}

static double log_sum(const double *logits)
{
    double most = -INFINITY, sum = 0;
    for (int c = 0; c < now.classes; c++)
        most = fmax(most, logits[c]);
    for (int c = 0; c < now.classes; c++)
        sum += exp(logits[c] - most);
    return most + log(sum);
}

// The mean cross-entropy.
static double loss(bool training)
{
    forward(training);
    double sum = 0;
    for (int n = 0; n < now.batch; n++) {
        const double *logits = now.nodes[now.count - 1].output + n * now.classes;
        sum += log_sum(logits) - logits[now.labels[n]];
    }
    return sum / now.batch;
}

// Whether the node's zeros are a ReLU's, which stay zeros; a convolution's move with its bias.
static bool has_zeros_of_a_relu(const Node *node)
{
    while (node->op.kind == OP_MAX_POOL)
        node = &now.nodes[node->from];
    return node->op.kind == OP_RELU;
}

// Equal values of a pool, and zeros that a ReLU made, stay so: they are no kinks.
static bool is_near_a_kink(void)
{
    for (int i = 1; i < now.count; i++) {
        const Op *op = &now.nodes[i].op;
        bool zeros = op->kind == OP_RELU && !has_zeros_of_a_relu(&now.nodes[now.nodes[i].from]);
        bool kinks = op->kind == OP_RELU || op->kind == OP_MAX_POOL;
        for (size_t k = 0; kinks && k < value_size(op->out, now.batch); k++)
            if ((zeros || now.nodes[i].distance[k] > 0) && now.nodes[i].distance[k] < KINK)
                return true;
    }
    return false;
}

// ---- Comparisons.

static void compare(const char *what, int number, double value, double expected, double allowed)
{
    if (fabs(value - expected) <= allowed || failed) // a NaN is not below
        return;
    printf("%s %d: %.9g instead of %.9g (allowed: %.2g)\n", what, number, value, expected, allowed);
    failed = true;
}

static void read_values(void)
{
    for (int i = 1; i < now.count; i++)
        for (int v = 0; v < now.nodes[i].variables; v++) {
            size_t size = variable_size(&now.nodes[i].shapes[v]);
            float *values = allocate(size, sizeof *values);
            model_read_variable(now.model, now.nodes[i].first + v, values);
            for (size_t k = 0; k < size; k++)
                now.nodes[i].values[v][k] = values[k];
            free(values);
        }
}

static void new_batch(void)
{
    for (size_t i = 0; i < value_size(now.nodes[0].op.out, now.batch); i++)
        now.nodes[0].output[i] = now.images[i] = rng_normal(&now.rng);
    for (int n = 0; n < now.batch; n++)
        now.labels[n] = between(0, now.classes - 1);
}

static void compare_inference(const Batch *batch)
{
    float predictions[64 * MAX_CLASSES];
    predict_on_batch(now.model, batch, predictions);
    model_reset_metrics(now.model);
    test_on_batch(now.model, batch);
    Metrics metrics = model_metrics(now.model);
    double expected = loss(false), most = 1e-3;
    const double *logits = now.nodes[now.count - 1].output;
    for (int i = 0; i < now.batch * now.classes; i++)
        most = fmax(most, fabs(logits[i]));
    compare("loss", 0, metrics.loss / metrics.images, expected, TOLERANCE * fmax(most, 1));
    for (int i = 0; i < now.batch * now.classes; i++)
        compare("prediction", i, predictions[i],
                now.from_logits ? logits[i]
                                : exp(logits[i] - log_sum(logits + i / now.classes * now.classes)),
                TOLERANCE * (now.from_logits ? most : fmax(most, 1)));
}

// The derivative of the loss along a direction.
static double derivative(double *values, const double *direction, size_t size)
{
    double sides[2];
    for (int s = 0; s < 2; s++) {
        for (size_t k = 0; k < size; k++)
            values[k] += (s == 0 ? 1 : -2) * STEP * direction[k];
        sides[s] = loss(true);
    }
    for (size_t k = 0; k < size; k++)
        values[k] += STEP * direction[k];
    return (sides[0] - sides[1]) / (2 * STEP);
}

// The gradient along a random direction, and two of its elements.
static void compare_gradient(Node *node, int v, double scale)
{
    size_t size = variable_size(&node->shapes[v]);
    float *gradient = allocate(size, sizeof *gradient);
    double *direction = allocate(size, sizeof *direction);
    model_read_gradient(now.model, node->first + v, gradient);
    double most = 0;
    for (size_t k = 0; k < size; k++)
        most = fmax(most, fabs((double)gradient[k]));
    for (int times = 0; times < 3; times++) {
        double along = 0;
        memset(direction, 0, size * sizeof *direction);
        if (times < 2)
            direction[rng_below(&now.rng, (uint32_t)size)] = 1;
        for (size_t k = 0; k < size && times == 2; k++)
            direction[k] = rng_normal(&now.rng) / sqrt((double)size);
        for (size_t k = 0; k < size; k++)
            along += direction[k] * gradient[k];
        compare(model_variable(now.model, node->first + v)->name, times, along,
                derivative(node->values[v], direction, size), 3 * TOLERANCE * most + 1e-5 * scale);
    }
    free(gradient);
    free(direction);
}

static double largest_gradient(void)
{
    size_t length = model_parameters(now.model)->length;
    float *all = allocate(length, sizeof *all);
    double most = 0;
    model_read_gradients(now.model, all);
    for (size_t k = 0; k < length; k++)
        most = fmax(most, fabs((double)all[k]));
    free(all);
    return most;
}

// Moves the reference's moving statistics; the forward pass in training has the batch's inputs.
static void move_statistics(Node *node)
{
    Reference r = {&node->op, now.batch, true, {[INPUT] = now.nodes[node->from].output},
                   NULL,      NULL,      NULL};
    double count = (double)value_size(node->op.in, now.batch) / node->op.in.channels;
    for (int c = 0; c < node->op.in.channels; c++) {
        double mean, variance;
        reference_moments(&r, c, &mean, &variance);
        node->values[MOVING_MEAN][c] += 0.01 * (mean - node->values[MOVING_MEAN][c]);
        node->values[MOVING_VARIANCE][c] +=
            0.01 * (variance * count / (count - 1) - node->values[MOVING_VARIANCE][c]);
    }
}

static bool is_statistic(const Node *node, int v)
{
    return node->op.kind == OP_BATCH_NORM && v >= MOVING_MEAN;
}

// The weights after the update, from the model's own gradients; and the moving statistics.
static void compare_update(Node *node, int v, Weight *state, int round)
{
    size_t size = variable_size(&node->shapes[v]);
    float *values = allocate(2 * size, sizeof *values), *gradient = values + size;
    model_read_variable(now.model, node->first + v, values);
    if (!is_statistic(node, v))
        model_read_gradient(now.model, node->first + v, gradient);
    const Variable *variable = model_variable(now.model, node->first + v);
    double most = 1e-3, penalty = strstr(variable->name, "kernel") ? 2 * (double)now.penalty : 0;
    for (size_t k = 0; k < size; k++)
        most = fmax(most, fabs(node->values[v][k]));
    for (size_t k = 0; k < size; k++) {
        state[k].w = node->values[v][k];
        if (!is_statistic(node, v))
            now.rule->rule(&state[k], gradient[k] + penalty * state[k].w, (double)now.rate,
                           round + 1);
        compare(variable->name, (int)k, values[k], state[k].w,
                TOLERANCE * fmax(most, fabs(state[k].w)));
    }
    free(values);
}

// The largest p - 1 of a label. Near 0 it has lost the digits of p, a float.
static double largest_miss(void)
{
    const double *logits = now.nodes[now.count - 1].output;
    double most = 0;
    for (int n = 0; n < now.batch; n++, logits += now.classes)
        most = fmax(most, -expm1(logits[now.labels[n]] - log_sum(logits)));
    return most;
}

static void train_a_round(int round, Weight *states[MAX_NODES][MAX_VARIABLES])
{
    const Batch batch = {now.images, now.labels, now.batch};
    new_batch();
    read_values();
    compare_inference(&batch);
    compute_gradients(now.model, &batch);
    double scale = largest_gradient();
    loss(true);
    bool compared = largest_miss() > 1e-3 && !is_near_a_kink();
    for (int i = 1; i < now.count; i++)
        for (int v = 0; v < now.nodes[i].variables && compared; v++)
            if (!is_statistic(&now.nodes[i], v))
                compare_gradient(&now.nodes[i], v, scale);
    loss(true);
    for (int i = 1; i < now.count; i++)
        if (now.nodes[i].op.kind == OP_BATCH_NORM)
            move_statistics(&now.nodes[i]);
    apply_gradients(now.model);
    for (int i = 1; i < now.count; i++)
        for (int v = 0; v < now.nodes[i].variables; v++)
            compare_update(&now.nodes[i], v, states[i][v], round);
}

// ---- Cases.

static bool run_case(uint64_t seed)
{
    Weight *states[MAX_NODES][MAX_VARIABLES] = {{0}};
    memset(&now, 0, sizeof now);
    *running = (Case){.seed = seed};
    now.rng = rng_stream_of(seed, RNG_SYNTHETIC_DATA, 0);
    alarm(120); // no case takes so long
    make_network();
    make_model();
    for (int i = 1; i < now.count; i++)
        for (int v = 0; v < now.nodes[i].variables; v++)
            states[i][v] = allocate(variable_size(&now.nodes[i].shapes[v]), sizeof(Weight));
    for (int round = 0; round < ROUNDS && !failed; round++)
        train_a_round(round, states);
    for (int i = 1; i < now.count; i++)
        for (int v = 0; v < now.nodes[i].variables; v++)
            free(states[i][v]);
    free_all();
    return !failed;
}

static int run_cases(void)
{
    const char *text = getenv("FUZZ_SECONDS"), *seed = getenv("FUZZ_SEED");
    double end = seconds_now() + (text ? atof(text) : 2);
    uint64_t begin = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    uint64_t first = text ? begin * 100000 : 1, next = first;
    while (seconds_now() < end && run_case(next))
        next++;
    printf("%llu networks agree with the reference\n", (unsigned long long)(next - first));
    return failed;
}

int main(int argc, char **argv)
{
    int status;
    running =
        mmap(NULL, sizeof *running, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0)
        return argc > 1 ? !run_case(strtoull(argv[1], NULL, 10)) : run_cases();
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 2;
    if (status == 0)
        return 0;
    const char *isa = getenv("DNNL_MAX_CPU_ISA");
    printf("the case of seed %llu failed (%s %d): %s\nagain: DNNL_MAX_CPU_ISA=%s %s %llu\n",
           (unsigned long long)running->seed, WIFSIGNALED(status) ? "signal" : "status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), running->text,
           isa ? isa : "ALL", argv[0], (unsigned long long)running->seed);
    return 1;
}
