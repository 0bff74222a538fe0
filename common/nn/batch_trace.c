// Fingerprints, answers and images of a batch, for the trace.

#include "nn/batch_trace.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "base/format.h"
#include "base/hash.h"
#include "nn/sparse.h"
#include "observe/trace.h"

static void trace_part(const Model *m, const Batch *batch, const char *purpose)
{
    char *pixels =
        hashes_text(batch->images, batch->count, model_image_length(m) * sizeof *batch->images);
    char *labels = numbers_text(batch->labels, batch->count);
    trace("part", TEXT("purpose", purpose), NUMBER("images", batch->count), TEXT("pixels", pixels),
          TEXT("labels", labels), NUMBER("arena", model_arena_fingerprint(m)));
    free(pixels);
    free(labels);
}

BatchTrace batch_trace_begin(const Model *m, const Batch *batch, bool training)
{
    BatchTrace seen = {.batch = batch, .training = training};
    if (!trace_on())
        return seen;
    if (trace_thread_is_named())
        trace_part(m, batch, training ? "train" : "test");
    seen.loss = model_own_metrics(m).loss;
    return seen;
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

void batch_trace_piece(BatchTrace *seen, const Model *m, const Op *op, size_t begin, size_t length)
{
    if (!trace_on())
        return;
    seen->gradient += gradient_fingerprint(&m->parameters, begin, length);
    if (op->kind == OP_EMBEDDING && !m->optimizer->takes_pieces)
        trace_tables(m, "table_gradient", true);
}

void batch_trace_apply(const Model *m)
{
    if (trace_on() && !m->optimizer->gradient_ready) // else they may be under way
        trace_tables(m, "table_apply", false);
}

// The logarithm of the sum of exp() of a row.
static double log_sum_of(const Model *m, const float *row)
{
    double largest = (double)row[0], sum = 0;
    for (int c = 1; c < classes(m); c++)
        largest = fmax(largest, (double)row[c]);
    for (int c = 0; c < classes(m); c++)
        sum += exp((double)row[c] - largest);
    return largest + log(sum);
}

// Traces the model's own answers for a batch, independent of the loss, and the loss. Its output has
// probabilities, or logits.
static void trace_answers(const BatchTrace *seen, const Model *m, const Plan *plan)
{
    const Batch *batch = seen->batch;
    size_t floats = (size_t)batch->count * (size_t)classes(m);
    float *output = allocate(floats, sizeof *output);
    read_from_device(m, output, value_at(m, plan, m->program.logits), floats * sizeof *output);
    const bool probabilities = reads_logits(m) && m->output->kind == NODE_SOFTMAX;
    double surprise = 0, surest = 0, correct = 0, least = INFINITY, most = -INFINITY;
    for (int i = 0; i < batch->count; i++) {
        const float *row = output + i * classes(m);
        int best = 0;
        for (int c = 1; c < classes(m); c++)
            best = row[c] > row[best] ? c : best;
        correct += best == batch->labels[i];
        const double said = (double)row[batch->labels[i]], log_sum = log_sum_of(m, row);
        surprise += probabilities ? -log(fmax(said, (double)FLT_MIN)) : log_sum - said; // finite
        surest = fmax(surest, probabilities ? (double)row[best] : exp((double)row[best] - log_sum));
        least = fmin(least, log_sum);
        most = fmax(most, log_sum);
    }
    free(output);
    trace("answers", NUMBER("training", seen->training), NUMBER("images", batch->count),
          NUMBER("loss", model_own_metrics(m).loss - seen->loss), NUMBER("surprise", surprise),
          NUMBER("correct", correct), NUMBER("surest", surest), NUMBER("spread", most - least));
}

void batch_trace_end(const BatchTrace *seen, const Model *m, const Plan *plan)
{
    if (!trace_on())
        return;
    if (seen->training)
        trace("gradient", NUMBER("value", seen->gradient),
              NUMBER("arena", model_arena_fingerprint(m)));
    trace_answers(seen, m, plan);
}
