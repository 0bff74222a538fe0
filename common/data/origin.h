// Which of the images that were loaded an image is, for traces: a program may shuffle, share out or
// copy its images as it likes, and a trace still says which of them it trained on.

#ifndef HVDLAB_ORIGIN_H
#define HVDLAB_ORIGIN_H

#include <stddef.h>
#include "data/dataset.h"

// Keeps in mind what was loaded, where tracing is on.
void origin_note(const Dataset *dataset, Split split);

typedef struct {
    const char *split; // "train", "test"; "": no such image was loaded
    int number;        // its place in what was loaded; -1: no such image
    int label;         // that it was loaded with
} Origin;

// The image of `bytes` bytes: that which lies there, else the first one that looks the same.
Origin origin_of(const uint8_t *image, size_t bytes);

#endif
