// Numbers in text: files, flags and variables have them with a decimal point, in any locale.

#ifndef HVDLAB_NUMBERS_H
#define HVDLAB_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// snprintf and strtod as in the locale "C": a program may have set another one, in which printf
// writes and strtod wants a decimal comma. For all numbers that a program reads; messages to people
// use printf.
int print_number(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
double read_double(const char *text, char **end);
float read_float(const char *text, char **end); // rounded once

// Calls a function between the two in the locale "C": of a library that prints or reads numbers.
// They nest.
typedef void *NumbersLocale;
NumbersLocale numbers_begin(void);
void numbers_end(NumbersLocale before);

// Reads a whole number from 0 to `largest` at the start of `text`; returns the text behind its
// digits, or NULL where there is none. strtoull would also take white space in front and turn -1
// into a very large number.
const char *read_digits(const char *text, uint64_t largest, uint64_t *number);

// The same of all of `text`; false where it is no such number.
bool read_whole_number(const char *text, uint64_t largest, uint64_t *number);

// The number from 0 to `limit` that is all of a text, or of an environment variable's value; -1
// where it is none, or NULL.
long whole_number(const char *text, long limit);
long environment_number(const char *name, long limit);

// The shortest decimal number that reads back as this float, "0.01".
typedef struct {
    char text[16];
} FloatText;
FloatText float_text(float number);

#endif
