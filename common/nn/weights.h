// Inside the library: all that an update changes in a model, as tensors with names: its variables,
// "conv2d/kernel", then what the optimizer keeps beside each trainable one, "optimizer/m/conv2d/
// kernel".

#ifndef HVDLAB_WEIGHTS_H
#define HVDLAB_WEIGHTS_H

#include "data/safetensors.h"
#include "nn/model.h"

typedef struct {
    char name[80];
    int variable; // its number
    int slot;     // of the optimizer; -1: the variable itself
} StateTensor;

// How many there are, and one of them. The model must be compiled.
int state_count(const Model *model);
StateTensor state_tensor(const Model *model, int number);

// Adds one to a file.
void add_state(Safetensors *file, const Model *model, const StateTensor *tensor);

// Promises the first `count` of them to a file that has none yet; the model must live as long as
// the file. (The first model_variable_count() are the variables.)
void promise_states(Safetensors *file, const Model *model, int count);

// Whether a tensor of a file has its type and shape.
bool fits_state(const Model *model, const StateTensor *tensor, const Safetensor *candidate);

// Reads a file with weights. Exits with an error message if it is damaged: if it names another hash
// than its contents have.
Safetensors *read_weights(const char *path);

// Exits with an error message, which names the tensors, if any of the model's first `count` ones is
// missing or has another shape, or if the file has variables that the model does not have.
void check_weights(const char *path, const Safetensors *file, const Model *model, int count);

// Writes those of the first `count` that are in the file into the model.
void put_weights(const Safetensors *file, Model *model, int count);

#endif
