// What the trace says of a batch's way through a model. Where tracing is off, these do nothing.

#ifndef HVDLAB_BATCH_TRACE_H
#define HVDLAB_BATCH_TRACE_H

#include "nn/model_inside.h"

typedef struct {
    const Batch *batch;
    bool training;
    double loss;     // of the batches before
    double gradient; // the fingerprint of this process's own, so far
} BatchTrace;

// Before the batch; after the gradients of an operation's variables; after the batch. In a thread
// with a name (trace_thread_is) also which images it has: no other event names them.
BatchTrace batch_trace_begin(const Model *m, const Batch *batch, bool training);
void batch_trace_piece(BatchTrace *seen, const Model *m, const Op *op, size_t begin, size_t length);
void batch_trace_end(const BatchTrace *seen, const Model *m, const Plan *plan);

// Before an update: the gradients of tables of embeddings.
void batch_trace_apply(const Model *m);

#endif
