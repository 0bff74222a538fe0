// Numbers in text: whole ones that users type, floats as people write them.

#ifndef HVDLAB_NUMBERS_H
#define HVDLAB_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

// Reads a whole number from 0 to `largest` that is all of `text`; false where it is none. Only
// digits: strtoull would also take white space in front and turn -1 into a very large number.
bool read_whole_number(const char *text, uint64_t largest, uint64_t *number);

// The value of an environment variable that holds a whole number from 0 to `limit`, else -1.
long environment_number(const char *name, long limit);

// The shortest decimal number that reads back as this float, "0.01".
typedef struct {
    char text[16];
} FloatText;
FloatText float_text(float number);

#endif
