// What the page gets of a process, from its trace.

#ifndef HVDLAB_PAGE_PROCESS_H
#define HVDLAB_PAGE_PROCESS_H

#include "page/calls.h"
#include "page/runs.h"

#define MAX_PARTS 64 // of a process: replicas or stages

// Of one process there is a rank, or one for each replica of a mirrored model, or for each stage of
// a pipeline.
typedef struct {
    Rank whole, part[MAX_PARTS];
    int parts;
} Process;

// Reads a process's file and adds its ranks to the page's; true where the process has ended, or is
// gone. Where that is not known until later (`live`), the time at which it was last seen alive is
// its end.
bool process_read(Process *process, const char *folder, const RunFile *file, bool live,
                  cJSON *ranks);

#endif
