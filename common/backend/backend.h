// The functions of a backend: memory, the fused operations of a graph for one batch size, the loss,
// and the optimizers' arithmetic. The CPU backend (backend_cpu.c) stands on oneDNN, the CUDA
// backend (backend_cuda.c) on cuDNN and cuBLAS.
//
// A model is a list of operations in forward order, each reading one value (two, with a residual)
// and writing one. The backend chooses the layout of a value in memory; the model only asks for its
// size. Images and weights outside the backend are in Keras's order: images NHWC, kernels (height,
// width, in, out).
//
// Every call gets its device, or an object that has one (a state, a recording), and any thread may
// make it. Calls of several threads for one device take turns; on a CPU the cores that work are the
// calling thread's.

#ifndef HVDLAB_BACKEND_H
#define HVDLAB_BACKEND_H

#include "base/types.h"
#include "run/device.h"

typedef enum {
    OP_CONV2D,     // convolution, 'same', stride 1, with bias, + ReLU if `relu`
    OP_BATCH_NORM, // batch norm, + ReLU, + then either dropout (with ReLU only) or residual
    OP_RELU,       // the operations below stand alone where nothing could be fused
    OP_DROPOUT,
    OP_ADD,
    OP_MAX_POOL, // square, MAX_POOL pixels at most, stride = size, no padding, + ReLU if `relu`
    OP_GLOBAL_AVERAGE_POOL,
    OP_FLATTEN,   // to a vector in NHWC order
    OP_DENSE,     // with bias if it has that variable, + ReLU if `relu`
    OP_EMBEDDING, // reads the model's input, which is tokens: floats, a pixel each
    OP_SOFTMAX,   // of a vector, where the loss does not compute it
    OP_CUSTOM,    // of a vector, by functions of the program's own, in the host's memory
} OpKind;
enum { OP_KINDS = OP_CUSTOM + 1 }; // behind the last one

// Indices of an operation's variables.
enum { KERNEL, BIAS };
enum { GAMMA, BETA, MOVING_MEAN, MOVING_VARIANCE };
enum { EMBEDDINGS };
#define MAX_VARIABLES 4

typedef struct {
    OpKind kind;
    int input, residual, output; // values; residual is -1 where there is none
    Shape in, out;
    int size; // of the convolution's kernel, of the pool, or rows of the embedding's table
    bool relu;
    float dropout_rate;      // 0: none
    uint64_t dropout_stream; // which random stream the dropout draws from
    void (*custom_forward)(float *values, size_t count);  // of OP_CUSTOM: over the values,
    void (*custom_backward)(float *values, size_t count); // over the gradients
    bool input_is_image; // reads the model's input: needs no gradient, layout is NHWC, floats
    bool flat;           // the input is a vector per image: (batch, channels) in memory
    Variable *variables[MAX_VARIABLES];
    // A convolution's bias before a batch norm only moves the mean. A backend may leave it out of
    // the convolution and add it to the mean, which saves a pass over the convolution's output.
    bool bias_in_batch_norm;    // of OP_CONV2D: only a batch norm reads the output, which has
    const Variable *input_bias; // of OP_BATCH_NORM: the bias of that convolution, else NULL
} Op;

// Sizes of an operation's memory at one batch size, in bytes, known after op_create.
typedef struct {
    size_t output;  // the value it writes (its gradient has the same size)
    size_t input;   // the value it reads
    size_t saved;   // what its backward pass needs beside input and output
    size_t scratch; // shared working memory, worthless after the call
} OpSizes;

// Where the variables are while an operation runs.
typedef struct {
    float *weights, *gradients, *statistics; // arenas
    size_t first_gradient;                   // offset in its arena of what `gradients` points to
} Arenas;

typedef struct {
    const void *input, *residual;
    void *output;
    void *saved, *scratch;
    Arenas arenas;
    bool training;               // else inference: moving statistics, no dropout
    const uint64_t *dropout_key; // in device memory; changes every step
} ForwardArgs;

typedef struct {
    const void *input, *output;
    void *saved, *scratch;
    Arenas arenas;
    void *output_gradient;        // may be overwritten; batch norm leaves the residual's in it
    const void *output_gradient2; // a second part, to be added first, or NULL
    void *input_gradient;         // NULL: not wanted; output_gradient itself where op_in_place
    void *residual_gradient;      // of OP_ADD: gets a copy of output_gradient
    const uint64_t *dropout_key;
} BackwardArgs;

typedef struct OpState OpState; // an operation that is prepared for one batch size

// Operations that follow each other, and where what they save is.
typedef struct {
    OpState *const *states;
    int count;
    char *block;
    const size_t *saved; // each one's offset in the block
    Arenas arenas;
} Operations;

// A part of a sum: an array in a device's memory, and what it is multiplied by. Where that is 0 the
// array is not looked at.
typedef struct {
    Device *device;
    float *values;
    float factor;
} Addend;

typedef struct Recording Recording;

typedef struct {
    const char *name; // as Args and records say it: "cpu", "gpu"

    // Device memory, zeroed; and copies between it and the host.
    void *(*allocate)(Device *device, size_t bytes);
    void (*release)(Device *device, void *memory);
    void (*write)(Device *device, void *to, const void *from, size_t bytes);
    void (*read)(Device *device, void *to, const void *from, size_t bytes);

    // Sets variable->length of every variable of the operation. Once per operation.
    void (*declare_variables)(const Op *op);
    // Copies between an arena and Keras's order. `arena` is the arena's beginning.
    void (*write_variable)(Device *device, const Op *op, const Variable *variable, float *arena,
                           const float *from);
    void (*read_variable)(Device *device, const Op *op, const Variable *variable,
                          const float *arena, float *to);

    // Prepares an operation for one batch size. `op` must outlive the state.
    OpState *(*op_create)(Device *device, const Op *op, int batch, OpSizes *sizes);
    void (*op_free)(OpState *state);
    void (*forward)(OpState *state, const ForwardArgs *args);
    void (*backward)(OpState *state, const BackwardArgs *args);
    // What is done for many operations at once (else both are NULL): before they go forward; and
    // after they went backward, when the gradients of their variables become complete.
    void (*begin_forward)(Device *device, const Operations *ops);
    void (*end_backward)(Device *device, const Operations *ops);

    // Softmax of (batch, classes) logits.
    void (*softmax)(Device *device, const float *logits, float *probabilities, int batch,
                    int classes);
    // Cross-entropy of (batch, classes) logits: adds to the metrics and writes the gradient of the
    // mean over the batch with respect to the logits. All in device memory.
    void (*cross_entropy)(Device *device, const float *logits, const int *labels, float *gradient,
                          int batch, int classes, Metrics *metrics);

    void (*update)(Device *device, const Update *update, const Segment *segments, int count);

    // Of the elements begin ... end - 1 of arrays on several devices of this kind, `device` among
    // them, the sum of factor times values, in their order, goes to all of them: the same bits. The
    // work is queued: `device` must follow() the others before it, and they `device` after it.
    void (*add_up)(Device *device, const Addend *addends, int count, size_t begin, size_t end);
    // For a device that works asynchronously (else NULL): what is queued on `device` from now on
    // waits for what was queued on `other` when other was marked last. The host does not wait.
    void (*mark)(Device *device);
    void (*follow)(Device *device, const Device *other);

    // For a device that works asynchronously (else all three are NULL): record() calls queue(what)
    // and records the device's work without doing it; NULL if it can't be recorded. play() runs the
    // recording, on the present contents of the memory, at less cost for the host.
    Recording *(*record)(Device *device, void (*queue)(const void *what), const void *what);
    void (*play)(const Recording *recording);
    void (*forget)(Recording *recording);
} Backend;

const Backend *backend_of(const Device *device);

extern const Backend backend_cpu;
IN_LIBRARY_ALL extern const Backend backend_cuda; // only with CUDA

// Calls the functions of an OP_CUSTOM with values, or gradients, in the host's memory.
void call_custom_forward(const Op *op, float *values, size_t count);
void call_custom_backward(const Op *op, float *gradients, size_t count);

// True where an operation writes a vector per image, not an image.
static inline bool op_writes_vector(const Op *op)
{
    return op->flat || op->kind == OP_GLOBAL_AVERAGE_POOL || op->kind == OP_FLATTEN ||
           op->kind == OP_DENSE;
}

// True where the backward pass of an operation writes the input's gradient over the output's.
static inline bool op_in_place(const Op *op)
{
    return op->kind == OP_RELU || op->kind == OP_DROPOUT || op->kind == OP_SOFTMAX ||
           op->kind == OP_CUSTOM || (op->kind == OP_BATCH_NORM && op->residual < 0);
}

#endif
