// Inside the library: a batch in parts, through a model that is a part of another
// (train/stages.c). One that passes on what it computes is compiled with the loss from logits,
// which is never asked for. The state for a part's backward pass is kept, in memory of its own,
// until its number comes again.

#ifndef HVDLAB_PARTS_H
#define HVDLAB_PARTS_H

#include "nn/model.h"

// A part of a batch.
typedef struct {
    int number; // from 0; calls with the same number are about the same part
    int count;  // images
} Part;

// Its initial weights are those of a model that has so many variables before its first one. To be
// called before compile().
void model_follow(Model *model, int variables);

// Whether it begins with input_vector(), and whether the same batch always has the same gradients:
// nothing drops, and no statistics move. The second, and what follows, of a compiled model.
bool model_reads_vector(const Model *model);
bool model_repeats(const Model *model);

// Numbers for each image, that the half reads and that it passes on; also of one that is not
// compiled.
int model_input_size(const Model *model);
int model_output_size(const Model *model);

// Forward, from count x input size floats in the host's memory; with labels also the loss, which is
// added to the metrics.
void model_forward_part(Model *model, Part part, const float *input, const int *labels,
                        bool training);
// Frees the memory of a part, and with it what its backward pass needs.
void model_free_part(Model *model, Part part);
// What it has computed: count x output size floats.
void model_read_output(Model *model, Part part, float *to);
// Backward, from the gradient of the output, or, NULL, of the loss. Overwrites the gradients.
void model_backward_part(Model *model, Part part, const float *output_gradient);
// The gradient of an input_vector: count x input size floats.
void model_read_input_gradient(Model *model, Part part, float *to);

// Adds the gradients of the last part that went backward, times `weight`, to a sum; and updates the
// weights from the sum, which is empty then.
void model_add_gradients(Model *model, float weight);
void model_apply_sum(Model *model);
void model_drop_sum(Model *model);
bool model_has_sum(const Model *model);

// The fingerprint of the sum.
double model_sum_fingerprint(const Model *model);

#endif
