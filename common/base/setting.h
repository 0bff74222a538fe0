// Settings in variables of the environment, which users type.

#ifndef HVDLAB_SETTING_H
#define HVDLAB_SETTING_H

// The value of an environment variable that holds seconds, from 0 to a million; `otherwise` where
// it is not set, or empty. Exits with an error message where it is anything else.
double environment_seconds(const char *name, double otherwise);

#endif
