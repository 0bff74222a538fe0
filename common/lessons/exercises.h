// Code that the exercises of labs 3 to 10 share, so that each file shows its own idea: a small
// network, the training of lab 2, and the two roles of lab 8. exercises.c has the code, as a step
// would write it.

#ifndef HVDLAB_EXERCISES_H
#define HVDLAB_EXERCISES_H

#include <stddef.h>
#include <stdint.h>
#include "comm/comm.h"
#include "data/batches.h"
#include "hvd/ps.h"
#include "nn/model.h"
#include "run/args.h"
#include "train/mirrored.h"

#pragma GCC visibility push(default) // a step may call what follows

// A LeNet: two convolutions with `filters` and twice as many filters, each with a pool; a dense
// layer of `units`, if they are not 0; a dense layer for the ten classes. Shapes: (height, width,
// channels) of an image.
Model *create_lenet(int filters, int units);

// Trains a compiled model as lab 2 does: the workers start from the root's weights, share the steps
// of an epoch, and average the metrics. The optimizer averages the gradients.
void train_on_workers(Model *model, const Args *args);

// The same with a LeNet, by SGD and the library's distributed optimizer.
void train_lenet(const Args *args);

// An optimizer that passes the gradients to the program piece by piece: `ready` gets the `count`
// gradients of a layer when they are complete, while the backward pass goes on with the layers
// before it; `finish` gets all gradients before `optimizer` applies them. In host memory: without
// --device the CPU computes, even where there is a GPU.
Optimizer *optimizer_in_pieces(Optimizer *optimizer, void (*ready)(float *gradients, int count),
                               void (*finish)(float *gradients, size_t count));

// An all-reduce of any length in pieces of at most 2^18 floats, which stay in the cache. `sum` adds
// up one piece; it gets one of length 0 where there are no values.
void allreduce_in_pieces(float *values, size_t count, MPI_Comm comm,
                         void (*sum)(float *values, int count, MPI_Comm comm));

// Passes each batch of an epoch to `function`, on all workers at the same time: the images of the
// root's batch. Returns this worker's metrics.
Metrics pass_of_all(Model *model, Batches *batches, void (*function)(Model *, const Batch *));

// Calls `exchange`, which averages a gradient over all workers and returns how many rows this worker
// contributes to it, ten times, and has the root print the rows, their KB, with `floats` for each
// row, and the milliseconds of a call. Collective.
void measure_exchange(const char *name, int (*exchange)(Model *model), int floats, Model *model);

// Passes each batch of an epoch to `function` on all devices, as batch_on_each_device does. Returns
// the metrics of all replicas together.
Metrics pass_of_replicas(Mirrored *replicas, Batches *batches,
                         void (*function)(Replica *replica, const Batch *batch));

// A learning rate that falls from batch to batch: lr / (1 + decay * batches done). A checkpoint keeps
// the number of batches (`kept` of Callback).
USE_RESULT Callback *inverse_time_decay(float lr, float decay);

// Gives a model whose layers have only some units its part of an undivided model's weights: of a
// kernel (inputs x outputs) that has fewer columns or rows than the whole one, and of a bias, part
// number `part` of equal ones, from 0; all of every other variable. Exits with an error message
// where there is no such part.
void take_part(Model *own, const Model *whole, int part);

// The same with part number hvd_rank().
void take_own_part(Model *own, const Model *whole);

// The images and labels of part number `part`, from 0, of `parts` equal ones of a batch that the
// model reads; they are not copied. Exits with an error message where there is no such part.
Batch slice_of_batch(const Model *model, const Batch *batch, int part, int parts);

// Exits with an error message where the workers are not so many columns of equal length.
void need_columns(int columns);

// A server of lab 8: answers pulls and applies pushes until all workers have left.
void serve_workers(PsServer *server);

// A worker of lab 8: for each batch of its images it pulls the weights, computes gradients, and
// pushes them.
void train_with_servers(PsWorker *worker, Model *model, Batches *batches, int epochs);

// Its two halves: all servers' weights, into the model, and the last server's version of them; the
// model's gradients, to all servers.
int64_t pull_weights(PsWorker *worker);
void push_gradients(PsWorker *worker);

// Lab 8's batches of this worker's shard of the training images. Where a shard is one image longer
// than others, the others have at most one step less.
Batches *own_batches(const Args *args);

#pragma GCC visibility pop

#endif
