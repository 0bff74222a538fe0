// Calls of observe/ to a layer above it; start.c sets them.

#ifndef HVDLAB_OBSERVE_HOOKS_H
#define HVDLAB_OBSERVE_HOOKS_H

// Called when an event has been written to the trace; `text`: its first field's, or NULL.
extern void (*event_written)(const char *event, const char *text);

#endif
