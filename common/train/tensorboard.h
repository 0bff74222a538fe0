// TensorBoard event files: scalars only. An event file is a sequence of TFRecord frames (length,
// masked CRC-32C of the length, payload, masked CRC-32C of the payload), each payload a protobuf
// `Event` as tensorflow/core/util/event.proto defines it.

#ifndef HVDLAB_TENSORBOARD_H
#define HVDLAB_TENSORBOARD_H

#include <stdint.h>

typedef struct EventFile EventFile;

// Creates folder (and its parents) and in it events.out.tfevents.SECONDS.HOST.PID, beginning with
// the "brain.Event:2" version record. Exits with an error message if it can't create them.
EventFile *event_file_open(const char *folder);

// Appends one scalar at `step` and flushes it, so that a running TensorBoard sees it. If the file
// has been deleted or can't be written any more, a warning says so once, nothing more is written,
// and the program exits with status 1. What was written before stays complete.
void event_file_scalar(EventFile *file, const char *tag, int64_t step, float value);

void event_file_close(EventFile *file);

#endif
