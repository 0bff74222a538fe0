// The arithmetic of one image: bytes or floats, standardised, and shifted and flipped where that is
// asked for. For the stages of a pipeline; augment.h says what is done.

#ifndef HVDLAB_AUGMENT_INSIDE_H
#define HVDLAB_AUGMENT_INSIDE_H

#include "base/rng.h"
#include "data/dataset.h"

enum { MAX_CHANNELS = 4, BYTE_VALUES = 256 };

// The properties that all images of a data set share.
typedef struct {
    int height, width, channels;
    float standardized[MAX_CHANNELS][BYTE_VALUES]; // of each byte value
} Format;

// Working memory for one image.
typedef struct {
    int *columns; // width + 1
    float *taps;  // (width + 1) x channels
    float *rows;  // height x width x channels
} Scratch;

// One of the two is set: bytes as they were read, or floats, which are standardised already.
typedef struct {
    const uint8_t *bytes;
    const float *floats;
} Pixels;

Format make_format(int height, int width, int channels, const Statistics *statistics);

// How many bytes or floats an image has.
size_t image_length(const Format *format);

Scratch allocate_scratch(const Format *format);
void free_scratch(Scratch *scratch);

// The standardised image.
void standardize_image(const Format *format, Pixels image, float *out);

// Shifts by up to a fifth of height and width, flips in half of the cases, and standardises.
void augment_randomly(const Format *format, Pixels image, Rng rng, Scratch *scratch, float *out);

#endif
