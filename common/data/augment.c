// One image, standardised, shifted and flipped.

#include "data/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/augment_inside.h"

// Output position i is interpolated between input positions i + offset and i + offset + 1.
typedef struct {
    int offset;
    float weight; // of the second of them, in [0, 1]
} Shift;

Format make_format(int height, int width, int channels, const Statistics *statistics)
{
    CHECK(channels >= 1 && channels <= MAX_CHANNELS);
    Format format = {.height = height, .width = width, .channels = channels};
    for (int c = 0; c < channels; c++) {
        for (int value = 0; value < BYTE_VALUES; value++)
            format.standardized[c][value] =
                ((float)value - statistics->mean[c]) / (statistics->std[c] + 1e-6f);
    }
    return format;
}

static int row_length(const Format *format)
{
    return format->width * format->channels;
}

size_t image_length(const Format *format)
{
    return (size_t)format->height * (size_t)row_length(format);
}

Scratch allocate_scratch(const Format *format)
{
    size_t taps = (size_t)format->width + 1;
    return (Scratch){
        .columns = allocate(taps, sizeof(int)),
        .taps = allocate(taps * (size_t)format->channels, sizeof(float)),
        .rows = allocate(image_length(format), sizeof(float)),
    };
}

void free_scratch(Scratch *scratch)
{
    free(scratch->columns);
    free(scratch->taps);
    free(scratch->rows);
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static Shift split_shift(float shift, int size)
{
    // Offsets beyond `size` pixels give only the repeated edge; the limit keeps them within an int.
    float limited = fminf(fmaxf(shift, (float)-size), (float)size), whole = floorf(limited);
    return (Shift){.offset = (int)whole, .weight = limited - whole};
}

// out = a * weight_a + b * weight_b. Weights of 1 and 0 give a itself.
static void blend(const float *restrict a, float weight_a, const float *restrict b, float weight_b,
                  float *restrict out, int length)
{
    for (int i = 0; i < length; i++)
        out[i] = a[i] * weight_a + b[i] * weight_b;
}

// The input column of each tap of a row: output column j is between taps j and j + 1. A flip
// reverses their order.
static void place_columns(const Format *format, Shift shift, bool flip, int *columns)
{
    int width = format->width;
    for (int tap = 0; tap <= width; tap++) {
        int position = (flip ? width - tap : tap) + shift.offset;
        columns[tap] = clamp(position, 0, width - 1) * format->channels;
    }
}

static void read_taps(const Format *format, const uint8_t *row, const int *columns, float *taps)
{
    int channels = format->channels;
    for (int c = 0; c < channels; c++) {
        const float *standardized = format->standardized[c];
        for (int tap = 0; tap <= format->width; tap++)
            taps[tap * channels + c] = standardized[row[columns[tap] + c]];
    }
}

static void read_float_taps(const Format *format, const float *row, const int *columns, float *taps)
{
    size_t channels = (size_t)format->channels;
    for (int tap = 0; tap <= format->width; tap++)
        memcpy(taps + (size_t)tap * channels, row + columns[tap], channels * sizeof *taps);
}

// Bilinear interpolation is linear interpolation along the rows, then along the columns. The bytes
// are standardised first; standardising after the interpolation would give the same.
static void shift_image(const Format *format, Pixels image, Shift y, Shift x, bool flip,
                        Scratch *scratch, float *out)
{
    int length = row_length(format);
    float right = flip ? 1 - x.weight : x.weight; // weight of the tap on the right
    place_columns(format, x, flip, scratch->columns);
    for (int i = 0; i < format->height; i++) {
        size_t row = (size_t)i * (size_t)length;
        if (image.bytes)
            read_taps(format, image.bytes + row, scratch->columns, scratch->taps);
        else
            read_float_taps(format, image.floats + row, scratch->columns, scratch->taps);
        blend(scratch->taps, 1 - right, scratch->taps + format->channels, right,
              scratch->rows + (size_t)i * (size_t)length, length);
    }
    for (int i = 0; i < format->height; i++) {
        int above = clamp(i + y.offset, 0, format->height - 1);
        int below = clamp(i + y.offset + 1, 0, format->height - 1);
        blend(scratch->rows + (size_t)above * (size_t)length, 1 - y.weight,
              scratch->rows + (size_t)below * (size_t)length, y.weight,
              out + (size_t)i * (size_t)length, length);
    }
}

void standardize_image(const Format *format, Pixels image, float *out)
{
    size_t length = image_length(format), channels = (size_t)format->channels;
    const uint8_t *bytes = image.bytes;
    if (!bytes)
        memcpy(out, image.floats, length * sizeof *out);
    for (size_t c = 0; bytes && c < channels; c++) {
        for (size_t i = c; i < length; i += channels)
            out[i] = format->standardized[c][bytes[i]];
    }
}

void augment_randomly(const Format *format, Pixels image, Rng rng, Scratch *scratch, float *out)
{
    const float range = 0.2f;
    float shift_y = (2 * rng_uniform(&rng) - 1) * range * (float)format->height;
    float shift_x = (2 * rng_uniform(&rng) - 1) * range * (float)format->width;
    bool flip = rng_below(&rng, 2) == 1;
    shift_image(format, image, split_shift(shift_y, format->height),
                split_shift(shift_x, format->width), flip, scratch, out);
}

void augment_image(const uint8_t *image, int height, int width, int channels, Statistics statistics,
                   float shift_y, float shift_x, bool flip, float *out)
{
    Format format = make_format(height, width, channels, &statistics);
    Scratch scratch = allocate_scratch(&format);
    shift_image(&format, (Pixels){.bytes = image}, split_shift(shift_y, height),
                split_shift(shift_x, width), flip, &scratch, out);
    free_scratch(&scratch);
}
