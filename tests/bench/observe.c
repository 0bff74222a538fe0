// A backend that passes everything on to the device's, and notes what passes.

#include "observe.h"

#include <stdlib.h>
#include <string.h>
#include "sys/device.h"
#include "marks.h"
#include "base/util.h"

// A call, from one mark to another.
typedef struct {
    int kind;
    int part_of; // another kind, whose call does the same once more; -1: none
    int begin, end;
} Span;

static struct {
    Observation what;
    Backend backend; // what the model gets
    const Op **ops;
    int op_count;
    const Op **prepared; // the operation of each state
    OpState **states;
    int state_count;
    Span *spans;
    int span_count;
} observer;

// As the library has it.
static const Backend *real(void)
{
#ifdef HVDLAB_CUDA
    if (device_is_gpu())
        return &backend_cuda;
#endif
    return &backend_cpu;
}

// This program works on one device only.
const Backend *backend_of(const Device *device)
{
    (void)device;
    return observer.what == OBSERVE_NOTHING ? real() : &observer.backend;
}

// The list with room for one more.
static void *longer(void *list, int count, size_t size)
{
    list = realloc(list, (size_t)(count + 1) * size);
    CHECK(list);
    return list;
}

// ---- Operations.

static void declare_variables(const Op *op)
{
    observer.ops = longer(observer.ops, observer.op_count, sizeof *observer.ops);
    observer.ops[observer.op_count++] = op;
    real()->declare_variables(op);
}

static OpState *op_create(Device *device, const Op *op, int batch, OpSizes *sizes)
{
    OpState *state = real()->op_create(device, op, batch, sizes);
    int i = observer.state_count++;
    observer.prepared = longer(observer.prepared, i, sizeof *observer.prepared);
    observer.states = longer(observer.states, i, sizeof *observer.states);
    observer.prepared[i] = op;
    observer.states[i] = state;
    return state;
}

// The one that was prepared last, since a state may lie where another was.
static const Op *op_of(const OpState *state)
{
    int i = observer.state_count;
    do
        CHECK(--i >= 0);
    while (observer.states[i] != state);
    return observer.prepared[i];
}

int observed_operations(const Op *const **ops)
{
    *ops = observer.ops;
    return observer.op_count;
}

// ---- Times.

static void begin(int kind, int part_of)
{
    if (observer.what != OBSERVE_TIMES)
        return;
    observer.spans = longer(observer.spans, observer.span_count, sizeof *observer.spans);
    observer.spans[observer.span_count++] = (Span){kind, part_of, mark(), -1};
}

static void end(void)
{
    if (observer.what == OBSERVE_TIMES)
        observer.spans[observer.span_count - 1].end = mark();
}

static void forward(OpState *state, const ForwardArgs *args)
{
    begin(work_kind(op_of(state)->kind, PASS_FORWARD), -1);
    real()->forward(state, args);
    end();
}

// The kernel's gradient alone; that of the output is left as it was, or, with a ReLU, as it will be
// made again. What is computed here, the whole pass computes once more.
static void kernel_gradient(OpState *state, const BackwardArgs *args)
{
    BackwardArgs alone = *args;
    alone.input_gradient = NULL;
    alone.output_gradient2 = NULL;
    begin(work_kind(OP_CONV2D, PASS_KERNEL_GRADIENT), work_kind(OP_CONV2D, PASS_BACKWARD));
    real()->backward(state, &alone);
    end();
}

static void backward(OpState *state, const BackwardArgs *args)
{
    OpKind op = op_of(state)->kind;
    bool no_input = op == OP_CONV2D && !args->input_gradient; // then there is nothing to tell apart
    if (observer.what == OBSERVE_TIMES && op == OP_CONV2D && !no_input)
        kernel_gradient(state, args);
    begin(work_kind(op, no_input ? PASS_KERNEL_GRADIENT : PASS_BACKWARD), -1);
    real()->backward(state, args);
    end();
}

static void cross_entropy(Device *device, const float *logits, const int *labels, float *gradient,
                          int batch, int classes, Metrics *metrics)
{
    begin(WORK_LOSS, -1);
    real()->cross_entropy(device, logits, labels, gradient, batch, classes, metrics);
    end();
}

static void update(Device *device, const Update *rule, const Segment *segments, int count)
{
    begin(WORK_UPDATE, -1);
    real()->update(device, rule, segments, count);
    end();
}

static void write_to_device(Device *device, void *to, const void *from, size_t bytes)
{
    begin(WORK_IMAGES, -1);
    real()->write(device, to, from, bytes);
    end();
}

void observe(Observation what)
{
    observer.backend = *real();
    observer.backend.declare_variables = declare_variables;
    observer.backend.op_create = op_create;
    observer.backend.forward = forward;
    observer.backend.backward = backward;
    observer.backend.cross_entropy = cross_entropy;
    observer.backend.update = update;
    observer.backend.write = write_to_device;
    observer.backend.record = NULL; // each call has to pass here
    if (what == OBSERVE_TIMES) {
        marks_forget();
        observer.span_count = 0;
    }
    observer.what = what;
}

void observed_times(int steps, Taken taken[WORK_KINDS])
{
    memset(taken, 0, WORK_KINDS * sizeof *taken);
    for (int i = 0; i < observer.span_count; i++) {
        const Span *span = &observer.spans[i];
        double seconds = seconds_between(span->begin, span->end) / steps;
        taken[span->kind].seconds += seconds;
        taken[span->kind].calls += 1.0 / steps;
        if (span->part_of >= 0)
            taken[span->part_of].seconds -= seconds;
    }
}
