// The environment variables of the kit that users set (settings.def). Each function exits with an
// error message where the variable holds anything else than its kind allows.

#ifndef HVDLAB_SETTING_H
#define HVDLAB_SETTING_H

#include <stdint.h>

typedef enum {
#define SETTING(name, ...) name,
#include "base/settings.def"
#undef SETTING
    SETTINGS
} Setting;

const char *setting_name(Setting setting);        // "HVD_TRANSPORT"
const char *setting_text(Setting setting);        // of TEXT; NULL where it is not set, or empty
int setting_count(Setting setting);               // of COUNT; 0 where it is not set
double setting_seconds(Setting setting);          // of SECONDS
uint64_t setting_bytes(Setting setting);          // of BYTES
int setting_choice(Setting setting);              // of CHOICE: the number of the word, from 0
const char *setting_choice_text(Setting setting); // of CHOICE: the word

// Prints a line for each setting, as --help shows flags.
void settings_print(void);

#endif
