// Whole numbers are digits and nothing else; floats get as few digits as read back the same.

#include "base/numbers.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// The C library's own object, which takes no memory.
static locale_t plain_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", NULL);
}

NumbersLocale numbers_begin(void)
{
    return uselocale(plain_locale());
}

void numbers_end(NumbersLocale before)
{
    uselocale(before);
}

int print_number(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    NumbersLocale before = numbers_begin();
    int length = vsnprintf(text, size, format, arguments);
    numbers_end(before);
    va_end(arguments);
    return length;
}

double read_double(const char *text, char **end)
{
    return strtod_l(text, end, plain_locale());
}

float read_float(const char *text, char **end)
{
    return strtof_l(text, end, plain_locale());
}

const char *read_digits(const char *text, uint64_t largest, uint64_t *number)
{
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && *number <= largest ? end : NULL;
}

bool read_whole_number(const char *text, uint64_t largest, uint64_t *number)
{
    const char *end = read_digits(text, largest, number);
    return end && *end == '\0';
}

long whole_number(const char *text, long limit)
{
    uint64_t number;
    return text && read_whole_number(text, (uint64_t)limit, &number) ? (long)number : -1;
}

long environment_number(const char *name, long limit)
{
    return whole_number(secure_getenv(name), limit);
}

FloatText float_text(float number)
{
    FloatText result;
    int digits = 6;
    do
        print_number(result.text, sizeof result.text, "%.*g", digits++, (double)number);
    while (digits <= 9 && read_float(result.text, NULL) != number);
    return result;
}
