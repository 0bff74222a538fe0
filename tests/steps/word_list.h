// A list of words that grows.

#ifndef HVDLAB_STEPS_WORD_LIST_H
#define HVDLAB_STEPS_WORD_LIST_H

#include <stdbool.h>

typedef struct {
    char **items; // with NULL behind the last one; NULL: there is none yet
    int count;
} Words;

// Adds copies of these.
#define ADD_WORDS(words, ...) word_list_add(words, (const char *const[]){__VA_ARGS__, NULL})
void word_list_add(Words *words, const char *const *list); // which NULL ends

bool word_list_has(const Words *words, const char *word);
void word_list_free(Words *words);

#endif
