// Calls of nn/ to a layer above it, which sets them where it wants them.

#ifndef HVDLAB_NN_HOOKS_H
#define HVDLAB_NN_HOOKS_H

#include "backend/parameters.h"

// Called with gradients that this process has computed, where they are complete and before they are
// exchanged: those at an offset of their arena; `applied`: with all that reach the optimizer which
// changes the weights. NULL: nothing wants to know.
extern void (*gradients_seen)(const Parameters *parameters, size_t offset, size_t length,
                              bool applied);

#endif
