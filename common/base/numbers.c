// Whole numbers are digits and nothing else; floats get as few digits as read back the same.

#include "base/numbers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool read_whole_number(const char *text, uint64_t largest, uint64_t *number)
{
    if (*text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    *number = strtoull(text, NULL, 10);
    return errno == 0 && *number <= largest;
}

long environment_number(const char *name, long limit)
{
    const char *text = secure_getenv(name);
    uint64_t number;
    return text && read_whole_number(text, (uint64_t)limit, &number) ? (long)number : -1;
}

FloatText float_text(float number)
{
    FloatText result;
    int digits = 6;
    do
        snprintf(result.text, sizeof result.text, "%.*g", digits++, (double)number);
    while (digits <= 9 && strtof(result.text, NULL) != number);
    return result;
}
