// Whose an upload is.

#ifndef HVDLAB_CLASS_OWNERS_H
#define HVDLAB_CLASS_OWNERS_H

#include <stdbool.h>
#include "class/roster.h"

typedef struct {
    int student; // -1: unknown
    int group;   // bytes of the path that name what was handed in at one time: "s09.zip"
    bool late;
    const char *file; // the name of the file that was uploaded, in the path; NULL: it is the path's
                      // last part
} Owner;

// Who has uploaded what is at this path. Without a roster they join the class.
Owner owner_of(Class *class, const char *path);

#endif
