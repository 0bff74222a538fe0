// The state of a training whose optimizer is in equal shards, as arrays (lab 10).

#ifndef HVDLAB_SHARDS_STATE_H
#define HVDLAB_SHARDS_STATE_H

#include "lessons/shard_file.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "run/args.h"

#pragma GCC visibility push(default) // a step may call what follows

// optimizer_in_shards() (lessons/shards.h), where each worker keeps an equal part of each piece, in
// the order of the ranks, as hvd_reduce_scatter divides it.
USE_RESULT Optimizer *optimizer_in_equal_shards(Optimizer *optimizer);

// ---- The state of a training with optimizer_in_equal_shards().

// An array: a variable, or what the optimizer keeps beside each number of one. It has `length`
// numbers, all workers together.
typedef struct {
    char name[80]; // "dense/kernel", "optimizer/m/dense/kernel"
    int length;
    Slice own;     // which of them this worker updates; it may be none
    Slice needed;  // which of them it has in memory: of a variable all, of the others its own
    float *values; // these, `needed.count` numbers
} StateArray;

// How many arrays there are, and one of them, from 0. The order is the same on all workers. A model
// with another optimizer makes the program exit with an error message.
int state_array_count(Model *model);
StateArray state_array(Model *model, int number);

// Trains for --epochs, all workers with the root's batches, so that their number changes the
// updates by rounding only. The root prints the loss of each epoch.
void train_in_equal_shards(Model *model, const Args *args);

#pragma GCC visibility pop

#endif
