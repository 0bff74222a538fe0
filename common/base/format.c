// Formatted strings and lists of numbers.

#include "base/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"

char *format_arguments(const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        die("out of memory: there is none for a line of text");
    return text;
}

char *format_text(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = format_arguments(format, arguments);
    va_end(arguments);
    return text;
}

void text_add(char **text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *more = format_arguments(format, arguments);
    va_end(arguments);
    size_t before = *text ? strlen(*text) : 0, length = strlen(more);
    *text = enlarge(*text, before + length + 1, 1);
    memcpy(*text + before, more, length + 1);
    free(more);
}

char *next_part(const char **at, const char *between)
{
    if (!**at)
        return NULL;
    size_t length = strcspn(*at, between);
    char *part = format_text("%.*s", (int)length, *at);
    *at += length + ((*at)[length] != '\0');
    return part;
}

static int next_rank(int rank, RankIsIn is_in, const void *set, int count)
{
    while (rank < count && !is_in(set, rank))
        rank++;
    return rank;
}

// The end of the range that begins with `first`; two ranks are no range.
static int range_end(int first, RankIsIn is_in, const void *set, int count)
{
    int end = first + 1;
    while (end < count && is_in(set, end))
        end++;
    return end - first > 2 ? end : first + 1;
}

size_t ranks_write(char *text, size_t room, RankIsIn is_in, const void *set, int count)
{
    int first = next_rank(0, is_in, set, count), end, next;
    bool several = next_rank(first + 1, is_in, set, count) < count;
    size_t length = (size_t)snprintf(text, room, several ? "ranks" : "rank");
    for (const char *separator = " "; first < count; first = next) {
        end = range_end(first, is_in, set, count);
        next = next_rank(end, is_in, set, count);
        size_t at = length < room ? length : room;
        length += (size_t)snprintf(text + at, room - at, end - first > 1 ? "%s%d-%d" : "%s%d",
                                   separator, first, end - 1);
        bool last = next_rank(range_end(next, is_in, set, count), is_in, set, count) >= count;
        separator = last ? " and " : ", ";
    }
    return length;
}

typedef struct {
    const int *ranks;
    int count;
} RankList;

static bool is_listed(const void *set, int rank)
{
    const RankList *list = set;
    for (int i = 0; i < list->count; i++)
        if (list->ranks[i] == rank)
            return true;
    return false;
}

char *ranks_text(const int *ranks, int count)
{
    const RankList list = {ranks, count};
    size_t room = sizeof "ranks" + (size_t)count * sizeof " and 2147483647";
    char *text = allocate(room, 1);
    ranks_write(text, room, is_listed, &list, ranks[count - 1] + 1);
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
