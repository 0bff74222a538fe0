// Reads and writes a compiled model's data, one variable or all: metrics, weights, statistics,
// slots and gradients; and computes their fingerprints.

#include "nn/model_inside.h"

#include <stdlib.h>
#include "base/rng.h"
#include "nn/weights.h"
#include "observe/trace.h"

// ---- Metrics.

Metrics model_own_metrics(const Model *m)
{
    Metrics metrics;
    read_from_device(m, &metrics, m->metrics, sizeof metrics);
    return metrics;
}

Metrics model_metrics(const Model *m)
{
    model_check_compiled(m, __func__);
    if (m->gather)
        m->gather(m->gatherer);
    return model_own_metrics(m);
}

void model_gather_metrics(Model *m, void (*gather)(void *self), void *self)
{
    m->gather = gather;
    m->gatherer = self;
}

bool model_metrics_are_available(const Model *m)
{
    return !m->device->gpu;
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

// ---- Passes.

int64_t model_passes(const Model *m)
{
    return m->passes;
}

void model_set_passes(Model *m, int64_t passes)
{
    m->passes = passes;
}

// ---- Variables and slots.

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

static void check_values(const void *values, const char *caller)
{
    if (!values)
        die("%s: the values are NULL", caller);
}

void model_read_variable(const Model *m, int index, float *to)
{
    model_check_compiled(m, __func__);
    check_values(to, __func__);
    check_index(m, index, __func__);
    const Variable *v = m->graph->variables[index];
    backend(m)->read_variable(m->device, owner(m, index), v, arena_of(m, v), to);
}

void model_write_variable(Model *m, int index, const float *from)
{
    model_check_compiled(m, __func__);
    check_values(from, __func__);
    check_index(m, index, __func__);
    const Variable *v = m->graph->variables[index];
    backend(m)->write_variable(m->device, owner(m, index), v, arena_of(m, v), from);
}

// The arena of a slot; allocates and zeroes it before the first update.
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

void model_write_slot_at(Model *m, int slot, size_t offset, size_t count, const float *from)
{
    write_to_device(m, slot_arena(m, slot) + offset, from, count * sizeof *from);
}

// ---- Gradients.

void model_gradients_are_new(Model *m)
{
    m->has_gradients = true;
}

void model_check_keeps_gradients(const Model *m, const char *caller)
{
    model_check_compiled(m, caller);
    if (m->optimizer->takes_pieces)
        die("%s: this model's optimizer gets the gradients piece by piece; nothing keeps them",
            caller);
}

void model_check_has_gradients(const Model *m, const char *caller)
{
    model_check_keeps_gradients(m, caller);
    if (!m->has_gradients)
        die("%s: there are no gradients; call compute_gradients() before", caller);
}

void model_read_gradient(const Model *m, int index, float *to)
{
    model_check_keeps_gradients(m, __func__);
    check_values(to, __func__);
    check_index(m, index, __func__);
    const Variable *v = m->graph->variables[index];
    if (!v->trainable)
        die("%s: %s has no gradient; it is not trained", __func__, v->name);
    backend(m)->read_variable(m->device, owner(m, index), v, m->parameters.gradients, to);
}

static void clear_gradients(Model *m)
{
    float *zeros = allocate(m->parameters.length, sizeof *zeros);
    model_write_gradients(m, zeros);
    free(zeros);
}

void model_write_gradient(Model *m, int index, const float *from)
{
    model_check_keeps_gradients(m, __func__);
    check_values(from, __func__);
    check_index(m, index, __func__);
    const Variable *v = m->graph->variables[index];
    if (!v->trainable)
        die("%s: %s has no gradient; it is not trained", __func__, v->name);
    if (!m->has_gradients)
        clear_gradients(m);
    backend(m)->write_variable(m->device, owner(m, index), v, m->parameters.gradients, from);
}

void model_read_gradients(const Model *m, float *to)
{
    model_check_has_gradients(m, __func__);
    check_values(to, __func__);
    const Parameters *p = &m->parameters;
    backend(m)->read(m->device, to, p->gradients, p->length * sizeof *to);
}

void model_write_gradients(Model *m, const float *from)
{
    model_check_keeps_gradients(m, __func__);
    check_values(from, __func__);
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
    if (!gradient || gradient->count < 0 ||
        (gradient->count > 0 && (!gradient->rows || !gradient->values)))
        die("%s: there is no gradient, or no rows or values in it (NULL)", __func__);
    if (gradient->dimension != v->dims[1])
        die("%s: the rows have %d values, those of %s have %d", __func__, gradient->dimension,
            v->name, v->dims[1]);
    float *dense = allocate(variable_size(v), sizeof *dense);
    sparse_scatter(gradient, dense, v->dims[0], __func__);
    model_write_gradient(m, index, dense);
    free(dense);
}

// ---- As a whole.

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
    model_check_compiled(m, __func__);
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

MemoryUse model_memory(const Model *m)
{
    model_check_compiled(m, __func__);
    size_t length = m->parameters.length;
    MemoryUse use = {
        .weights = (length + m->statistics_length) * sizeof(float),
        .gradients = (m->gradients_length + (m->sum ? length : 0)) * sizeof(float),
        .activations = m->workspace_bytes,
    };
    for (int i = 0; i < m->part_count; i++)
        use.activations += m->parts[i].bytes;
    for (const Optimizer *o = m->optimizer; o; o = o->inner) {
        use.gradients += o->gradient_bytes;
        use.optimizer += o->state_bytes;
        if (o->weight_bytes)
            use.weights = o->weight_bytes + m->statistics_length * sizeof(float);
        for (int i = 0; i < o->slot_count; i++)
            use.optimizer += o->slots[i] ? length * sizeof(float) : 0;
    }
    return use;
}

const Parameters *model_parameters(const Model *m)
{
    model_check_compiled(m, __func__);
    return &m->parameters;
}

float *model_statistics(const Model *m, size_t *length)
{
    model_check_compiled(m, __func__);
    if (length)
        *length = m->statistics_length;
    return m->statistics;
}
