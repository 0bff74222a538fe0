// A list of words that grows.

#include "word_list.h"

#include <stdlib.h>
#include <string.h>
#include "base/format.h"
#include "base/memory.h"

void word_list_add(Words *words, const char *const *list)
{
    for (; *list; list++) {
        words->items = enlarge(words->items, (size_t)words->count + 2, sizeof *words->items);
        words->items[words->count++] = format_text("%s", *list);
        words->items[words->count] = NULL;
    }
}

bool word_list_has(const Words *words, const char *word)
{
    for (int i = 0; i < words->count; i++)
        if (strcmp(words->items[i], word) == 0)
            return true;
    return false;
}

void word_list_free(Words *words)
{
    for (int i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
    *words = (Words){0};
}
