// Plans memory and the backward pass for one batch size.

#include "nn/plan.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"

#define ALIGNMENT 256 // as CUDA aligns what it allocates

// Offsets of gradients: the blocks in use, sorted by their beginning; the first gap that is large
// enough is taken.
typedef struct {
    size_t begin, bytes;
} MemoryBlock;

typedef struct {
    MemoryBlock *used;
    int count;
    size_t base, peak;
} FirstFit;

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// The first gap that is wide enough.
static size_t first_fit_allocate(FirstFit *memory, size_t bytes)
{
    bytes = aligned(bytes);
    size_t begin = memory->base;
    int i = 0;
    while (i < memory->count && memory->used[i].begin - begin < bytes) {
        begin = memory->used[i].begin + memory->used[i].bytes;
        i++;
    }
    memmove(&memory->used[i + 1], &memory->used[i],
            (size_t)(memory->count - i) * sizeof *memory->used);
    memory->used[i] = (MemoryBlock){begin, bytes};
    memory->count++;
    if (begin + bytes > memory->peak)
        memory->peak = begin + bytes;
    return begin;
}

static void first_fit_free(FirstFit *memory, size_t begin)
{
    int i = 0;
    while (memory->used[i].begin != begin)
        CHECK(++i < memory->count);
    memory->count--;
    memmove(&memory->used[i], &memory->used[i + 1],
            (size_t)(memory->count - i) * sizeof *memory->used);
}

// The gradient of a value: the sum of up to two parts, each at an offset of its own.
typedef struct {
    size_t parts[2];
    int count;
} Gradient;

static void add_part(Gradient *gradient, size_t place)
{
    CHECK(gradient->count < 2); // lower() has seen to it
    gradient->parts[gradient->count++] = place;
}

// The memory of one operation's backward pass.
static BackwardStep plan_backward_step(const Program *program, int index, const OpSizes *sizes,
                                       Gradient *gradients, FirstFit *memory)
{
    const Op *op = &program->ops[index];
    Gradient *output = &gradients[op->output];
    CHECK(output->count > 0);
    BackwardStep step = {.op = index,
                         .output_gradient = output->parts[0],
                         .output_gradient2 = output->count == 2 ? output->parts[1] : NOWHERE,
                         .input_gradient = NOWHERE,
                         .residual_gradient = NOWHERE};
    bool wanted = op->input != 0 || program->reads_vector;
    bool in_place = wanted && (op_in_place(op) || op->kind == OP_ADD);
    if (in_place)
        step.input_gradient = step.output_gradient;
    else if (wanted)
        step.input_gradient = first_fit_allocate(memory, sizes->input);
    if (wanted)
        add_part(&gradients[op->input], step.input_gradient);

    if (op->residual >= 0 && op->kind == OP_ADD) {
        step.residual_gradient = first_fit_allocate(memory, sizes->output);
        add_part(&gradients[op->residual], step.residual_gradient);
    } else if (op->residual >= 0) {
        add_part(&gradients[op->residual], step.output_gradient);
    }
    if (step.output_gradient2 != NOWHERE)
        first_fit_free(memory, step.output_gradient2);
    if (!in_place && op->residual < 0)
        first_fit_free(memory, step.output_gradient);
    return step;
}

static void plan_backward(const Program *program, Plan *plan, FirstFit *memory)
{
    Gradient *gradients = allocate((size_t)program->value_count, sizeof *gradients);
    plan->backward = allocate((size_t)program->op_count, sizeof *plan->backward);
    add_part(&gradients[program->logits], plan->logits_gradient);
    for (int i = 0; i < program->op_count; i++) {
        int op = program->op_count - 1 - i;
        plan->backward[i] = plan_backward_step(program, op, &plan->sizes[op], gradients, memory);
    }
    plan->input_gradient = program->reads_vector ? gradients[0].parts[0] : NOWHERE;
    free(gradients);
}

// Offsets of the data that are needed for the whole step; returns their end.
static size_t plan_values(const Program *program, Plan *plan, size_t image_bytes)
{
    size_t end = aligned(image_bytes), scratch = 0;
    for (int i = 0; i < program->op_count; i++) {
        const OpSizes *sizes = &plan->sizes[i];
        plan->values[program->ops[i].output] = end;
        end += aligned(sizes->output);
        plan->saved[i] = end;
        end += aligned(sizes->saved);
        if (sizes->scratch > scratch)
            scratch = sizes->scratch;
    }
    plan->scratch = end;
    return end + aligned(scratch);
}

Plan *plan_create(Device *device, const Program *program, int batch)
{
    Plan *plan = allocate(1, sizeof *plan);
    size_t ops = (size_t)program->op_count;
    plan->device = device;
    plan->batch = batch;
    plan->states = allocate(ops, sizeof *plan->states);
    plan->sizes = allocate(ops, sizeof *plan->sizes);
    plan->saved = allocate(ops, sizeof *plan->saved);
    plan->training = allocate(ops, sizeof *plan->training);
    plan->values = allocate((size_t)program->value_count, sizeof *plan->values);
    for (size_t i = 0; i < ops; i++)
        plan->states[i] =
            backend_of(device)->op_create(device, &program->ops[i], batch, &plan->sizes[i]);

    const Op *last = &program->ops[ops - 1];
    size_t logits_bytes = (size_t)batch * (size_t)last->out.channels * sizeof(float);
    plan->probabilities = plan_values(program, plan, plan->sizes[0].input);
    size_t end = plan->probabilities + aligned(logits_bytes);

    FirstFit memory = {
        .used = allocate(2 * ops + 2, sizeof *memory.used), .base = end, .peak = end};
    plan->logits_gradient = first_fit_allocate(&memory, logits_bytes);
    plan_backward(program, plan, &memory);
    plan->bytes = memory.peak;
    free(memory.used);
    return plan;
}

void plan_forget_recordings(const Program *program, Plan *plan)
{
    for (int i = 0; i < program->op_count; i++) {
        if (plan->training[i])
            backend_of(plan->device)->forget(plan->training[i]);
        plan->training[i] = NULL;
    }
}

void plan_free(const Program *program, Plan *plan)
{
    const Backend *backend = backend_of(plan->device);
    plan_forget_recordings(program, plan);
    for (int i = 0; i < program->op_count; i++)
        backend->op_free(plan->states[i]);
    free(plan->states);
    free(plan->sizes);
    free(plan->saved);
    free(plan->training);
    free(plan->values);
    free(plan->backward);
    free(plan);
}
