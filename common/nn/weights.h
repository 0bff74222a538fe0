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

// Of a part of the optimizer's state the numbers that belong to a variable: how many, and the offset of
// the first one in the arena.
size_t state_in_part(const StatePart *part, const Variable *variable, size_t *begin);

// A file to be written of the first `count` of them (the first model_variable_count() are the
// variables), and one more of them. It reads their values when it is written: the model must not
// change before.
Safetensors *file_of_states(const Model *model, int count);
void promise_state(Safetensors *file, const Model *model, int number);

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
