// The environment of a check: the same verdict must come from every shell.

#ifndef HVDLAB_STEPS_ENVIRONMENT_H
#define HVDLAB_STEPS_ENVIRONMENT_H

#include <stdbool.h>

// Removes all variables of this process that a check does not need. To be called first.
void environment_limit(void);

// Removes the variables for which the function is false; it gets "NAME=VALUE".
void environment_keep(bool (*is_kept)(const char *variable));

// BUILD, or "build".
const char *build_folder(void);

// The variables that are for the check alone, not for what it starts; NULL ends the list.
extern const char *const environment_of_check[];

#endif
