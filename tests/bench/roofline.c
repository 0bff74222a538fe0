// Counts flops and bytes of a training step, from the list of its operations.

#include "roofline.h"

#include <string.h>
#include "nn/model.h"
#include "profiler.h"

// What the counting goes by.
typedef struct {
    const Op *const *ops;
    int count;
    double batch;
    double image_element; // bytes of an element of an image inside the model
    bool places;          // max pools note the place of each window's largest, in a byte
} Step;

int work_kind(OpKind op, Pass pass)
{
    return (int)op * PASSES + (int)pass;
}

const char *work_name(int kind)
{
    static const char *const names[WORK_KINDS] = {
        [OP_CONV2D * PASSES] = "conv2d forward",
        "conv2d input gradient",
        "conv2d kernel gradient",
        [OP_BATCH_NORM * PASSES] = "batch norm forward",
        "batch norm backward",
        [OP_RELU * PASSES] = "relu forward",
        "relu backward",
        [OP_DROPOUT * PASSES] = "dropout forward",
        "dropout backward",
        [OP_ADD * PASSES] = "add forward",
        "add backward",
        [OP_MAX_POOL * PASSES] = "max pool forward",
        "max pool backward",
        [OP_GLOBAL_AVERAGE_POOL * PASSES] = "average pool forward",
        "average pool backward",
        [OP_FLATTEN * PASSES] = "flatten forward",
        "flatten backward",
        [OP_DENSE * PASSES] = "dense forward",
        "dense backward",
        [OP_EMBEDDING * PASSES] = "embedding forward",
        "embedding backward",
        [OP_SOFTMAX * PASSES] = "softmax forward",
        "softmax backward",
        [WORK_LOSS] = "cross-entropy",
        [WORK_UPDATE] = "update of the weights",
        [WORK_IMAGES] = "batch to the device",
    };
    return names[kind] ? names[kind] : "another operation";
}

static double elements(Shape shape)
{
    return (double)shape.height * shape.width * shape.channels;
}

// ---- Bytes of values and variables. Images inside the model have elements of the precision's
// size; vectors, the images that the model reads, weights and gradients of weights are floats.

static double input_bytes(const Step *s, const Op *op)
{
    bool floats = op->flat || op->input_is_image;
    return s->batch * elements(op->in) * (floats ? (double)sizeof(float) : s->image_element);
}

static double output_bytes(const Step *s, const Op *op)
{
    return s->batch * elements(op->out) *
           (op_writes_vector(op) ? (double)sizeof(float) : s->image_element);
}

static double variable_bytes(const Variable *v)
{
    return (double)sizeof(float) * (double)variable_size(v);
}

// The parts that the gradient of an operation's output comes in: one from each reader.
static int gradient_parts(const Step *s, const Op *op)
{
    int readers = 0;
    for (int i = 0; i < s->count; i++)
        readers += (s->ops[i]->input == op->output) + (s->ops[i]->residual == op->output);
    return readers > 0 ? readers : 1; // the loss reads the last one
}

// ---- One operation.

static double multiply_adds(const Step *s, const Op *op)
{
    if (op->kind == OP_CONV2D)
        return s->batch * op->out.height * op->out.width *
               (double)variable_size(op->variables[KERNEL]);
    return op->kind == OP_DENSE ? s->batch * (double)variable_size(op->variables[KERNEL]) : 0;
}

// What a max pool notes for the way back.
static double place_bytes(const Step *s, const Op *op)
{
    return op->kind == OP_MAX_POOL && s->places ? s->batch * elements(op->out) : 0;
}

// Every variable is read, and the moving statistics are written as well. Of an embedding's table
// only the rows are read that the output consists of.
static Cost forward_cost(const Step *s, const Op *op)
{
    double bytes = input_bytes(s, op) + output_bytes(s, op) + place_bytes(s, op);
    if (op->kind == OP_EMBEDDING)
        return (Cost){0, bytes + s->batch * elements(op->out) * (double)sizeof(float)};
    if (op->residual >= 0)
        bytes += output_bytes(s, op);
    for (int i = 0; i < MAX_VARIABLES && op->variables[i]; i++)
        bytes += (op->variables[i]->trainable ? 1 : 2) * variable_bytes(op->variables[i]);
    return (Cost){2 * multiply_adds(s, op), bytes};
}

// The gradients of a kernel, and of a bias if it is trained.
static double gradient_bytes(const Op *op)
{
    double bytes = 0;
    for (int i = 0; i < MAX_VARIABLES && op->variables[i]; i++)
        if (op->variables[i]->trainable && !op->variables[i]->no_gradient)
            bytes += variable_bytes(op->variables[i]);
    return bytes;
}

// What a convolution or a dense layer reads and writes for the gradients of its variables. Behind a
// ReLU it looks at its output, too.
static Cost kernel_gradient_cost(const Step *s, const Op *op)
{
    double outputs = gradient_parts(s, op) + (op->relu ? 1 : 0);
    return (Cost){2 * multiply_adds(s, op),
                  input_bytes(s, op) + outputs * output_bytes(s, op) + gradient_bytes(op)};
}

// And for the gradient of its input. The gradient of its output has been counted: a kernel that
// computes both gradients reads it once.
static Cost input_gradient_cost(const Step *s, const Op *op)
{
    if (op->input_is_image)
        return (Cost){0, 0};
    return (Cost){2 * multiply_adds(s, op),
                  variable_bytes(op->variables[KERNEL]) + input_bytes(s, op)};
}

// Batch norm needs its input again; what is left of the output's gradient is the residual's, and is
// written where it came in two parts.
static double norm_backward_bytes(const Step *s, const Op *op)
{
    int parts = gradient_parts(s, op);
    int residual = op->residual >= 0 && parts > 1;
    return 2 * input_bytes(s, op) + (parts + residual) * output_bytes(s, op) +
           variable_bytes(op->variables[GAMMA]) + variable_bytes(op->variables[BETA]) +
           gradient_bytes(op);
}

// Of operations without a kernel.
static double backward_bytes(const Step *s, const Op *op)
{
    int parts = gradient_parts(s, op);
    double in = input_bytes(s, op), out = output_bytes(s, op);
    if (op->kind == OP_BATCH_NORM)
        return norm_backward_bytes(s, op);
    if (op->kind == OP_RELU) // decides by its output
        return (parts + 1) * out + in;
    if (op->kind == OP_ADD) // the sum of the parts serves one input, a copy the other
        return parts * out + (parts > 1 ? out : 0) + out;
    if (op->kind == OP_EMBEDDING) // all rows of the table have a gradient
        return in + parts * out + gradient_bytes(op);
    if (op->kind == OP_MAX_POOL) // looks for the largest again, where no place was noted
        return parts * out + (s->places ? place_bytes(s, op) : in) + in;
    return op->input_is_image ? 0 : parts * out + in;
}

static void add_cost(Cost *to, Cost cost)
{
    to->flops += cost.flops;
    to->bytes += cost.bytes;
}

static void add_op(const Step *s, const Op *op, Cost *cost)
{
    Cost *backward = &cost[work_kind(op->kind, PASS_BACKWARD)];
    add_cost(&cost[work_kind(op->kind, PASS_FORWARD)], forward_cost(s, op));
    if (op->kind != OP_CONV2D && op->kind != OP_DENSE) {
        add_cost(backward, (Cost){0, backward_bytes(s, op)});
        return;
    }
    bool apart = op->kind == OP_CONV2D;
    add_cost(apart ? &cost[work_kind(op->kind, PASS_KERNEL_GRADIENT)] : backward,
             kernel_gradient_cost(s, op));
    add_cost(backward, input_gradient_cost(s, op));
}

// ---- The whole step.

// Plain SGD reads a weight and its gradient, and writes the weight.
static double update_bytes(const Step *s)
{
    double gradients = 0;
    for (int i = 0; i < s->count; i++)
        gradients += gradient_bytes(s->ops[i]);
    return 3 * gradients;
}

static void count_costs(const Op *const *ops, int count, const Workload *w, Cost cost[WORK_KINDS])
{
    Step s = {ops, count, w->batch, w->precision == PRECISION_BF16 ? 2 : (double)sizeof(float),
              w->device == DEVICE_CPU};
    memset(cost, 0, WORK_KINDS * sizeof *cost);
    for (int i = 0; i < count; i++)
        add_op(&s, ops[i], cost);
    double labels = s.batch * (double)sizeof(int);
    cost[WORK_LOSS].bytes = 2 * output_bytes(&s, ops[count - 1]) + labels;
    cost[WORK_UPDATE].bytes = update_bytes(&s);
    cost[WORK_IMAGES].bytes = input_bytes(&s, ops[0]) + labels;
}

// The operations are those of a model that is compiled and never run: no memory for its images.
void workload_cost(const Workload *workload, Cost cost[WORK_KINDS])
{
    const Op *const *ops;
    int before = profiled_operations(&ops);
    profiler_set(PROFILER_OPERATIONS);
    Model *model = workload_model(workload);
    profiler_set(PROFILER_OFF);
    int count = profiled_operations(&ops) - before;
    count_costs(ops + before, count, workload, cost);
    model_free(model);
}

Cost total_cost(const Cost cost[WORK_KINDS])
{
    Cost total = {0, 0};
    for (int kind = 0; kind < WORK_KINDS; kind++)
        add_cost(&total, cost[kind]);
    return total;
}

double roofline_seconds(Cost cost, Peak peak)
{
    double arithmetic = cost.flops / peak.flops, bytes = cost.bytes / peak.bytes;
    return arithmetic > bytes ? arithmetic : bytes;
}
