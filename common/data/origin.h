// Which of the loaded images an image is, for traces: a program may shuffle, shard or copy its
// images, and the trace still names the images that it trained on. Also a trace's text for a
// batch's images.

#ifndef HVDLAB_ORIGIN_H
#define HVDLAB_ORIGIN_H

#include <stddef.h>
#include <stdint.h>

// Remembers `count` images of `bytes` bytes that were loaded, where tracing is on. `split` is a
// string constant.
void origin_note(const char *split, const uint8_t *images, size_t bytes, const uint8_t *labels,
                 int count);

typedef struct {
    const char *split; // "train", "test"; "": no such image was loaded
    int number;        // its place in what was loaded; -1: no such image
    int label;         // that it was loaded with
} Origin;

// The image of `bytes` bytes: the one at this address, else the first one with equal bytes.
Origin origin_of(const uint8_t *image, size_t bytes);

// A hash of each of `count` images of `length` floats, "7e13e189,0c2b5f11". The caller frees it.
char *pixels_text(const float *images, int count, size_t length);

#endif
