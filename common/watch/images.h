// Which of the loaded images a program trains on, for traces: it may shuffle, shard or copy them.

#ifndef HVDLAB_WATCH_IMAGES_H
#define HVDLAB_WATCH_IMAGES_H

#include "data/hooks.h"

// The hook images_were_loaded: remembers them, where tracing is on.
void watch_loaded(const char *split, const uint8_t *images, size_t bytes, const uint8_t *labels,
                  int count);

// The hook images_were_drawn: the event "images".
void watch_drawn(const DrawnImages *drawn);

#endif
