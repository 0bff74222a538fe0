// Inside nn/: what a model is made of, for the files that share the work on it. model.c makes,
// compiles and frees it, batch.c computes, values.c reads and writes what it holds, parts.c has a
// batch in parts.

#ifndef HVDLAB_MODEL_INSIDE_H
#define HVDLAB_MODEL_INSIDE_H

#include "backend/backend.h"
#include "nn/model.h"
#include "nn/plan.h"
#include "observe/span.h"
#include "base/error.h"
#include "base/memory.h"

// Memory for a part of a batch, the size of a plan's block.
typedef struct {
    char *block;
    size_t bytes;
    int64_t pass; // its forward pass, of which its backward pass takes the dropout pattern
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
    size_t gradients_length; // floats: all, or the longest piece (Optimizer.takes_pieces)
    float *statistics;
    size_t statistics_length;
    Plan *plans[MAX_PLANS]; // the most recently used first
    char *workspace;
    size_t workspace_bytes;
    int *labels;
    int labels_capacity;
    Metrics *metrics;       // in device memory
    void (*gather)(void *); // adds what others have to them; NULL: nobody has
    void *gatherer;
    int replica;            // of the same model in this process, which one
    bool broadcast;         // all ranks had the same weights once
    int64_t passes;         // forward passes in training so far
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

static inline void need_model(const Model *m, const char *caller)
{
    if (!m)
        die("%s: there is no model (NULL)", caller);
}

// The backend that computes it.
static inline const Backend *backend(const Model *m)
{
    return backend_of(m->device);
}

static inline void *allocate_on_device(const Model *m, size_t bytes)
{
    return backend(m)->allocate(m->device, bytes);
}

static inline void release(const Model *m, void *memory)
{
    backend(m)->release(m->device, memory);
}

static inline void write_to_device(const Model *m, void *to, const void *from, size_t bytes)
{
    backend(m)->write(m->device, to, from, bytes);
}

static inline void read_from_device(const Model *m, void *to, const void *from, size_t bytes)
{
    if (m->device->gpu)
        span_begin(SPAN_WAIT, "wait for the GPU", -1, -1);
    backend(m)->read(m->device, to, from, bytes);
    if (m->device->gpu)
        span_end();
}

static inline void *at(const Model *m, size_t place)
{
    return place == NOWHERE ? NULL : m->workspace + place;
}

static inline void *value_at(const Model *m, const Plan *plan, int value)
{
    return value < 0 ? NULL : at(m, plan->values[value]);
}

static inline const Op *owner(const Model *m, int index)
{
    return &m->program.ops[m->op_of_variable[index]];
}

static inline int classes(const Model *m)
{
    return m->output->shape.channels;
}

static inline bool reads_logits(const Model *m)
{
    return m->loss == CATEGORICAL_CROSSENTROPY_FROM_LOGITS;
}

static inline bool reads_tokens(const Model *m)
{
    return m->graph->nodes[0]->kind == NODE_INPUT_TOKENS;
}

// The offset and the length of the gradients of an operation's variables; length 0: it has none.
size_t model_piece(const Op *op, size_t *begin);

// Exits with an error message where the optimizer takes gradients piece by piece.
void model_check_keeps_gradients(const Model *m, const char *caller);

// ---- What batch.c offers to parts.c.

// What a batch must have for the call; with labels, they must be classes of the model.
void model_check_batch(const Model *m, const Batch *batch, bool labelled, const char *caller);

// The plan for a batch size, made when it is first asked for; and room for it, with the images and
// labels of the batch in device memory.
Plan *model_plan_for(Model *m, int batch);
void model_load_batch(Model *m, const Plan *plan, const Batch *batch);

// The dropout pattern of a forward pass, another one for every operation and pass.
void model_write_dropout_keys(const Model *m, int64_t pass);

void model_forward(const Model *m, const Plan *plan, bool training);
void model_compute_loss(const Model *m, const Plan *plan, int batch);
// Steps begin ... end - 1 of the plan's backward pass.
void model_backward(const Model *m, const Plan *plan, int begin, int end);

#endif
