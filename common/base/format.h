// Text that is put together: the caller frees it.

#ifndef HVDLAB_FORMAT_H
#define HVDLAB_FORMAT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

// A formatted string that the caller frees.
char *format_text(const char *format, ...) PRINTF_LIKE(1, 2);
char *format_arguments(const char *format, va_list arguments) PRINTF_LIKE(1, 0);

// Appends to *text, which is NULL at first and which the caller frees.
void text_add(char **text, const char *format, ...) PRINTF_LIKE(2, 3);

// A copy of the text at *at, up to its end or to the first of the characters `between`, behind which
// *at is moved; the caller frees it. NULL at the text's end.
char *next_part(const char **at, const char *between);

// "rank 2", "ranks 0, 2-4 and 7": `count` ranks in ascending order, at least one. The caller frees
// it.
char *ranks_text(const int *ranks, int count);

// The same for the ranks below `count` for which is_in(set, rank): writes it as snprintf does, and
// returns how long it is. Allocates nothing.
typedef bool (*RankIsIn)(const void *set, int rank);
size_t ranks_write(char *text, size_t room, RankIsIn is_in, const void *set, int count);

// Replaces by '?' what a terminal or a page would not show as text: control characters except line
// breaks (a tab becomes a space), marks that change the direction of a line, and bytes that are not
// UTF-8. Returns `text`, which may be NULL.
char *text_clean(char *text);

// Whether all of it is UTF-8.
bool text_is_utf8(const char *text);

// "3,9": any numbers. The caller frees it.
char *numbers_text(const int *numbers, int count);

#endif
