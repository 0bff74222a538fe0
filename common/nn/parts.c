// A batch in parts; parts.h has the contract. A part's memory replaces the model's while the model
// computes the part.

#include "nn/parts.h"

#include "nn/model_inside.h"

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
    return (int)model_image_length(m);
}

int model_output_size(const Model *m)
{
    return classes(m);
}

// Swaps the part's memory with the model's; a second call swaps it back.
static void exchange(Model *m, Part part)
{
    if (part.number >= m->part_count) {
        int count = part.number + 1;
        m->parts = enlarge(m->parts, (size_t)count, sizeof *m->parts);
        for (; m->part_count < count; m->part_count++)
            m->parts[m->part_count] = (PartMemory){0};
    }
    PartMemory *memory = &m->parts[part.number],
               models = {m->workspace, m->workspace_bytes, memory->pass};
    m->workspace = memory->block;
    m->workspace_bytes = memory->bytes;
    *memory = models;
}

void model_forward_part(Model *m, Part part, const float *input, const int *labels, bool training)
{
    const Batch batch = {.images = input, .labels = labels, .count = part.count};
    model_check_batch(m, &batch, labels != NULL, "the stages");
    device_adopt(m->device);
    exchange(m, part);
    Plan *plan = model_plan_for(m, part.count);
    model_load_batch(m, plan, &batch);
    if (training) {
        m->parts[part.number].pass = m->passes;
        model_write_dropout_keys(m, m->passes++);
    }
    model_forward(m, plan, training);
    if (labels)
        model_compute_loss(m, plan, part.count);
    exchange(m, part);
}

void model_free_part(Model *m, Part part)
{
    if (part.number >= m->part_count)
        return;
    PartMemory *memory = &m->parts[part.number];
    release(m, memory->block);
    *memory = (PartMemory){0};
}

// The data at an offset of the part's block.
static void read_part(Model *m, Part part, size_t place, int size, float *to)
{
    size_t bytes = (size_t)part.count * (size_t)size * sizeof *to;
    read_from_device(m, to, m->parts[part.number].block + place, bytes);
}

void model_read_output(Model *m, Part part, float *to)
{
    read_part(m, part, model_plan_for(m, part.count)->values[m->program.logits],
              model_output_size(m), to);
}

void model_read_input_gradient(Model *m, Part part, float *to)
{
    read_part(m, part, model_plan_for(m, part.count)->input_gradient, model_input_size(m), to);
}

void model_backward_part(Model *m, Part part, const float *output_gradient)
{
    exchange(m, part);
    model_write_dropout_keys(m, m->parts[part.number].pass);
    Plan *plan = model_plan_for(m, part.count);
    size_t bytes = (size_t)part.count * (size_t)classes(m) * sizeof *output_gradient;
    if (output_gradient)
        write_to_device(m, at(m, plan->logits_gradient), output_gradient, bytes);
    model_backward(m, plan, 0, m->program.op_count);
    exchange(m, part);
}

// sum += weight * gradients, by an SGD update.
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

double model_sum_fingerprint(const Model *m)
{
    return arena_fingerprint(m->device, m->sum, 0, m->parameters.length);
}
