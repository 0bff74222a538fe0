// Calls of run/ to a layer above it; start.c sets them.

#ifndef HVDLAB_RUN_HOOKS_H
#define HVDLAB_RUN_HOOKS_H

// Called at the end of parse_args().
extern void (*args_read)(void);

#endif
