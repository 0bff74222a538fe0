// Models for tests of train/stages.h, whole and in parts: the same layers, cut behind a vector; and
// schedules for the parts.

#ifndef HVDLAB_UNIT_STAGED_MODELS_H
#define HVDLAB_UNIT_STAGED_MODELS_H

#include "hvdlab.h"

enum { SIZE = 8, BATCH = 16, CLASSES = 10 }; // of an image and a batch

extern const int two_devices[2];

// With or without convolutions; in halves; the layers behind the cut.
Model *whole_model(bool images);
Model *first_half(bool images);
Model *second_half(bool images);
Tensor classes_behind(Tensor x);
Stages *small_stages(void); // both halves, without convolutions

// In a row of parts: a layer for each, and the classes in the last one.
Model *part_of_row(int index, int count);
Stages *row_of(int count, Model *models[]);

// `count` images. The next call overwrites them.
Batch random_batch(int count, uint64_t seed);

// Right schedules of the two halves; wrong ones.
void one_at_a_time(Stage *stage, int micro_batches);
void fill_and_drain(Stage *stage, int micro_batches);
void at_once(Stage *stage, int micro_batches);
void does_nothing(Stage *stage, int micro_batches);
void forgets_one(Stage *stage, int micro_batches);

// A micro-batch through a stage of a row.
void row_forward(Stage *stage, int k);
void row_backward(Stage *stage, int k);

#endif
