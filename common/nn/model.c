// Compiles a graph into a program, lays out its variables, and runs it: forward, backward, update.

#include "nn/model.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backend/constants.h"
#include "data/origin.h"
#include "nn/parts.h"
#include "nn/plan.h"
#include "base/rng.h"
#include "sys/timeline.h"
#include "sys/trace.h"
#include "base/util.h"

// Memory for a part of a batch, the size of a plan's block.
typedef struct {
    char *block;
    size_t bytes;
} PartMemory;

#define MAX_PLANS 4 // one per batch size: training, validation, and the short last batch of each

struct Model {
    Graph *graph;
    Tensor output;
    float wd;
    Loss loss;
    Optimizer *optimizer;
    Device *device; // what computes it and holds its memory; NULL before compile()
    Program program;
    int *op_of_variable;
    Parameters parameters;
    float *statistics;
    size_t statistics_length;
    Plan *plans[MAX_PLANS]; // the most recently used first
    char *workspace;
    size_t workspace_bytes;
    int *labels;
    int labels_capacity;
    Metrics *metrics;       // in device memory
    int replica;            // of the same model in this process, which one
    uint64_t *dropout_keys; // of each operation, in device memory
    uint64_t *next_keys;    // the same in the host's, to be written there
    bool drops;             // some operation drops
    bool has_gradients;     // computed, and not applied yet
    float *tokens;          // of the last batch that had gradients computed, where it was tokens
    size_t token_count;
    int variables_before; // in the model that this one is the second half of
    PartMemory *parts;    // of a batch, by their numbers
    int part_count;
    float *sum; // of the parts' gradients; NULL: of none
};

Model *model(Tensor input, Tensor output)
{
    if (!input || !output || input->graph != output->graph || input->index != 0)
        die("model: the output does not come from this input");
    Model *m = allocate(1, sizeof *m);
    m->graph = output->graph;
    m->output = output;
    lives_until_exit(m);
    return m;
}

static void need_model(const Model *m, const char *caller)
{
    if (!m)
        die("%s: there is no model (NULL)", caller);
}

void model_summary(const Model *m)
{
    need_model(m, __func__);
    graph_summary(m->graph);
}

void model_check_compiled(const Model *m, const char *caller)
{
    need_model(m, caller);
    if (!m->optimizer)
        die("%s: the model is not compiled yet; call compile() first", caller);
}

Model *l2_penalty(Model *m, float wd)
{
    need_model(m, __func__);
    if (m->optimizer)
        die("%s: the model is compiled already; call it before compile()", __func__);
    m->wd = wd;
    return m;
}

// The backend that computes it.
static const Backend *backend(const Model *m)
{
    return backend_of(m->device);
}

static void *allocate_on_device(const Model *m, size_t bytes)
{
    return backend(m)->allocate(m->device, bytes);
}

static void release(const Model *m, void *memory)
{
    backend(m)->release(m->device, memory);
}

static void write_to_device(const Model *m, void *to, const void *from, size_t bytes)
{
    backend(m)->write(m->device, to, from, bytes);
}

static void read_from_device(const Model *m, void *to, const void *from, size_t bytes)
{
    if (m->device->gpu)
        timeline_begin(SPAN_WAIT, "wait for the GPU", -1, -1);
    backend(m)->read(m->device, to, from, bytes);
    if (m->device->gpu)
        timeline_end();
}

// Gives the variable the next place in an arena of `length` floats; returns the new length.
static size_t place(Variable *variable, size_t length)
{
    variable->offset = length;
    return length + (variable->length + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

// Weights lie in the order in which the backward pass completes their gradients, so that a
// distributed optimizer can send long stretches while the pass goes on.
static void lay_out_variables(Model *m)
{
    Parameters *p = &m->parameters;
    Segment *segments = allocate((size_t)m->graph->variable_count, sizeof *segments);
    for (int op = m->program.op_count - 1; op >= 0; op--)
        for (int i = 0; i < MAX_VARIABLES && m->program.ops[op].variables[i]; i++) {
            Variable *v = m->program.ops[op].variables[i];
            if (!v->trainable) {
                m->statistics_length = place(v, m->statistics_length);
                continue;
            }
            p->length = place(v, p->length);
            if (!v->no_gradient)
                segments[p->segment_count++] =
                    (Segment){v->offset, v->length, v->penalized ? m->wd : 0};
        }
    p->segments = segments;
    p->device = m->device;
    p->weights = allocate_on_device(m, p->length * sizeof(float));
    p->gradients = allocate_on_device(m, p->length * sizeof(float));
    m->statistics = allocate_on_device(m, m->statistics_length * sizeof(float));
}

// Glorot and Bengio, 2010: uniform within sqrt(6 / (fan in + fan out)).
static float glorot_limit(const Variable *v)
{
    float window = v->ndims == 4 ? (float)(v->dims[0] * v->dims[1]) : 1;
    float fans = (float)(v->dims[v->ndims - 2] + v->dims[v->ndims - 1]);
    return sqrtf(6 / (window * fans));
}

static void initialize(Model *m, int index)
{
    const Variable *v = m->graph->variables[index];
    size_t size = variable_size(v);
    float *values = allocate(size, sizeof *values);
    Rng rng = rng_stream(RNG_WEIGHTS, (uint64_t)(m->variables_before + index));
    bool uniform = v->initializer == INIT_GLOROT_UNIFORM || v->initializer == INIT_UNIFORM;
    float limit = v->initializer == INIT_GLOROT_UNIFORM ? glorot_limit(v) : 0.05f;
    for (size_t i = 0; i < size; i++) {
        if (uniform)
            values[i] = limit * (2 * rng_uniform(&rng) - 1);
        else
            values[i] = v->initializer == INIT_ONES ? 1 : 0;
    }
    model_write_variable(m, index, values);
    free(values);
}

// Which operation each variable belongs to.
static void find_owners(Model *m)
{
    m->op_of_variable = allocate((size_t)m->graph->variable_count, sizeof(int));
    for (int i = 0; i < m->graph->variable_count; i++) {
        m->op_of_variable[i] = -1;
        for (int op = 0; op < m->program.op_count; op++)
            for (int k = 0; k < MAX_VARIABLES; k++)
                if (m->program.ops[op].variables[k] == m->graph->variables[i])
                    m->op_of_variable[i] = op;
        CHECK(m->op_of_variable[i] >= 0);
    }
}

// Where each element of each weight lies, as one number: it depends on the instruction set, and
// ranks that exchange whole arenas must agree on it. Found by writing numbered elements.
static uint64_t layout(const Model *m)
{
    float *arena = allocate_on_device(m, m->parameters.length * sizeof(float));
    float *numbered = allocate(m->parameters.length, sizeof *numbered);
    for (size_t i = 0; i < m->parameters.length; i++)
        numbered[i] = (float)(i + 1);
    for (int i = 0; i < m->graph->variable_count; i++) {
        const Variable *v = m->graph->variables[i];
        if (v->trainable)
            backend(m)->write_variable(m->device, &m->program.ops[m->op_of_variable[i]], v, arena,
                                       numbered);
    }
    read_from_device(m, numbered, arena, m->parameters.length * sizeof *numbered);
    uint64_t hash = m->parameters.length + m->statistics_length;
    for (size_t i = 0; i < m->parameters.length; i++)
        hash = (hash ^ (uint64_t)numbered[i]) * 0x9e3779b97f4a7c15u;
    free(numbered);
    release(m, arena);
    return hash >> 11; // a double holds it, too
}

static void trace_compile(const Model *m)
{
    Fingerprints prints = model_fingerprints(m);
    trace("compile", TEXT("optimizer", m->optimizer->name), NUMBER("weights", prints.weights),
          NUMBER("statistics", prints.statistics), TEXT("model", m->parameters.description));
}

static void check_compile(const Model *m, Loss loss, const Optimizer *optimizer)
{
    need_model(m, "compile");
    if (m->optimizer)
        die("compile: the model is compiled already");
    if (loss != CATEGORICAL_CROSSENTROPY && loss != CATEGORICAL_CROSSENTROPY_FROM_LOGITS)
        die("compile: there is no loss %d; it is CATEGORICAL_CROSSENTROPY or "
            "CATEGORICAL_CROSSENTROPY_FROM_LOGITS",
            (int)loss);
    if (!optimizer)
        die("compile: there is no optimizer (NULL)");
    for (; optimizer; optimizer = optimizer->inner)
        if (optimizer->compiled)
            die("compile: the optimizer %s belongs to another model; make one for each",
                optimizer->name);
}

static bool reads_logits(const Model *m)
{
    return m->loss == CATEGORICAL_CROSSENTROPY_FROM_LOGITS;
}

Model *compile(Model *m, Loss loss, Optimizer *optimizer)
{
    check_compile(m, loss, optimizer);
    timeline_begin(SPAN_COMPUTE, "compile", -1, -1);
    m->optimizer = optimizer;
    for (Optimizer *o = optimizer; o; o = o->inner)
        o->compiled = true;
    m->device = device_current();
    m->loss = loss;
    m->program = lower(m->graph, m->output, reads_logits(m));
    find_owners(m);
    for (int op = 0; op < m->program.op_count; op++) {
        backend(m)->declare_variables(&m->program.ops[op]);
        m->drops |= m->program.ops[op].dropout_rate > 0;
    }
    lay_out_variables(m);
    for (int i = 0; i < m->graph->variable_count; i++)
        initialize(m, i);
    m->metrics = allocate_on_device(m, sizeof *m->metrics);
    m->dropout_keys = allocate_on_device(m, (size_t)m->program.op_count * sizeof *m->dropout_keys);
    m->next_keys = allocate((size_t)m->program.op_count, sizeof *m->next_keys);
    if (launcher_size() > 1)
        m->parameters.layout = layout(m);
    m->parameters.description = graph_description(m->graph, m->wd, reads_logits(m));
    timeline_end();
    if (trace_on())
        trace_compile(m);
    return m;
}

static void free_compiled(Model *m)
{
    optimizer_free(m->optimizer); // whose gradients may still be under way
    for (int i = 0; i < MAX_PLANS; i++)
        if (m->plans[i])
            plan_free(&m->program, m->plans[i]);
    release(m, m->workspace);
    for (int i = 0; i < m->part_count; i++)
        release(m, m->parts[i].block);
    release(m, m->sum);
    release(m, m->labels);
    release(m, m->metrics);
    release(m, m->dropout_keys);
    release(m, m->statistics);
    release(m, m->parameters.weights);
    release(m, m->parameters.gradients);
    free((void *)(uintptr_t)m->parameters.segments);
    free((void *)(uintptr_t)m->parameters.description);
    free(m->next_keys);
    free(m->parts);
    free(m->tokens);
    free(m->op_of_variable);
    free(m->program.ops);
}

void model_free(Model *m)
{
    if (!m)
        return;
    if (m->device)
        free_compiled(m);
    graph_free(m->graph);
    free(m);
}

// The plan for a batch size, made when it is first asked for.
static Plan *plan_for(Model *m, int batch)
{
    int found = 0;
    while (found < MAX_PLANS - 1 && m->plans[found] && m->plans[found]->batch != batch)
        found++;
    Plan *plan = m->plans[found];
    if (plan && plan->batch != batch) {
        plan_free(&m->program, plan);
        plan = NULL;
    }
    if (!plan) {
        timeline_begin(SPAN_COMPUTE, "plan", batch, -1);
        plan = plan_create(m->device, &m->program, batch);
        timeline_end();
    }
    memmove(&m->plans[1], &m->plans[0], (size_t)found * sizeof *m->plans);
    m->plans[0] = plan;
    return plan;
}

// More memory in place of what recordings work with.
static void *grow(Model *m, void *memory, size_t bytes)
{
    for (int i = 0; i < MAX_PLANS && m->plans[i]; i++) {
        if (m->plans[i]->training)
            backend(m)->forget(m->plans[i]->training);
        m->plans[i]->training = NULL;
    }
    release(m, memory);
    return allocate_on_device(m, bytes);
}

// Has room for the plan, and the images and labels of the batch in device memory.
static void load_batch(Model *m, const Plan *plan, const Batch *batch)
{
    if (plan->bytes > m->workspace_bytes) {
        m->workspace = grow(m, m->workspace, plan->bytes);
        m->workspace_bytes = plan->bytes;
    }
    if (batch->count > m->labels_capacity) {
        m->labels = grow(m, m->labels, (size_t)batch->count * sizeof(int));
        m->labels_capacity = batch->count;
    }
    size_t floats = (size_t)batch->count * model_image_length(m);
    write_to_device(m, m->workspace, batch->images, floats * sizeof(float));
    if (batch->labels)
        write_to_device(m, m->labels, batch->labels, (size_t)batch->count * sizeof(int));
}

static void *at(const Model *m, size_t place)
{
    return place == NOWHERE ? NULL : m->workspace + place;
}

static void *value_at(const Model *m, const Plan *plan, int value)
{
    return value < 0 ? NULL : at(m, plan->values[value]);
}

static Arenas arenas(const Model *m)
{
    return (Arenas){m->parameters.weights, m->parameters.gradients, m->statistics};
}

// A fresh dropout pattern for every operation and step.
static void write_dropout_keys(const Model *m)
{
    if (!m->drops)
        return;
    size_t count = (size_t)m->program.op_count;
    uint64_t step = (uint64_t)optimizer_iterations(m->optimizer);
    for (size_t i = 0; i < count; i++) {
        const Op *op = &m->program.ops[i];
        if (op->dropout_rate <= 0)
            continue;
        Rng rng =
            rng_stream(RNG_DROPOUT, (uint64_t)m->replica << 48 | step << 16 | op->dropout_stream);
        m->next_keys[i] = rng_next(&rng);
    }
    write_to_device(m, m->dropout_keys, m->next_keys, count * sizeof *m->next_keys);
}

static void forward(const Model *m, const Plan *plan, bool training)
{
    for (int i = 0; i < m->program.op_count; i++) {
        const Op *op = &m->program.ops[i];
        backend(m)->forward(plan->states[i],
                            &(ForwardArgs){.input = value_at(m, plan, op->input),
                                           .residual = value_at(m, plan, op->residual),
                                           .output = value_at(m, plan, op->output),
                                           .saved = at(m, plan->saved[i]),
                                           .scratch = at(m, plan->scratch),
                                           .arenas = arenas(m),
                                           .training = training,
                                           .dropout_key = &m->dropout_keys[i]});
    }
}

static void backward_step(const Model *m, const Plan *plan, const BackwardStep *step)
{
    const Op *op = &m->program.ops[step->op];
    backend(m)->backward(plan->states[step->op],
                         &(BackwardArgs){.input = value_at(m, plan, op->input),
                                         .output = value_at(m, plan, op->output),
                                         .saved = at(m, plan->saved[step->op]),
                                         .scratch = at(m, plan->scratch),
                                         .arenas = arenas(m),
                                         .output_gradient = at(m, step->output_gradient),
                                         .output_gradient2 = at(m, step->output_gradient2),
                                         .input_gradient = at(m, step->input_gradient),
                                         .residual_gradient = at(m, step->residual_gradient),
                                         .dropout_key = &m->dropout_keys[step->op]});
}

static const Op *owner(const Model *m, int index)
{
    return &m->program.ops[m->op_of_variable[index]];
}

static bool reads_tokens(const Model *m)
{
    return m->graph->nodes[0]->kind == NODE_INPUT_TOKENS;
}

// The gradient of an embedding's table: the rows that the batch named, or all that are not 0.
static void trace_table(const Model *m, int index, const char *event, bool named)
{
    const Variable *v = m->graph->variables[index];
    size_t count = named ? m->token_count : (size_t)v->dims[0];
    float *tokens = allocate(count, sizeof *tokens);
    for (size_t t = 0; t < count; t++)
        tokens[t] = named ? m->tokens[t] : (float)t;
    float *dense = allocate(variable_size(v), sizeof *dense);
    model_read_gradient(m, index, dense);
    SparseGradient gradient = sparse_gather(dense, v->dims[1], tokens, count);
    sparse_trace(event, v, &gradient, named);
    sparse_gradient_free(&gradient);
    free(tokens);
    free(dense);
}

static void trace_tables(const Model *m, const char *event, bool named)
{
    for (int i = 0; i < m->graph->variable_count; i++)
        if (owner(m, i)->kind == OP_EMBEDDING)
            trace_table(m, i, event, named);
}

// Tells the optimizer that the gradients of an operation's variables are complete; adds to their
// fingerprint, for the last time that they are this process's own.
static void report_ready(const Model *m, const Op *op, double *fingerprint)
{
    if (!op->variables[0])
        return;
    size_t begin = op->variables[0]->offset, end = begin;
    for (int i = 0; i < MAX_VARIABLES && op->variables[i]; i++)
        if (op->variables[i]->trainable)
            end = op->variables[i]->offset + op->variables[i]->length;
    if (trace_on()) {
        *fingerprint += arena_fingerprint(m->device, m->parameters.gradients, begin, end - begin);
        if (op->kind == OP_EMBEDDING)
            trace_tables(m, "table_gradient", true);
    }
    if (m->optimizer->gradient_ready)
        m->optimizer->gradient_ready(m->optimizer, &m->parameters, begin, end - begin);
}

static void backward(const Model *m, const Plan *plan)
{
    double fingerprint = 0;
    for (int i = 0; i < m->program.op_count; i++) {
        backward_step(m, plan, &plan->backward[i]);
        report_ready(m, &m->program.ops[plan->backward[i].op], &fingerprint);
    }
    if (trace_on())
        trace("gradient", NUMBER("value", fingerprint),
              NUMBER("arena", model_arena_fingerprint(m)));
}

static int classes(const Model *m)
{
    return m->output->shape.channels;
}

void model_check_dataset(const Model *m, const Dataset *d)
{
    need_model(m, __func__);
    Shape image = m->graph->nodes[0]->shape;
    if (reads_tokens(m))
        die("the data set is of images, the model reads tokens");
    if (d->height != image.height || d->width != image.width || d->channels != image.channels)
        die("the images are %dx%dx%d, the model reads %dx%dx%d", d->height, d->width, d->channels,
            image.height, image.width, image.channels);
    if (d->classes > classes(m))
        die("the labels are of %d classes, the model has %d", d->classes, classes(m));
}

static void compute_loss(const Model *m, const Plan *plan, int batch)
{
    backend(m)->cross_entropy(m->device, value_at(m, plan, m->program.logits), m->labels,
                              at(m, plan->logits_gradient), batch, classes(m), m->metrics);
}

// -log of the probability that a row of the model's output gives to a class: there itself, or by a
// softmax.
static double surprise_of(const Model *m, const float *row, int class)
{
    if (reads_logits(m) && m->output->kind == NODE_SOFTMAX)
        return -log(fmax((double)row[class], (double)FLT_MIN)); // finite
    double largest = (double)row[0], sum = 0;
    for (int c = 1; c < classes(m); c++)
        largest = fmax(largest, (double)row[c]);
    for (int c = 0; c < classes(m); c++)
        sum += exp((double)row[c] - largest);
    return largest + log(sum) - (double)row[class];
}

// What the model itself says of a batch, whatever loss is computed of it, and that loss.
static void trace_answers(const Model *m, const Plan *plan, const Batch *batch, bool training,
                          double loss_before)
{
    size_t floats = (size_t)batch->count * (size_t)classes(m);
    float *output = allocate(floats, sizeof *output);
    read_from_device(m, output, value_at(m, plan, m->program.logits), floats * sizeof *output);
    double surprise = 0, surest = 0, correct = 0;
    for (int i = 0; i < batch->count; i++) {
        const float *row = output + i * classes(m);
        int best = 0;
        for (int c = 1; c < classes(m); c++)
            best = row[c] > row[best] ? c : best;
        correct += best == batch->labels[i];
        surprise += surprise_of(m, row, batch->labels[i]);
        surest = fmax(surest, exp(-surprise_of(m, row, best)));
    }
    free(output);
    trace("answers", NUMBER("training", training), NUMBER("images", batch->count),
          NUMBER("loss", model_metrics(m).loss - loss_before), NUMBER("surprise", surprise),
          NUMBER("correct", correct), NUMBER("surest", surest));
}

typedef struct {
    const Model *model;
    const Plan *plan;
} Step;

static void queue_forward(const void *what)
{
    const Step *step = what;
    forward(step->model, step->plan, true);
    compute_loss(step->model, step->plan, step->plan->batch);
}

static void queue_step(const void *what)
{
    const Step *step = what;
    queue_forward(step);
    backward(step->model, step->plan);
}

// A recording holds what the device does. What the host does meanwhile would be missing in it: to
// write a trace, or, going backward, to send gradients. And so that libraries have set themselves
// up, a plan's first step is made without.
static void compute(const Step *step, Plan *plan)
{
    const Optimizer *optimizer = step->model->optimizer;
    const Backend *compiled = backend(step->model);
    bool whole = !optimizer->gradient_ready;
    bool recorded = compiled->record && plan->trained && !trace_on();
    if (recorded && !plan->training)
        plan->training = compiled->record(plan->device, whole ? queue_step : queue_forward, step);
    plan->trained = true;
    if (!recorded || !plan->training) {
        queue_forward(step);
        timeline_next(SPAN_COMPUTE, TIMELINE_QUEUED(plan->device->gpu, "backward"), -1, -1);
        backward(step->model, step->plan);
        return;
    }
    if (whole)
        timeline_next(SPAN_COMPUTE, "forward and backward (queued)", plan->batch, -1);
    compiled->play(plan->training);
    if (whole)
        return;
    timeline_next(SPAN_COMPUTE, "backward (queued)", -1, -1);
    backward(step->model, step->plan);
}

// Tokens must be rows of the tables that they are looked up in, or none.
static void check_tokens(const Model *m, const Batch *batch, const char *caller)
{
    const Graph *graph = m->graph;
    size_t count = (size_t)batch->count * (size_t)graph->nodes[0]->shape.width;
    for (int k = 1; k < graph->node_count && reads_tokens(m); k++) {
        const struct Node *node = graph->nodes[k];
        for (size_t i = 0; node->kind == NODE_EMBEDDING && i < count; i++) {
            float token = batch->images[i];
            if (!(token >= NO_TOKEN && token < (float)node->size && token == floorf(token)))
                die("%s: a token of the batch is %s, and the embedding has %d, from 0", caller,
                    float_text(token).text, node->size);
        }
    }
}

// What a batch must have for the call; with labels, they must be classes of the model.
static void check_batch(const Model *m, const Batch *batch, bool labelled, const char *caller)
{
    model_check_compiled(m, caller);
    if (!batch || !batch->images || batch->count < 1)
        die("%s: there are no images in the batch", caller);
    check_tokens(m, batch, caller);
    if (labelled && !batch->labels)
        die("%s: there are no labels in the batch", caller);
    for (int i = 0; labelled && i < batch->count; i++)
        if (batch->labels[i] < 0 || batch->labels[i] >= classes(m))
            die("%s: a label of the batch is %d, and the model has %d classes, from 0", caller,
                batch->labels[i], classes(m));
}

// They say which rows of a table have a gradient.
static void keep_tokens(Model *m, const Batch *batch)
{
    if (!reads_tokens(m))
        return;
    m->token_count = (size_t)batch->count * (size_t)m->graph->nodes[0]->shape.width;
    m->tokens = enlarge(m->tokens, m->token_count, sizeof *m->tokens);
    memcpy(m->tokens, batch->images, m->token_count * sizeof *m->tokens);
}

// Images that one of several threads computes: no other event says which they are.
static void trace_part(const Model *m, const Batch *batch, const char *purpose)
{
    char *pixels = pixels_text(batch->images, batch->count, model_image_length(m));
    char *labels = labels_text(batch->labels, batch->count);
    trace("part", TEXT("purpose", purpose), NUMBER("images", batch->count), TEXT("pixels", pixels),
          TEXT("labels", labels), NUMBER("arena", model_arena_fingerprint(m)));
    free(pixels);
    free(labels);
}

static void compute_batch(Model *m, const Batch *batch)
{
    device_adopt(m->device);
    if (trace_on() && trace_thread_is_named())
        trace_part(m, batch, "train");
    Optimizer *optimizer = m->optimizer;
    if (m->has_gradients && optimizer->gradient_ready) // which are dropped, and may be under way
        optimizer->gradient_ready(optimizer, &m->parameters, 0, 0);
    timeline_begin(SPAN_COMPUTE, TIMELINE_QUEUED(m->device->gpu, "forward"), batch->count, -1);
    Plan *plan = plan_for(m, batch->count);
    Step step = {m, plan};
    load_batch(m, plan, batch);
    keep_tokens(m, batch);
    write_dropout_keys(m);
    double loss_before = trace_on() ? model_metrics(m).loss : 0;
    compute(&step, plan);
    if (trace_on())
        trace_answers(m, plan, batch, true, loss_before);
    timeline_end();
    m->has_gradients = true;
}

void compute_gradients(Model *m, const Batch *batch)
{
    check_batch(m, batch, true, __func__);
    compute_batch(m, batch);
}

static void apply(Model *m)
{
    if (trace_on() && !m->optimizer->gradient_ready) // else they may be under way
        trace_tables(m, "table_apply", false);
    m->has_gradients = false;
    m->optimizer->apply(m->optimizer, &m->parameters);
}

void apply_gradients(Model *m)
{
    model_check_compiled(m, __func__);
    if (!m->has_gradients)
        die("%s: there are no gradients; call compute_gradients() before each update", __func__);
    apply(m);
}

void train_on_batch(Model *m, const Batch *batch)
{
    check_batch(m, batch, true, __func__);
    compute_batch(m, batch);
    apply(m);
}

void test_on_batch(Model *m, const Batch *batch)
{
    check_batch(m, batch, true, __func__);
    device_adopt(m->device);
    if (trace_on() && trace_thread_is_named())
        trace_part(m, batch, "test");
    timeline_begin(SPAN_COMPUTE, TIMELINE_QUEUED(m->device->gpu, "forward"), batch->count, -1);
    Plan *plan = plan_for(m, batch->count);
    load_batch(m, plan, batch);
    double loss_before = trace_on() ? model_metrics(m).loss : 0;
    forward(m, plan, false);
    compute_loss(m, plan, batch->count);
    if (trace_on())
        trace_answers(m, plan, batch, false, loss_before);
    timeline_end();
}

void predict_on_batch(Model *m, const Batch *batch, float *predictions)
{
    check_batch(m, batch, false, __func__);
    if (!predictions)
        die("%s: there is no place for the predictions (NULL)", __func__);
    device_adopt(m->device);
    Plan *plan = plan_for(m, batch->count);
    load_batch(m, plan, batch);
    forward(m, plan, false);
    const float *result = value_at(m, plan, m->program.logits);
    if (!reads_logits(m)) { // else a last softmax has been computed like any layer
        float *probabilities = at(m, plan->probabilities);
        backend(m)->softmax(m->device, result, probabilities, batch->count, classes(m));
        result = probabilities;
    }
    size_t bytes = (size_t)batch->count * (size_t)classes(m) * sizeof(float);
    read_from_device(m, predictions, result, bytes);
}

Metrics model_metrics(const Model *m)
{
    model_check_compiled(m, __func__);
    Metrics metrics;
    read_from_device(m, &metrics, m->metrics, sizeof metrics);
    return metrics;
}

bool model_metrics_are_at_hand(const Model *m)
{
    return !m->device->gpu;
}

size_t model_image_length(const Model *m)
{
    Shape image = m->graph->nodes[0]->shape;
    return (size_t)image.height * (size_t)image.width * (size_t)image.channels;
}

void model_is_replica(Model *m, int number)
{
    m->replica = number;
}

void model_gradients_are_new(Model *m)
{
    m->has_gradients = true;
}

void model_write_metrics(Model *m, const Metrics *metrics)
{
    write_to_device(m, m->metrics, metrics, sizeof *metrics);
}

void model_reset_metrics(Model *m)
{
    model_check_compiled(m, __func__);
    model_write_metrics(m, &(Metrics){0});
}

Optimizer *model_optimizer(const Model *m)
{
    model_check_compiled(m, __func__);
    return m->optimizer;
}

int model_variable_count(const Model *m)
{
    need_model(m, __func__);
    return m->graph->variable_count;
}

static void check_index(const Model *m, int index, const char *caller)
{
    if (index < 0 || index >= m->graph->variable_count)
        die("%s: there is no variable %d; the model has %d, from 0", caller, index,
            m->graph->variable_count);
}

const Variable *model_variable(const Model *m, int index)
{
    need_model(m, __func__);
    check_index(m, index, __func__);
    return m->graph->variables[index];
}

static float *arena_of(const Model *m, const Variable *v)
{
    return v->trainable ? m->parameters.weights : m->statistics;
}

void model_read_variable(const Model *m, int index, float *to)
{
    model_check_compiled(m, __func__);
    check_index(m, index, __func__);
    const Variable *v = m->graph->variables[index];
    backend(m)->read_variable(m->device, owner(m, index), v, arena_of(m, v), to);
}

void model_write_variable(Model *m, int index, const float *from)
{
    model_check_compiled(m, __func__);
    check_index(m, index, __func__);
    const Variable *v = m->graph->variables[index];
    backend(m)->write_variable(m->device, owner(m, index), v, arena_of(m, v), from);
}

// The arena of a slot; before the first update it is made, zeroed.
static float *slot_arena(const Model *m, int slot)
{
    Optimizer *optimizer = optimizer_innermost(m->optimizer);
    optimizer_allocate_slots(optimizer, &m->parameters);
    return optimizer->slots[slot];
}

void model_read_slot(const Model *m, int index, int slot, float *to)
{
    const Variable *v = m->graph->variables[index];
    backend(m)->read_variable(m->device, owner(m, index), v, slot_arena(m, slot), to);
}

void model_write_slot(Model *m, int index, int slot, const float *from)
{
    const Variable *v = m->graph->variables[index];
    backend(m)->write_variable(m->device, owner(m, index), v, slot_arena(m, slot), from);
}

void model_read_gradient(const Model *m, int index, float *to)
{
    model_check_compiled(m, __func__);
    check_index(m, index, __func__);
    const Variable *v = m->graph->variables[index];
    if (!v->trainable)
        die("%s: %s has no gradient; it is not trained", __func__, v->name);
    backend(m)->read_variable(m->device, owner(m, index), v, m->parameters.gradients, to);
}

void model_check_has_gradients(const Model *m, const char *caller)
{
    model_check_compiled(m, caller);
    if (!m->has_gradients)
        die("%s: there are no gradients; call compute_gradients() before", caller);
}

void model_write_gradient(Model *m, int index, const float *from)
{
    model_check_has_gradients(m, __func__);
    check_index(m, index, __func__);
    const Variable *v = m->graph->variables[index];
    if (!v->trainable)
        die("%s: %s has no gradient; it is not trained", __func__, v->name);
    backend(m)->write_variable(m->device, owner(m, index), v, m->parameters.gradients, from);
}

void model_read_gradients(const Model *m, float *to)
{
    model_check_has_gradients(m, __func__);
    const Parameters *p = &m->parameters;
    backend(m)->read(m->device, to, p->gradients, p->length * sizeof *to);
}

void model_write_gradients(Model *m, const float *from)
{
    model_check_compiled(m, __func__);
    const Parameters *p = &m->parameters;
    backend(m)->write(m->device, p->gradients, from, p->length * sizeof *from);
    m->has_gradients = true;
}

// The variable, which must be an embedding's table.
static const Variable *table(const Model *m, int index, const char *caller)
{
    model_check_has_gradients(m, caller);
    check_index(m, index, caller);
    const Variable *v = m->graph->variables[index];
    if (owner(m, index)->kind != OP_EMBEDDING)
        die("%s: %s is no embedding's table, and its gradient has no rows", caller, v->name);
    return v;
}

SparseGradient model_sparse_gradient(const Model *m, int index)
{
    const Variable *v = table(m, index, __func__);
    float *dense = allocate(variable_size(v), sizeof *dense);
    model_read_gradient(m, index, dense);
    SparseGradient gradient = sparse_gather(dense, v->dims[1], m->tokens, m->token_count);
    free(dense);
    return gradient;
}

void model_write_sparse_gradient(Model *m, int index, const SparseGradient *gradient)
{
    trace_call();
    const Variable *v = table(m, index, __func__);
    if (!gradient || gradient->dimension != v->dims[1])
        die("%s: the rows have %d values, those of %s have %d", __func__,
            gradient ? gradient->dimension : 0, v->name, v->dims[1]);
    float *dense = allocate(variable_size(v), sizeof *dense);
    sparse_scatter(gradient, dense, v->dims[0], __func__);
    model_write_gradient(m, index, dense);
    free(dense);
}

static double fingerprint(const Model *m, int index)
{
    size_t size = variable_size(m->graph->variables[index]);
    float *values = allocate(size, sizeof *values);
    model_read_variable(m, index, values);
    Rng rng = rng_stream_of(0, RNG_FINGERPRINT, (uint64_t)index);
    double sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += (double)values[i] * (2 * (double)rng_uniform(&rng) - 1);
    free(values);
    return sum;
}

double model_arena_fingerprint(const Model *m)
{
    return arena_fingerprint(m->device, m->parameters.weights, 0, m->parameters.length);
}

Fingerprints model_fingerprints(const Model *m)
{
    model_check_compiled(m, __func__);
    Fingerprints prints = {0};
    for (int i = 0; i < m->graph->variable_count; i++) {
        bool trainable = m->graph->variables[i]->trainable;
        *(trainable ? &prints.weights : &prints.statistics) += fingerprint(m, i);
    }
    return prints;
}

const Parameters *model_parameters(const Model *m)
{
    need_model(m, __func__);
    return &m->parameters;
}

float *model_statistics(const Model *m, size_t *length)
{
    need_model(m, __func__);
    *length = m->statistics_length;
    return m->statistics;
}

// ---- A batch in parts.

void model_follow(Model *m, int variables)
{
    m->variables_before = variables;
}

bool model_reads_vector(const Model *m)
{
    return m->graph->nodes[0]->kind == NODE_INPUT_VECTOR;
}

bool model_repeats(const Model *m)
{
    return !m->drops && m->statistics_length == 0;
}

int model_input_size(const Model *m)
{
    Shape s = m->graph->nodes[0]->shape;
    return s.height * s.width * s.channels;
}

int model_output_size(const Model *m)
{
    return classes(m);
}

// The memory of the part becomes the model's, or back: each call does the other's work.
static void exchange(Model *m, Part part)
{
    if (part.number >= m->part_count) {
        int count = part.number + 1;
        m->parts = enlarge(m->parts, (size_t)count, sizeof *m->parts);
        for (; m->part_count < count; m->part_count++)
            m->parts[m->part_count] = (PartMemory){0};
    }
    PartMemory *memory = &m->parts[part.number], models = {m->workspace, m->workspace_bytes};
    m->workspace = memory->block;
    m->workspace_bytes = memory->bytes;
    *memory = models;
}

void model_forward_part(Model *m, Part part, const float *input, const int *labels, bool training)
{
    const Batch batch = {.images = input, .labels = labels, .count = part.count};
    check_batch(m, &batch, labels != NULL, "the stages");
    device_adopt(m->device);
    exchange(m, part);
    Plan *plan = plan_for(m, part.count);
    load_batch(m, plan, &batch);
    if (training)
        write_dropout_keys(m);
    forward(m, plan, training);
    if (labels)
        compute_loss(m, plan, part.count);
    exchange(m, part);
}

// What lies at a place of the part's block.
static void read_part(Model *m, Part part, size_t place, int size, float *to)
{
    size_t bytes = (size_t)part.count * (size_t)size * sizeof *to;
    read_from_device(m, to, m->parts[part.number].block + place, bytes);
}

void model_read_output(Model *m, Part part, float *to)
{
    read_part(m, part, plan_for(m, part.count)->values[m->program.logits], model_output_size(m),
              to);
}

void model_read_input_gradient(Model *m, Part part, float *to)
{
    read_part(m, part, plan_for(m, part.count)->input_gradient, model_input_size(m), to);
}

void model_backward_part(Model *m, Part part, const float *output_gradient)
{
    exchange(m, part);
    Plan *plan = plan_for(m, part.count);
    size_t bytes = (size_t)part.count * (size_t)classes(m) * sizeof *output_gradient;
    if (output_gradient)
        write_to_device(m, at(m, plan->logits_gradient), output_gradient, bytes);
    for (int i = 0; i < m->program.op_count; i++)
        backward_step(m, plan, &plan->backward[i]);
    exchange(m, part);
}

// sum += weight * gradients, which is an update by SGD.
void model_add_gradients(Model *m, float weight)
{
    const Parameters *p = &m->parameters;
    if (!m->sum)
        m->sum = allocate_on_device(m, p->length * sizeof *m->sum); // zeros
    Update add = {.kind = SGD,
                  .learning_rate = -weight,
                  .step = 1,
                  .weights = m->sum,
                  .gradients = p->gradients};
    Segment all = {.length = p->length};
    backend(m)->update(m->device, &add, &all, 1);
}

// The next one begins with zeros, in memory of its own.
void model_drop_sum(Model *m)
{
    release(m, m->sum);
    m->sum = NULL;
}

void model_apply_sum(Model *m)
{
    Parameters parameters = m->parameters;
    parameters.gradients = m->sum;
    m->optimizer->apply(m->optimizer, &parameters);
    model_drop_sum(m);
}

bool model_has_sum(const Model *m)
{
    return m->sum != NULL;
}

double model_gradient_fingerprint(const Model *m)
{
    const Parameters *p = &m->parameters;
    return arena_fingerprint(m->device, p->gradients, 0, p->length);
}

double model_sum_fingerprint(const Model *m)
{
    return arena_fingerprint(m->device, m->sum, 0, m->parameters.length);
}
