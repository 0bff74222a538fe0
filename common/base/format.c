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
        char *longer = first == last
                           ? format_text("%s%s%d", text, separator, ranks[first])
                           : format_text("%s%s%d-%d", text, separator, ranks[first], ranks[last]);
        free(text);
        text = longer;
    }
    return text;
}

char *numbers_text(const int *numbers, int count)
{
    char *text = allocate((size_t)count + 1, sizeof "-2147483648,"), *end = text;
    for (int i = 0; i < count; i++)
        end += sprintf(end, "%s%d", i ? "," : "", numbers[i]);
    return text;
}
