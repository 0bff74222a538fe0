// Batches through a compiled model: forward, the loss, backward, the update.

#include "nn/model_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "nn/batch_trace.h"
#include "nn/hooks.h"
#include "observe/trace.h"

static bool plan_fits(const Plan *plan, int batch, int team)
{
    return plan->batch == batch && plan->team == team;
}

Plan *model_plan_for(Model *m, int batch)
{
    int found = 0, team = device_team(m->device);
    while (found < MAX_PLANS - 1 && m->plans[found] && !plan_fits(m->plans[found], batch, team))
        found++;
    Plan *plan = m->plans[found];
    if (plan && !plan_fits(plan, batch, team)) {
        plan_free(&m->program, plan);
        plan = NULL;
    }
    if (!plan) {
        span_begin(SPAN_COMPUTE, "plan", batch, -1);
        plan = plan_create(m->device, &m->program, batch);
        plan->team = team;
        span_end();
    }
    memmove(&m->plans[1], &m->plans[0], (size_t)found * sizeof *m->plans);
    m->plans[0] = plan;
    return plan;
}

// Frees recordings, whose memory is replaced by a larger block.
static void *grow(Model *m, void *memory, size_t bytes)
{
    for (int i = 0; i < MAX_PLANS && m->plans[i]; i++)
        plan_forget_recordings(&m->program, m->plans[i]);
    release(m, memory);
    return allocate_on_device(m, bytes);
}

void model_load_batch(Model *m, const Plan *plan, const Batch *batch)
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

static Arenas arenas(const Model *m)
{
    return (Arenas){m->parameters.weights, m->parameters.gradients, m->statistics,
                    m->parameters.first_gradient};
}

void model_write_dropout_keys(const Model *m, int64_t pass)
{
    if (!m->drops)
        return;
    size_t count = (size_t)m->program.op_count;
    for (size_t i = 0; i < count; i++) {
        const Op *op = &m->program.ops[i];
        if (op->dropout_rate <= 0)
            continue;
        Rng rng = rng_stream(RNG_DROPOUT, (uint64_t)m->replica << 48 | (uint64_t)pass << 16 |
                                              op->dropout_stream);
        m->next_keys[i] = rng_next(&rng);
    }
    write_to_device(m, m->dropout_keys, m->next_keys, count * sizeof *m->next_keys);
}

// `count` operations, from `first` on.
static Operations operations_of(const Model *m, const Plan *plan, int first, int count)
{
    return (Operations){&plan->states[first], count, m->workspace, &plan->saved[first], arenas(m)};
}

static void tell_optimizer(const Model *m, const Op *op, PassMoment moment)
{
    size_t begin, length = m->optimizer->pass ? model_piece(op, &begin) : 0;
    if (length > 0)
        m->optimizer->pass(m->optimizer, &m->parameters, begin, length, moment);
}

void model_forward(const Model *m, const Plan *plan, bool training)
{
    Operations ops = operations_of(m, plan, 0, m->program.op_count);
    if (backend(m)->begin_forward)
        backend(m)->begin_forward(m->device, &ops);
    for (int i = 0; i < m->program.op_count; i++) {
        const Op *op = &m->program.ops[i];
        tell_optimizer(m, op, FORWARD_BEGINS);
        backend(m)->forward(plan->states[i],
                            &(ForwardArgs){.input = value_at(m, plan, op->input),
                                           .residual = value_at(m, plan, op->residual),
                                           .output = value_at(m, plan, op->output),
                                           .saved = at(m, plan->saved[i]),
                                           .scratch = at(m, plan->scratch),
                                           .arenas = arenas(m),
                                           .training = training,
                                           .dropout_key = &m->dropout_keys[i]});
        tell_optimizer(m, op, FORWARD_ENDS);
    }
}

static void backward_step(const Model *m, const Plan *plan, const BackwardStep *step)
{
    const Op *op = &m->program.ops[step->op];
    tell_optimizer(m, op, BACKWARD_BEGINS);
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
    tell_optimizer(m, op, BACKWARD_ENDS);
}

void model_backward(const Model *m, const Plan *plan, int begin, int end)
{
    for (int i = begin; i < end; i++)
        backward_step(m, plan, &plan->backward[i]);
    Operations ops = operations_of(m, plan, m->program.op_count - end, end - begin);
    if (backend(m)->end_backward)
        backend(m)->end_backward(m->device, &ops);
}

// Tells the optimizer that the gradients of an operation's variables are complete.
static void report_ready(const Model *m, const Op *op, BatchTrace *seen)
{
    size_t begin, length = model_piece(op, &begin);
    if (length == 0)
        return;
    batch_trace_piece(seen, m, op, begin, length);
    if (gradients_seen)
        gradients_seen(&m->parameters, begin, length, false);
    if (m->optimizer->gradient_ready)
        m->optimizer->gradient_ready(m->optimizer, &m->parameters, begin, length);
}

void model_compute_loss(const Model *m, const Plan *plan, int batch)
{
    backend(m)->cross_entropy(m->device, value_at(m, plan, m->program.logits), m->labels,
                              at(m, plan->logits_gradient), batch, classes(m), m->metrics);
}

// A piece of a training step's work: steps begin ... end - 1 of the backward pass, and the forward
// pass before them if it is asked for.
typedef struct {
    Model *model;
    const Plan *plan;
    bool forward;
    int begin, end;
} OpRange;

static void queue_forward(Model *m, const Plan *plan)
{
    model_forward(m, plan, true);
    model_compute_loss(m, plan, plan->batch);
}

static void queue_piece(const void *what)
{
    const OpRange *piece = what;
    if (piece->forward)
        queue_forward(piece->model, piece->plan);
    model_backward(piece->model, piece->plan, piece->begin, piece->end);
}

static const Op *backward_op(const Model *m, const Plan *plan, int step)
{
    return &m->program.ops[plan->backward[step].op];
}

// The end of the piece that begins at a step. What the host does between pieces is to report their
// gradients, for which the optimizer waits until there are enough of them.
static int end_of_piece(const Model *m, const Plan *plan, int begin, bool recorded)
{
    const Optimizer *optimizer = m->optimizer;
    size_t gradients = 0, place;
    if (!recorded || optimizer->takes_pieces)
        return begin + 1;
    int end = begin;
    while (end < m->program.op_count &&
           (!optimizer->gradient_ready || gradients == 0 || gradients < optimizer->waits_for))
        gradients += model_piece(backward_op(m, plan, end++), &place);
    return end;
}

// Plays the recording of a piece; makes it first. False if there can't be one.
static bool play(Plan *plan, const OpRange *piece)
{
    const Backend *compiled = backend(piece->model);
    Recording **recording = &plan->training[piece->begin];
    if (!*recording)
        *recording = compiled->record(plan->device, queue_piece, piece);
    if (*recording)
        compiled->play(*recording);
    return *recording;
}

static bool calls_the_program(const Program *program)
{
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == OP_CUSTOM)
            return true;
    return false;
}

// A recording has only the device's work. It would miss the host's: writing a trace, sending
// gradients, functions of the program's own. A plan's first step is not recorded, so that libraries
// are initialized.
static void compute(Model *m, Plan *plan, BatchTrace *seen)
{
    int count = m->program.op_count;
    bool recorded =
        backend(m)->record && plan->trained && !trace_on() && !calls_the_program(&m->program);
    plan->trained = true;
    if (recorded) {
        span_next(SPAN_COMPUTE, "forward and backward (queued)", plan->batch, -1);
    } else {
        queue_forward(m, plan);
        span_next(SPAN_COMPUTE, SPAN_QUEUED(plan->device->gpu, "backward"), -1, -1);
    }
    for (int begin = 0, end = 0; begin < count; begin = end) {
        end = end_of_piece(m, plan, begin, recorded);
        OpRange piece = {m, plan, recorded && begin == 0, begin, end};
        if (m->optimizer->takes_pieces)
            model_piece(backward_op(m, plan, begin), &m->parameters.first_gradient);
        if (!recorded || !play(plan, &piece))
            queue_piece(&piece);
        for (int i = begin; i < end; i++)
            report_ready(m, backward_op(m, plan, i), seen);
    }
}

// Tokens must be rows of their tables, or the padding value.
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

void model_check_batch(const Model *m, const Batch *batch, bool labelled, const char *caller)
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

static void compute_batch(Model *m, const Batch *batch)
{
    double over = seconds_now() + 1e-3 * (double)settings()->pace;
    device_adopt(m->device);
    BatchTrace seen = batch_trace_begin(m, batch, true);
    Optimizer *optimizer = m->optimizer;
    if (m->has_gradients && optimizer->gradient_ready) // which are dropped, and may be under way
        optimizer->gradient_ready(optimizer, &m->parameters, 0, 0);
    span_begin(SPAN_COMPUTE, SPAN_QUEUED(m->device->gpu, "forward"), batch->count, -1);
    Plan *plan = model_plan_for(m, batch->count);
    model_load_batch(m, plan, batch);
    keep_tokens(m, batch);
    model_write_dropout_keys(m, m->passes++);
    compute(m, plan, &seen);
    batch_trace_end(&seen, m, plan);
    sleep_seconds(over - seconds_now());
    span_end();
    m->has_gradients = true;
}

void compute_gradients(Model *m, const Batch *batch)
{
    model_check_batch(m, batch, true, __func__);
    compute_batch(m, batch);
}

static void apply(Model *m)
{
    batch_trace_apply(m);
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
    model_check_batch(m, batch, true, __func__);
    compute_batch(m, batch);
    apply(m);
}

void test_on_batch(Model *m, const Batch *batch)
{
    model_check_batch(m, batch, true, __func__);
    device_adopt(m->device);
    BatchTrace seen = batch_trace_begin(m, batch, false);
    span_begin(SPAN_COMPUTE, SPAN_QUEUED(m->device->gpu, "forward"), batch->count, -1);
    Plan *plan = model_plan_for(m, batch->count);
    model_load_batch(m, plan, batch);
    model_forward(m, plan, false);
    model_compute_loss(m, plan, batch->count);
    batch_trace_end(&seen, m, plan);
    span_end();
}

void predict_on_batch(Model *m, const Batch *batch, float *predictions)
{
    model_check_batch(m, batch, false, __func__);
    if (!predictions)
        die("%s: there is no place for the predictions (NULL)", __func__);
    device_adopt(m->device);
    Plan *plan = model_plan_for(m, batch->count);
    model_load_batch(m, plan, batch);
    model_forward(m, plan, false);
    const float *result = value_at(m, plan, m->program.logits);
    if (!reads_logits(m)) { // else a last softmax has been computed like any layer
        float *probabilities = at(m, plan->probabilities);
        backend(m)->softmax(m->device, result, probabilities, batch->count, classes(m));
        result = probabilities;
    }
    size_t bytes = (size_t)batch->count * (size_t)classes(m) * sizeof(float);
    read_from_device(m, predictions, result, bytes);
}
