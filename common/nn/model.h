// A model: a graph of layers with its weights, a loss and an optimizer, ready to train.

#ifndef HVDLAB_MODEL_H
#define HVDLAB_MODEL_H

#include "data/batches.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "nn/sparse.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Model Model;

// Minus the logarithm of the probability that the model gives to an image's label, a class number.
// Keras has the same two, the second as from_logits=True:
//
//     CATEGORICAL_CROSSENTROPY              of a model that ends in softmax(): it gives out
//                                           probabilities
//     CATEGORICAL_CROSSENTROPY_FROM_LOGITS  of a model that gives out logits: the loss applies the
//                                           softmax, to whatever the model ends in
typedef enum { CATEGORICAL_CROSSENTROPY, CATEGORICAL_CROSSENTROPY_FROM_LOGITS } Loss;

// A model from its input to its output. The model owns the graph behind them: of several models
// with the same input one can be compiled.
Model *model(Tensor input, Tensor output);

// Adds an L2 penalty of `wd` to the kernels of all convolutions and dense layers, as Keras's
// kernel_regularizer=l2(wd) does: 2 wd w is added to their gradients. Printed losses stay the
// cross-entropy alone. Returns the model.
Model *l2_penalty(Model *model, float wd);

// Prints the model as a table, as Keras's model.summary() does: each layer with its shape, without
// the batch's size, and its parameters; and how many parameters there are in all, the ones that are
// trained, and the moving statistics, which are not.
void model_summary(const Model *model);

// Plans the computation, draws the initial weights and takes ownership of the optimizer. The model
// stays on the calling thread's device; other threads may use it later, one at a time. The model's
// output must be a vector, a number for each class. A model is compiled once, and an optimizer
// serves one model. Returns the model.
Model *compile(Model *model, Loss loss, Optimizer *optimizer);

// Frees the model, its graph and its optimizer; NULL is nothing.
void model_free(Model *model);

// Exits with an error message, which names `caller`, where the model is not compiled yet.
void model_check_compiled(const Model *model, const char *caller);
bool model_is_compiled(const Model *model);

// Exits with an error message where the data set's images or classes do not fit the model.
void model_check_dataset(const Model *model, const Dataset *dataset);

// In all functions below, a model that is NULL or not compiled, a batch without images (or labels,
// if they are read), or a variable that does not exist makes the program exit with an error
// message.

// One update: compute_gradients, then apply_gradients.
void train_on_batch(Model *model, const Batch *batch);

// The two halves of an update: forward in training mode and backward, which overwrites the
// gradients and adds the batch to the metrics; and the optimizer's update. Between the two the
// gradients, without the L2 part, are at model_parameters(model)->gradients, in device memory.
// (With a distributed optimizer they are already travelling between the workers: do not touch
// them.) Gradients that are computed and not applied are dropped by the next compute_gradients;
// apply_gradients without new ones makes the program exit with an error message. With --pace MS
// compute_gradients, and train_on_batch before it applies anything, take MS milliseconds at least.
void compute_gradients(Model *model, const Batch *batch);
void apply_gradients(Model *model);

// Forward in inference mode; adds the batch to the metrics.
void test_on_batch(Model *model, const Batch *batch);

// Forward in inference mode: writes the model's output, batch->count x classes numbers:
// probabilities if the model ends in softmax(), else logits.
void predict_on_batch(Model *model, const Batch *batch, float *predictions);

// Sums over all batches since the last reset.
Metrics model_metrics(const Model *model);
void model_reset_metrics(Model *model);

Optimizer *model_optimizer(const Model *model);

// Variables, in the order of the forward pass. Values are read and written in Keras's order, as
// variable_size floats.
int model_variable_count(const Model *model);
const Variable *model_variable(const Model *model, int index);
void model_read_variable(const Model *model, int index, float *to);
void model_write_variable(Model *model, int index, const float *from);
// Writes FOLDER/NAME.safetensors, all variables under Keras's names; makes the folder where there
// is none. The file appears when it is complete; where it can't be written, the program exits with
// an error message.
void save_weights(const Model *model, const char *folder, const char *name);
// Reads the variables of such a file, or of a checkpoint's main file, whatever optimizer wrote it;
// the model's own optimizer keeps its state. Exits with an error message, which names the
// variables, if some are missing, have another shape, or are not the model's; then nothing has
// changed. Each rank reads for itself.
void load_weights(Model *model, const char *path);
// The size of a variable of such a file along an axis, from 0, for a program that makes the model
// which fits; 0 where the file has no such variable or axis.
int weights_dim(const char *path, const char *variable, int axis);
// The gradient of the last batch's cross-entropy, without the L2 part. Trainable variables only.
void model_read_gradient(const Model *model, int index, float *to);
// Replaces this gradient by variable_size floats, which apply_gradients() then uses. If
// compute_gradients() was not called before, the gradients of all other variables become 0.
void model_write_gradient(Model *model, int index, const float *from);
// All gradients at once, in the host's memory, laid out as in their arena:
// model_parameters(model)->length floats. Written values count as new gradients, even without a
// compute_gradients before.
void model_read_gradients(const Model *model, float *to);
void model_write_gradients(Model *model, const float *from);

// The same of an embedding's table, as the rows that the batch named, in ascending order, each once
// (even one whose gradient happens to be 0). To be freed with sparse_gradient_free.
SparseGradient model_sparse_gradient(const Model *model, int index);
// Puts these rows in its place, zeros elsewhere. Rows that stand there several times are added up.
void model_write_sparse_gradient(Model *model, int index, const SparseGradient *gradient);

// One number for all weights, and one for all moving statistics: the dot product with a fixed
// pseudo-random vector. Equal values have equal fingerprints; nearly equal values, near ones.
typedef struct {
    double weights, statistics;
} Fingerprints;
Fingerprints model_fingerprints(const Model *model);

// That of the weights as they lie in their arena, by the same numbers as the gradients': the
// fingerprint of an update by SGD is the learning rate times that of the gradient.
double model_arena_fingerprint(const Model *model);

// The memory of a compiled model in this process, in bytes: of the weights and moving statistics,
// their gradients, the optimizer's state, and the values between the layers with their gradients,
// for the largest batch so far. Of weights in shards, the most at a time.
typedef struct {
    size_t weights, gradients, optimizer, activations;
} MemoryUse;
MemoryUse model_memory(const Model *model);

// The arenas as a distributed layer sends them: the weights and their gradients, and the moving
// statistics.
const Parameters *model_parameters(const Model *model);
float *model_statistics(const Model *model, size_t *length);

#pragma GCC visibility pop

// Inside the library: true where reading the metrics does not wait, on a CPU. Reading a GPU's waits
// until all queued work is done.
bool model_metrics_are_available(const Model *model);

// Inside the library: how many forward passes the model has made in training; a restored one goes
// on from there. Each has a dropout pattern of its own.
int64_t model_passes(const Model *model);
void model_set_passes(Model *model, int64_t passes);

// Inside the library: floats of an image that the model reads.
size_t model_image_length(const Model *model);

// Inside the library: the model is one of several in this process that train together, the one with
// this number, and drops other values than the others.
void model_is_replica(Model *model, int number);

// Inside the library: the model's weights were made the same on all ranks, once at least.
void model_mark_broadcast(Model *model);
bool model_was_broadcast(const Model *model);

// Inside the library: exits with an error message, which names `caller`, where there are no
// gradients to be applied.
void model_check_has_gradients(const Model *model, const char *caller);

// Inside the library: the values written to the gradients' arena are to be applied.
void model_gradients_are_new(Model *model);

// Inside the library: goes on adding to these.
void model_write_metrics(Model *model, const Metrics *metrics);

// Inside the library: others compute parts of this model's batches. model_metrics() calls
// gather(self) first, which adds their metrics to the model's own; NULL ends that.
Metrics model_own_metrics(const Model *model);
void model_gather_metrics(Model *model, void (*gather)(void *self), void *self);

// Inside the library: Parameters.layout, also where this process is alone.
uint64_t model_layout(const Model *model);

// Inside the library: what the optimizer that changes the weights keeps beside a trainable
// variable, in Keras's order as the variable is.
void model_read_slot(const Model *model, int index, int slot, float *to);
void model_write_slot(Model *model, int index, int slot, const float *from);

// Inside the library: writes `count` numbers of a slot's arena from an offset on, as they lie there.
void model_write_slot_at(Model *model, int slot, size_t offset, size_t count, const float *from);

#endif
