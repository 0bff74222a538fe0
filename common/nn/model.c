// Makes a model of a graph, compiles it into a program, lays out its variables and draws its
// initial weights, and frees it.

#include "nn/model_inside.h"

#include <math.h>
#include <stdlib.h>
#include "backend/constants.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/launcher.h"
#include "observe/trace.h"

Model *model(Tensor input, Tensor output)
{
    if (!input || !output || input->graph != output->graph || input->index != 0)
        die("model: the output does not come from this input");
    Model *m = allocate(1, sizeof *m);
    m->graph = output->graph;
    m->graph->models++;
    m->output = output;
    lives_until_exit(m);
    return m;
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

bool model_is_compiled(const Model *m)
{
    need_model(m, __func__);
    return m->optimizer != NULL;
}

Model *l2_penalty(Model *m, float wd)
{
    need_model(m, __func__);
    if (m->optimizer)
        die("%s: the model is compiled already; call it before compile()", __func__);
    if (!(wd >= 0 && wd < INFINITY))
        die("%s: the penalty is %g, and not a finite number from 0", __func__, (double)wd);
    m->wd = wd;
    return m;
}

// Gives the variable the next place in an arena of `length` floats; returns the new length.
static size_t place(Variable *variable, size_t length)
{
    variable->offset = length;
    return length + (variable->length + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

// The gradients of an operation's variables are a piece: its offset and length in the arena. Length
// 0: it has none.
size_t model_piece(const Op *op, size_t *begin)
{
    if (!op->variables[0])
        return 0;
    size_t end = *begin = op->variables[0]->offset;
    for (int i = 0; i < MAX_VARIABLES && op->variables[i]; i++)
        if (op->variables[i]->trainable)
            end = op->variables[i]->offset + op->variables[i]->length;
    return end - *begin;
}

static size_t longest_piece(const Model *m)
{
    size_t longest = 0;
    for (int i = 0; i < m->parameters.piece_count; i++)
        longest =
            m->parameters.pieces[i].length > longest ? m->parameters.pieces[i].length : longest;
    return longest;
}

// Weights lie in the order in which the backward pass completes their gradients, so that a
// distributed optimizer can send long stretches while the pass goes on.
static void lay_out_variables(Model *m)
{
    Parameters *p = &m->parameters;
    Segment *segments = allocate((size_t)m->graph->variable_count, sizeof *segments);
    Segment *pieces = allocate((size_t)m->program.op_count, sizeof *pieces);
    for (int op = m->program.op_count - 1; op >= 0; op--) {
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
        Segment *piece = &pieces[p->piece_count];
        piece->length = model_piece(&m->program.ops[op], &piece->offset);
        p->piece_count += piece->length > 0;
    }
    p->segments = segments;
    p->pieces = pieces;
    p->device = m->device;
    p->weights = allocate_on_device(m, p->length * sizeof(float));
    m->gradients_length = m->optimizer->takes_pieces ? longest_piece(m) : p->length;
    p->gradients = allocate_on_device(m, m->gradients_length * sizeof(float));
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

// The operation of each variable.
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

// One number for the layout of all weights: it depends on the instruction set, and ranks that
// exchange whole arenas must have the same. Computed by writing numbered elements.
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
        hash = hash_number(hash, (uint64_t)numbered[i]);
    free(numbered);
    release(m, arena);
    return hash >> 11; // a double holds it, too
}

uint64_t model_layout(const Model *m)
{
    return m->parameters.layout ? m->parameters.layout : layout(m);
}

static void trace_compile(const Model *m)
{
    if (!trace_on())
        return;
    Fingerprints prints = model_fingerprints(m);
    trace("compile", TEXT("optimizer", m->optimizer->name),
          NUMBER("learning_rate", optimizer_learning_rate(m->optimizer)),
          NUMBER("weights", prints.weights), NUMBER("statistics", prints.statistics),
          TEXT("model", m->parameters.description));
}

static void check_compile(const Model *m, Loss loss, const Optimizer *optimizer)
{
    need_model(m, "compile");
    if (m->optimizer)
        die("compile: the model is compiled already");
    if (m->graph->compiled)
        die("compile: another model with these layers was compiled already; make them once more");
    if (loss != CATEGORICAL_CROSSENTROPY && loss != CATEGORICAL_CROSSENTROPY_FROM_LOGITS)
        die("compile: there is no loss %d; it is CATEGORICAL_CROSSENTROPY "
            "or CATEGORICAL_CROSSENTROPY_FROM_LOGITS",
            (int)loss);
    if (!optimizer)
        die("compile: there is no optimizer (NULL)");
    for (; optimizer; optimizer = optimizer->inner) {
        if (!optimizer->name)
            die("compile: an optimizer has no name (NULL)");
        if (optimizer->compiled)
            die("compile: the optimizer %s belongs to another model; make one for each",
                optimizer->name);
        optimizer_check(optimizer);
    }
}

Model *compile(Model *m, Loss loss, Optimizer *optimizer)
{
    check_compile(m, loss, optimizer);
    span_begin(SPAN_COMPUTE, "compile", -1, -1);
    m->optimizer = optimizer;
    m->graph->compiled = true;
    for (Optimizer *o = optimizer; o; o = o->inner)
        o->compiled = true;
    m->device = device_current();
    m->loss = loss;
    m->program = lower(m->graph, m->output, reads_logits(m));
    if (m->program.op_count == 0)
        die("compile: the model has no layer between its input and its output; a softmax at its "
            "end belongs to the loss");
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
    span_end();
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
    free((void *)(uintptr_t)m->parameters.pieces);
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
    if (--m->graph->models == 0)
        graph_free(m->graph);
    free(m);
}

Optimizer *model_optimizer(const Model *m)
{
    model_check_compiled(m, __func__);
    return m->optimizer;
}

void model_is_replica(Model *m, int number)
{
    m->replica = number;
}

void model_mark_broadcast(Model *m)
{
    m->broadcast = true;
}

bool model_was_broadcast(const Model *m)
{
    return m->broadcast;
}

size_t model_image_length(const Model *m)
{
    Shape image = m->graph->nodes[0]->shape;
    return (size_t)image.height * (size_t)image.width * (size_t)image.channels;
}

void model_check_dataset(const Model *m, const Dataset *d)
{
    need_model(m, __func__);
    if (!d)
        die("%s: there is no data set (NULL)", __func__);
    Shape image = m->graph->nodes[0]->shape;
    if (reads_tokens(m))
        die("the data set is of images, the model reads tokens");
    if (d->height != image.height || d->width != image.width || d->channels != image.channels)
        die("the images are %dx%dx%d, the model reads %dx%dx%d", d->height, d->width, d->channels,
            image.height, image.width, image.channels);
    if (d->classes > classes(m))
        die("the labels are of %d classes, the model has %d", d->classes, classes(m));
}
