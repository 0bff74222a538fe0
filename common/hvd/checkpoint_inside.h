// Functions of checkpoint.c for checkpoint_callback.c.

#ifndef HVDLAB_CHECKPOINT_INSIDE_H
#define HVDLAB_CHECKPOINT_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include "hvd/checkpoint.h"

// Exits without hvd_init; without a launcher this process is the whole job, and needs none.
void checkpoint_need_ranks(const char *caller);

// A collective call, in which all ranks get the root's bytes.
void checkpoint_begin_call(const char *caller, const char *name);
void checkpoint_broadcast(void *bytes, size_t count);
void checkpoint_end_call(void);

// save_checkpoint(), for that caller; or the weights alone.
bool checkpoint_save_as(const char *caller, const Training *training, const char *folder,
                        const char *name, bool weights_only);

#endif
