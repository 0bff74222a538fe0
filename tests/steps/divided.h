// What the judges of networks with two divided dense layers read of a run: the layers of each rank,
// and the losses, beside those of the undivided network, which one rank alone computes.

#ifndef HVDLAB_STEPS_DIVIDED_H
#define HVDLAB_STEPS_DIVIDED_H

#include "judge.h"

// Of a loss, relative to it: sums in another order, and what becomes of that in a few updates.
#define TOLERANCE 1e-4

// The run of one rank; NULL: there is none.
const Run *undivided_run(const Runs *runs);

// The layers of the model that a rank trains, its last, as text.
const char *trained_model(const Run *run, int rank);

// Those of the undivided network, whose weights all begin with.
const char *undivided_model(const Run *run);

// The units of a model's dense layers, "960, 128, 10"; to be freed.
char *units_text(const char *model);

// In how many parts the undivided network's first dense layer is, of which the rank has one; 0: in none, or its other
// layers are not those of that network.
int parts_of_units(const Run *run, int rank, const Run *one);

// Lengths of the vectors that the two divided layers read and write.
int input_length(const Run *run);
int output_length(const Run *run);

// True where a custom layer of the outputs' length reads what a relu gives.
bool relu_before_sum(const Run *run);

// The n-th batch on which a rank trained, from 0; NULL: there is none. The mean loss of its images.
const cJSON *trained_batch(const Events *events, int n);
double loss_of(const Run *run, int rank, int n);

// True where several ranks train by another optimizer or rate than one alone does.
bool other_optimizer(const Run *run, const Run *one);

#endif
