// Augmentation. Training images are shifted by up to 20 % of height and width (uniform, fractional,
// bilinear, edge pixels repeated), flipped left to right with probability 0.5, and standardised: (x
// - mean) / (std + 1e-6). This is what Keras's ImageDataGenerator does with width_shift_range and
// height_shift_range 0.2, horizontal_flip and featurewise standardisation.

#ifndef HVDLAB_AUGMENT_H
#define HVDLAB_AUGMENT_H

#include "data/dataset.h"

#pragma GCC visibility push(default) // a step may call what follows

// Shifts one image (bytes, height x width x channels) by `shift_y`, `shift_x` pixels, so that
// output pixel (i, j) shows input position (i + shift_y, j + shift_x), flips it if asked,
// standardises it and writes it to `out`. Zero shifts without a flip are exactly the standardised
// image.
void augment_image(const uint8_t *image, int height, int width, int channels, Statistics statistics,
                   float shift_y, float shift_x, bool flip, float *out);

#pragma GCC visibility pop

#endif
