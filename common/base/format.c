// Formatted strings and lists of numbers.

#include "base/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"

char *format_text(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        die("out of memory: there is none for a line of text");
    return text;
}

void text_add(char **text, const char *format, ...)
{
    char *more = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&more, format, arguments);
    va_end(arguments);
    if (length < 0)
        die("out of memory: there is none for a line of text");
    size_t before = *text ? strlen(*text) : 0;
    *text = enlarge(*text, before + (size_t)length + 1, 1);
    memcpy(*text + before, more, (size_t)length + 1);
    free(more);
}

char *ranks_text(const int *ranks, int count)
{
    char *text = format_text(count == 1 ? "rank " : "ranks ");
    for (int first = 0, last; first < count; first = last + 1) {
        for (last = first; last + 1 < count && ranks[last + 1] == ranks[last] + 1;)
            last++;
        if (last == first + 1) // two are no range
            last = first;
        const char *separator = first == 0 ? "" : last == count - 1 ? " and " : ", ";
        text_add(&text, "%s%d", separator, ranks[first]);
        if (last > first)
            text_add(&text, "-%d", ranks[last]);
    }
    return text;
}

// The bytes of the UTF-8 character at `at` (RFC 3629), and its number; 0: there is none.
static size_t read_character(const unsigned char *at, unsigned *number)
{
    static const unsigned smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = *at < 0x80 ? 1 : *at < 0xc0 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
    *number = length == 1 ? *at : *at & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) // the text's end, too
            return 0;
        *number = *number << 6 | (at[i] & 0x3fu);
    }
    bool exists = *number >= smallest[length] && *number <= 0x10ffff && *at < 0xf8 &&
                  (*number < 0xd800 || *number > 0xdfff);
    return exists ? length : 0;
}

bool text_is_utf8(const char *text)
{
    size_t length = 1;
    for (unsigned number; *text && length > 0; text += length)
        length = read_character((const unsigned char *)text, &number);
    return length > 0;
}

static bool is_shown(unsigned character)
{
    static const unsigned hidden[][2] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},
                                         {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
                                         {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (character >= hidden[i][0] && character <= hidden[i][1])
            return character == '\n';
    return true;
}

char *text_clean(char *text)
{
    unsigned char *from = (unsigned char *)text, *to = from;
    while (from && *from) {
        unsigned character;
        size_t length = read_character(from, &character);
        if (length > 0 && is_shown(character)) {
            memmove(to, from, length);
            to += length;
        } else {
            *to++ = *from == '\t' ? ' ' : '?';
        }
        from += length > 0 ? length : 1;
    }
    if (to)
        *to = '\0';
    return text;
}

char *numbers_text(const int *numbers, int count)
{
    char *text = allocate((size_t)count + 1, sizeof "-2147483648,"), *end = text;
    for (int i = 0; i < count; i++)
        end += sprintf(end, "%s%d", i ? "," : "", numbers[i]);
    return text;
}
