// What a trace tells of a batch in stages: the sums of gradients to which a right schedule comes, and
// the weights before and after.

#include "train/stages_inside.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"
#include "observe/trace.h"

// A micro-batch through all stages and back, as one device would compute it. In memory behind that of
// the slots. Returns `between`, enlarged: what stages pass on.
static float *compute_alone(const Stages *stages, const Micro *micro, float *between)
{
    const Batch *batch = stages->batch;
    const Part part = {stages->micro_batches, micro->count};
    size_t begin = (size_t)micro->begin * (size_t)model_input_size(stages->stage[0].model);
    between = stages_forward(stages, part, batch->images + begin, batch->labels + micro->begin,
                             true, between);
    for (int s = stages->count - 1; s >= 0; s--) {
        Model *m = stages->stage[s].model;
        model_backward_part(m, part, s == stages->count - 1 ? NULL : between);
        model_add_gradients(m, (float)part.count / (float)batch->count);
        if (s > 0) {
            size_t floats = (size_t)part.count * (size_t)model_input_size(m);
            between = enlarge(between, floats, sizeof *between);
            model_read_input_gradient(m, part, between);
        }
        model_free_part(m, part);
    }
    return between;
}

// The sums of gradients to which a right schedule comes, too. Micro by micro: as one batch, rounding
// would turn some units of a ReLU on that are off in a micro-batch.
static void compute_sums(const Stages *stages)
{
    const Metrics metrics = model_metrics(last_stage(stages)->model);
    float *between = NULL;
    for (int k = 0; k < stages->micro_batches; k++)
        between = compute_alone(stages, &stages->stage[0].micros[k], between);
    free(between);
    model_write_metrics(last_stage(stages)->model, &metrics);
}

// With moving statistics or dropout no comparison is possible.
static bool is_comparable(const Stages *stages)
{
    bool comparable = true;
    for (int s = 0; s < stages->count; s++)
        comparable = comparable && model_repeats(stages->stage[s].model);
    return comparable;
}

void stages_trace_begin(const Stages *stages)
{
    if (!trace_on())
        return;
    bool comparable = is_comparable(stages);
    if (comparable)
        compute_sums(stages);
    for (int s = 0; s < stages->count; s++) {
        Model *m = stages->stage[s].model;
        trace("staged_batch", NUMBER("batch", stages->batches), NUMBER("stage", s),
              NUMBER("device", model_parameters(m)->device->index),
              NUMBER("images", stages->batch->count),
              NUMBER("micro_batches", stages->micro_batches),
              NUMBER("value", comparable ? model_sum_fingerprint(m) : (double)NAN),
              NUMBER("arena", model_arena_fingerprint(m)));
        model_drop_sum(m);
    }
}

void stages_trace_end(const Stages *stages)
{
    for (int s = 0; s < stages->count; s++)
        trace("staged_batch_end", NUMBER("batch", stages->batches), NUMBER("stage", s),
              NUMBER("arena", model_arena_fingerprint(stages->stage[s].model)));
}
