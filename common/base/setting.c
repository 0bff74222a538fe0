// Variables of the environment.

#include "base/setting.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/numbers.h"

#define MAX_SECONDS 1e6

double environment_seconds(const char *name, double otherwise)
{
    const char *text = secure_getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    double seconds = read_double(text, &end);
    bool decimal = text[strspn(text, "0123456789.eE+-")] == '\0' && *text != '-' && *text != '+';
    if (*end || !decimal || seconds > MAX_SECONDS)
        die("%s=%.40s is not a number of seconds from 0 to %.0f", name, text, MAX_SECONDS);
    return seconds;
}
