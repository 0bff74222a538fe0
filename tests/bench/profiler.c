// A backend that passes everything on to the device's, and notes what passes.

#include "profiler.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "run/device.h"

#ifdef HVDLAB_CUDA
#include "cuda/cuda_device.h"
#endif

// ---- Time stamps.

void timestamp_take(Timestamp *stamp)
{
    stamp->time = seconds_now();
#ifdef HVDLAB_CUDA
    if (!device_is_gpu())
        return;
    cudaEvent_t event = stamp->event;
    if (!event)
        CUDA(cudaEventCreate(&event));
    CUDA(cudaEventRecord(event, cuda_stream()));
    stamp->event = event;
#endif
}

void timestamp_release(Timestamp *stamp)
{
#ifdef HVDLAB_CUDA
    if (stamp->event)
        CUDA(cudaEventDestroy((cudaEvent_t)stamp->event));
#endif
    *stamp = (Timestamp){0, NULL};
}

double timestamp_seconds(const Timestamp *begin, const Timestamp *end)
{
#ifdef HVDLAB_CUDA
    if (end->event) {
        float milliseconds;
        CUDA(cudaEventSynchronize((cudaEvent_t)end->event));
        CUDA(cudaEventElapsedTime(&milliseconds, (cudaEvent_t)begin->event,
                                  (cudaEvent_t)end->event));
        return 1e-3 * (double)milliseconds;
    }
#endif
    return end->time - begin->time;
}

// ---- The backend.

// A call, from its beginning to its end.
typedef struct {
    int kind;
    int part_of; // another kind, whose call does the same once more; -1: none
    Timestamp begin, end;
} Span;

static struct {
    ProfilerMode mode;
    Backend backend; // what the model gets
    const Op **ops;
    int op_count;
    const Op **prepared; // the operation of each state
    OpState **states;
    int state_count;
    Span *spans;
    int span_count;
} profiler;

// The library's; and what is called in its place. This program works on one device only.
const Backend *__real_backend_of(const Device *device);
const Backend *__wrap_backend_of(const Device *device);

const Backend *__wrap_backend_of(const Device *device)
{
    return profiler.mode == PROFILER_OFF ? __real_backend_of(device) : &profiler.backend;
}

static const Backend *real(void)
{
    return __real_backend_of(device_current());
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
    profiler.ops = longer(profiler.ops, profiler.op_count, sizeof *profiler.ops);
    profiler.ops[profiler.op_count++] = op;
    real()->declare_variables(op);
}

static OpState *op_create(Device *device, const Op *op, int batch, OpSizes *sizes)
{
    OpState *state = real()->op_create(device, op, batch, sizes);
    int i = profiler.state_count++;
    profiler.prepared = longer(profiler.prepared, i, sizeof *profiler.prepared);
    profiler.states = longer(profiler.states, i, sizeof *profiler.states);
    profiler.prepared[i] = op;
    profiler.states[i] = state;
    return state;
}

// The one that was prepared last, since a state may lie where another was.
static const Op *op_of(const OpState *state)
{
    int i = profiler.state_count;
    do
        CHECK(--i >= 0);
    while (profiler.states[i] != state);
    return profiler.prepared[i];
}

int profiled_operations(const Op *const **ops)
{
    *ops = profiler.ops;
    return profiler.op_count;
}

// ---- Times.

static void begin(int kind, int part_of)
{
    if (profiler.mode != PROFILER_TIMES)
        return;
    profiler.spans = longer(profiler.spans, profiler.span_count, sizeof *profiler.spans);
    Span *span = &profiler.spans[profiler.span_count++];
    *span = (Span){.kind = kind, .part_of = part_of};
    timestamp_take(&span->begin);
}

static void end(void)
{
    if (profiler.mode == PROFILER_TIMES)
        timestamp_take(&profiler.spans[profiler.span_count - 1].end);
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
    if (profiler.mode == PROFILER_TIMES && op == OP_CONV2D && !no_input)
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

void profiler_set(ProfilerMode mode)
{
    profiler.backend = *real();
    profiler.backend.declare_variables = declare_variables;
    profiler.backend.op_create = op_create;
    profiler.backend.forward = forward;
    profiler.backend.backward = backward;
    profiler.backend.cross_entropy = cross_entropy;
    profiler.backend.update = update;
    profiler.backend.write = write_to_device;
    profiler.backend.record = NULL; // each call has to pass here
    profiler.mode = mode;
}

void profiler_timings(int steps, Timing timings[WORK_KINDS])
{
    memset(timings, 0, WORK_KINDS * sizeof *timings);
    for (int i = 0; i < profiler.span_count; i++) {
        Span *span = &profiler.spans[i];
        double seconds = timestamp_seconds(&span->begin, &span->end) / steps;
        timings[span->kind].seconds += seconds;
        timings[span->kind].calls += 1.0 / steps;
        if (span->part_of >= 0)
            timings[span->part_of].seconds -= seconds;
        timestamp_release(&span->begin);
        timestamp_release(&span->end);
    }
    profiler.span_count = 0;
}
