// Mirrored training: one process, a replica of the model on each of its devices, a thread for each.
// The global batch is split among the replicas; each computes the gradients of its part; the mean
// of all, weighted by the parts' images, reaches the optimizer of each. So all replicas stay equal
// to each other and, up to rounding, to one device that computes the whole batch. (TensorFlow calls
// this MirroredStrategy.) A batch is split into equal parts. Of a remainder the first replicas get
// one image more each; of a batch with fewer images than replicas the last replicas get none.
//
// Batch norm standardises with the mean and the variance of a replica's own part, as in the
// original. Moving statistics become the replicas' mean after every step (Keras:
// VariableAggregation.MEAN), weighted like the gradients. Dropout drops other values on each
// replica. With one device the results are those without replicas, to the bit.

#ifndef HVDLAB_MIRRORED_H
#define HVDLAB_MIRRORED_H

#include "train/fit.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Mirrored Mirrored;

// The argument of a function that runs on a device.
typedef struct {
    int index, count;   // which replica it is, from 0, of how many
    Model *model;       // its own, on its own device
    Mirrored *mirrored; // all of them
} Replica;

// Makes a replica on each of `count` devices of this process, which are numbered from 0; NULL and 0
// mean all that there are (a CPU has as many as HVDLAB_DEVICES says). For each device it calls
// create(), which must return the same model each time, and optimizer(), which returns a new
// optimizer that wraps no other, and compiles the model with both. All replicas have the weights of
// replica 0. A device that is not there, or twice in the list, and replicas that differ make the
// program exit with an error message. The caller owns it; a program that ends need not free it. It
// cannot be freed by a function on the devices.
Mirrored *mirrored(Model *(*create)(void), Loss loss, Optimizer *(*optimizer)(void),
                   const int *devices, int count);
void mirrored_free(Mirrored *mirrored);

// How many devices it has, and the model of replica `index`.
int mirrored_devices(const Mirrored *mirrored);
Model *mirrored_model(const Mirrored *mirrored, int index);

// Calls function(replica, argument) on the threads of all devices at a time, and returns when all
// are done. The function may not call it itself: that makes the program exit with an error message.
void on_each_device(Mirrored *mirrored, void (*function)(Replica *replica, void *argument),
                    void *argument);

// The same, with a batch as the argument.
void batch_on_each_device(Mirrored *mirrored,
                          void (*function)(Replica *replica, const Batch *batch),
                          const Batch *batch);

// The replica's part of a batch that all replicas have; empty if there are too few images.
Batch part_of_batch(const Replica *replica, const Batch *batch);

// All replicas must call the following functions, inside a function on each device; each call
// returns when all have made it. If a replica returns from its function or makes another call
// instead, the program exits with an error message.

// Each replica's gradients become the mean of all replicas', weighted by `weight`: the images of
// its part. (Those of a replica with weight 0 are not looked at, and need not have been computed.)
// The moving statistics become their mean, likewise. All replicas get the same bits. At least one
// weight must be above 0, and none below.
void average_gradients(Replica *replica, double weight);

// Each replica's `values`, an array of its own of `length` floats in the host's memory, become the
// sum of all replicas', the same bits everywhere.
void sum_among_replicas(Replica *replica, float *values, size_t length);

// fit() and evaluate() on all devices: batches are global ones, metrics those of whole batches.
// Callbacks see the model of replica 0. Changes to its weights and moving statistics, by them or
// before, reach the others at the next of these calls, and changes to its optimizer at the next
// step.
History fit_mirrored(Mirrored *mirrored, const Fit *fit);
Score evaluate_mirrored(Mirrored *mirrored, Batches *batches, int verbose);

#pragma GCC visibility pop

#endif
