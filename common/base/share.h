// How things are dealt to several, as evenly as can be: images to replicas, an array to those that
// work on it together.

#ifndef HVDLAB_SHARE_H
#define HVDLAB_SHARE_H

#include <stddef.h>

// Those from `begin` on, `count` of them.
typedef struct {
    size_t begin, count;
} Share;

// What number `index` of `sharers` gets of `count` things, in their order: the first ones get one
// more, where that does not come out even.
Share share_of(size_t count, int index, int sharers);

// The same of an array's `length` elements, where shares begin at multiples of `block`; the last
// share may be shorter, or nothing.
Share share_of_blocks(size_t length, size_t block, int index, int sharers);

#endif
