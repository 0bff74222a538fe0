// The operations of backend.h in double precision. Written to be compared with their definitions,
// not to be fast.

#include "reference.h"

#include <math.h>

#define NORM_EPSILON 1e-3

size_t value_size(Shape shape, int batch)
{
    return (size_t)batch * (size_t)shape.height * (size_t)shape.width * (size_t)shape.channels;
}

size_t source_size(const Op *op, int batch, int source)
{
    if (source == INPUT)
        return value_size(op->in, batch);
    if (source == RESIDUAL)
        return op->residual < 0 ? 0 : value_size(op->out, batch);
    const Variable *v = op->variables[source];
    size_t size = v ? 1 : 0;
    for (int d = 0; v && d < v->ndims; d++)
        size *= (size_t)v->dims[d];
    return size;
}

// The place of an element in NHWC order.
static size_t at(Shape shape, int n, int y, int x, int c)
{
    size_t row = (size_t)n * (size_t)shape.height + (size_t)y;
    return (row * (size_t)shape.width + (size_t)x) * (size_t)shape.channels + (size_t)c;
}

// Boxes.

static Range one(int index)
{
    return (Range){index, index + 1};
}

static Range around(int index, int distance, int limit)
{
    int begin = index - distance, end = index + distance + 1;
    return (Range){begin < 0 ? 0 : begin, end > limit ? limit : end};
}

Box all_outputs(const Reference *r)
{
    Shape out = r->op->out;
    return (Box){{0, r->batch}, {0, out.height}, {0, out.width}, {0, out.channels}};
}

// Where an element of an activation lies, as a box of one.
static Box position(Shape shape, size_t element)
{
    size_t pixel = element / (size_t)shape.channels, row = pixel / (size_t)shape.width;
    return (Box){one((int)(row / (size_t)shape.height)), one((int)(row % (size_t)shape.height)),
                 one((int)(pixel % (size_t)shape.width)),
                 one((int)(element % (size_t)shape.channels))};
}

static Range pooled(Range range, int size, int limit)
{
    int window = range.begin / size;
    return window < limit ? one(window) : (Range){0, 0}; // a last row that fills no window
}

static Box reach_of_input(const Reference *r, size_t element)
{
    const Op *op = r->op;
    Box box = position(op->in, element), all = all_outputs(r);
    switch (op->kind) {
    case OP_CONV2D:
        return (Box){box.n, around(box.y.begin, op->size / 2, op->out.height),
                     around(box.x.begin, op->size / 2, op->out.width), all.c};
    case OP_BATCH_NORM:
        return r->training ? (Box){all.n, all.y, all.x, box.c} : box;
    case OP_MAX_POOL:
        return (Box){box.n, pooled(box.y, op->size, op->out.height),
                     pooled(box.x, op->size, op->out.width), box.c};
    case OP_GLOBAL_AVERAGE_POOL:
        return (Box){box.n, all.y, all.x, box.c};
    case OP_FLATTEN:
        return (Box){box.n, all.y, all.x, one((int)(element % value_size(op->in, 1)))};
    case OP_DENSE:
    case OP_EMBEDDING:
    case OP_SOFTMAX:
        return (Box){box.n, all.y, all.x, all.c};
    case OP_RELU:
    case OP_DROPOUT:
    case OP_ADD:
    case OP_CUSTOM:
        break;
    }
    return box;
}

Box reach(const Reference *r, int source, size_t element)
{
    if (source == INPUT)
        return reach_of_input(r, element);
    if (source == RESIDUAL)
        return position(r->op->out, element);
    Box box = all_outputs(r); // a variable's last index is the channel of the output
    box.c = one((int)(element % (size_t)r->op->out.channels));
    return box;
}

static double length(Range range)
{
    return range.end - range.begin;
}

double reference_cost(const Reference *r, Box box)
{
    const Op *op = r->op;
    Shape in = op->in;
    double outputs = length(box.n) * length(box.y) * length(box.x) * length(box.c);
    switch (op->kind) {
    case OP_CONV2D:
        return outputs * op->size * op->size * in.channels;
    case OP_DENSE:
    case OP_SOFTMAX:
        return outputs * in.channels;
    case OP_GLOBAL_AVERAGE_POOL:
        return outputs * in.height * in.width;
    case OP_MAX_POOL:
        return outputs * op->size * op->size;
    case OP_BATCH_NORM: // the moments of whole channels, values far apart in memory
        return 4 * length(box.c) * r->batch * in.height * in.width;
    case OP_RELU:
    case OP_DROPOUT:
    case OP_ADD:
    case OP_CUSTOM:
    case OP_FLATTEN:
    case OP_EMBEDDING:
        break;
    }
    return outputs;
}

// The forward pass.

// What is fused behind an operation: output = residual + dropout(relu(value)).
static void finish(const Reference *r, size_t i, double value)
{
    const Op *op = r->op;
    if (op->relu || op->kind == OP_RELU) {
        r->distance[i] = fabs(value);
        value = value > 0 ? value : 0;
    }
    if (op->dropout_rate > 0 && r->training)
        value *= r->kept[i] / (1 - (double)op->dropout_rate);
    if (op->residual >= 0)
        value += r->sources[RESIDUAL][i];
    r->output[i] = value;
}

// Adds what one input pixel gives to the channels of one output pixel.
static void add_tap(const Reference *r, const double *pixel, const double *kernel, Range c,
                    double *sum)
{
    const Op *op = r->op;
    for (int i = 0; i < op->in.channels; i++)
        for (int o = c.begin; o < c.end; o++)
            sum[o] += pixel[i] * kernel[(size_t)i * (size_t)op->out.channels + (size_t)o];
}

static void conv2d_pixel(const Reference *r, int n, int y, int x, Range c)
{
    const Op *op = r->op;
    size_t tap_size = (size_t)op->in.channels * (size_t)op->out.channels;
    double *sum = r->output + at(op->out, n, y, x, 0);
    for (int o = c.begin; o < c.end; o++)
        sum[o] = r->sources[BIAS][o];
    for (int ky = 0; ky < op->size; ky++)
        for (int kx = 0; kx < op->size; kx++) {
            int from_y = y + ky - op->size / 2, from_x = x + kx - op->size / 2;
            if (from_y < 0 || from_y >= op->in.height || from_x < 0 || from_x >= op->in.width)
                continue;
            const double *pixel = r->sources[INPUT] + at(op->in, n, from_y, from_x, 0);
            add_tap(r, pixel, r->sources[KERNEL] + (size_t)(ky * op->size + kx) * tap_size, c, sum);
        }
    for (int o = c.begin; o < c.end; o++)
        finish(r, at(op->out, n, y, x, o), sum[o]);
}

static void conv2d_box(const Reference *r, Box box)
{
    for (int n = box.n.begin; n < box.n.end; n++)
        for (int y = box.y.begin; y < box.y.end; y++)
            for (int x = box.x.begin; x < box.x.end; x++)
                conv2d_pixel(r, n, y, x, box.c);
}

void reference_moments(const Reference *r, int channel, double *mean, double *variance)
{
    Shape in = r->op->in;
    size_t channels = (size_t)in.channels, count = source_size(r->op, r->batch, INPUT) / channels;
    const double *x = r->sources[INPUT] + channel;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += x[i * channels];
    *mean = sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += (x[i * channels] - *mean) * (x[i * channels] - *mean);
    *variance = squares / (double)count;
}

static void batch_norm_box(const Reference *r, Box box)
{
    for (int c = box.c.begin; c < box.c.end; c++) {
        double mean, variance;
        if (r->training) {
            reference_moments(r, c, &mean, &variance);
        } else {
            mean = r->sources[MOVING_MEAN][c];
            variance = r->sources[MOVING_VARIANCE][c];
        }
        double scale = r->sources[GAMMA][c] / sqrt(variance + NORM_EPSILON);
        for (int n = box.n.begin; n < box.n.end; n++)
            for (int y = box.y.begin; y < box.y.end; y++)
                for (int x = box.x.begin; x < box.x.end; x++) {
                    size_t i = at(r->op->in, n, y, x, c);
                    finish(r, i, (r->sources[INPUT][i] - mean) * scale + r->sources[BETA][c]);
                }
    }
}

static void max_pool_output(const Reference *r, int n, int y, int x, int c)
{
    const Op *op = r->op;
    double best = -INFINITY, second = -INFINITY;
    for (int k = 0; k < op->size * op->size; k++) {
        size_t from = at(op->in, n, y * op->size + k / op->size, x * op->size + k % op->size, c);
        double value = r->sources[INPUT][from];
        second = fmax(second, fmin(best, value));
        best = fmax(best, value);
    }
    size_t i = at(op->out, n, y, x, c);
    r->distance[i] = INFINITY;
    finish(r, i, best);
    r->distance[i] = fmin(r->distance[i], best - second);
}

static void average_output(const Reference *r, int n, int c)
{
    Shape in = r->op->in;
    double sum = 0;
    for (int y = 0; y < in.height; y++)
        for (int x = 0; x < in.width; x++)
            sum += r->sources[INPUT][at(in, n, y, x, c)];
    r->output[at(r->op->out, n, 0, 0, c)] = sum / (in.height * in.width);
}

static void dense_output(const Reference *r, int n, int c)
{
    const Op *op = r->op;
    double sum = r->sources[BIAS] ? r->sources[BIAS][c] : 0;
    for (int i = 0; i < op->in.channels; i++)
        sum += r->sources[INPUT][at(op->in, n, 0, 0, i)] *
               r->sources[KERNEL][(size_t)i * (size_t)op->out.channels + (size_t)c];
    finish(r, at(op->out, n, 0, 0, c), sum);
}

static void embedding_output(const Reference *r, int n, int x, int c)
{
    const Op *op = r->op;
    double token = r->sources[INPUT][at(op->in, n, 0, x, 0)];
    size_t row = token < 0 ? 0 : (size_t)token;
    double value = r->sources[EMBEDDINGS][row * (size_t)op->out.channels + (size_t)c];
    finish(r, at(op->out, n, 0, x, c), token < 0 ? 0 : value);
}

static void softmax_output(const Reference *r, int n, int c)
{
    const double *row = r->sources[INPUT] + at(r->op->in, n, 0, 0, 0);
    double sum = 0; // of numbers that are 1 for this output
    for (int i = 0; i < r->op->in.channels; i++)
        sum += exp(row[i] - row[c]);
    finish(r, at(r->op->out, n, 0, 0, c), 1 / sum);
}

static void one_output(const Reference *r, int n, int y, int x, int c)
{
    size_t i = at(r->op->out, n, y, x, c);
    switch (r->op->kind) {
    case OP_MAX_POOL:
        max_pool_output(r, n, y, x, c);
        break;
    case OP_GLOBAL_AVERAGE_POOL:
        average_output(r, n, c);
        break;
    case OP_DENSE:
        dense_output(r, n, c);
        break;
    case OP_EMBEDDING:
        embedding_output(r, n, x, c);
        break;
    case OP_SOFTMAX:
        softmax_output(r, n, c);
        break;
    default: // input and output are in the same order
        finish(r, i, r->sources[INPUT][i]);
    }
}

void reference_forward(const Reference *r, Box box)
{
    if (r->op->kind == OP_CONV2D) {
        conv2d_box(r, box);
        return;
    }
    if (r->op->kind == OP_BATCH_NORM) {
        batch_norm_box(r, box);
        return;
    }
    for (int n = box.n.begin; n < box.n.end; n++)
        for (int y = box.y.begin; y < box.y.end; y++)
            for (int x = box.x.begin; x < box.x.end; x++)
                for (int c = box.c.begin; c < box.c.end; c++)
                    one_output(r, n, y, x, c);
}

double reference_loss(const Reference *r, Box box, const double *weights)
{
    reference_forward(r, box);
    double loss = 0;
    for (int n = box.n.begin; n < box.n.end; n++)
        for (int y = box.y.begin; y < box.y.end; y++)
            for (int x = box.x.begin; x < box.x.end; x++)
                for (int c = box.c.begin; c < box.c.end; c++) {
                    size_t i = at(r->op->out, n, y, x, c);
                    loss += weights[i] * r->output[i];
                }
    return loss;
}
