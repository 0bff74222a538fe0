// Draws sentences.

#include "lessons/text.h"

#include <math.h>
#include <stdlib.h>
#include "base/rng.h"
#include "base/error.h"
#include "base/memory.h"

enum { CLASSES = 10, TRAIN_SENTENCES = 12000, TEST_SENTENCES = 2000, NO_WORD = -1 };

// Without --seed: the same sentences on every rank and in every run.
enum { TEXT_SEED = 19350101 };

// Draws a rank among `count` words, from 0, with a probability of about 1 / (rank + 1).
static int zipf(Rng *rng, int count)
{
    int rank = (int)powf((float)count, rng_uniform(rng)) - 1;
    return rank < count ? rank : count - 1;
}

// One of the words that `label` uses, every tenth, or of all.
static int draw_word(Rng *rng, int label, int vocabulary)
{
    bool topical = rng_below(rng, 2) == 1 && vocabulary > CLASSES;
    return topical ? zipf(rng, vocabulary / CLASSES) * CLASSES + label : zipf(rng, vocabulary);
}

TextDataset synthetic_text(Split split, uint64_t seed, int sentences, int length, int vocabulary)
{
    if (length < 1 || vocabulary < 1)
        die("synthetic_text: sentences of %d words of %d", length, vocabulary);
    int all = split == TRAIN ? TRAIN_SENTENCES : TEST_SENTENCES;
    TextDataset text = {.count = sentences > 0 && sentences < all ? sentences : all,
                        .length = length,
                        .vocabulary = vocabulary,
                        .classes = CLASSES};
    text.tokens = allocate((size_t)text.count * (size_t)length, sizeof *text.tokens);
    text.labels = allocate((size_t)text.count, sizeof *text.labels);
    Rng rng = rng_stream_of(seed, RNG_SYNTHETIC_DATA, (uint64_t)split);
    float *token = text.tokens;
    for (int i = 0; i < text.count; i++) {
        text.labels[i] = (int)rng_below(&rng, CLASSES);
        int words = (int)rng_below(&rng, (uint32_t)length + 1);
        for (int w = 0; w < length; w++)
            *token++ = (float)(w < words ? draw_word(&rng, text.labels[i], vocabulary) : NO_WORD);
    }
    return text;
}

TextDataset load_text(const Args *args, Split split, int length, int vocabulary)
{
    check_load(__func__, args, split);
    uint64_t seed = settings()->seeded ? settings()->seed : TEXT_SEED;
    TextDataset text = synthetic_text(split, seed, args->images, length, vocabulary);
    lives_until_exit(text.tokens);
    lives_until_exit(text.labels);
    return text;
}

void text_free(TextDataset *text)
{
    if (!text)
        return;
    free(text->tokens);
    free(text->labels);
    *text = (TextDataset){0};
}

Batch text_batch(const TextDataset *text, int number, int batch_size)
{
    if (!text || batch_size < 1 || number < 0 || number > (text->count - 1) / batch_size)
        die("text_batch: there is no batch %d of %d sentences among %d", number, batch_size,
            text ? text->count : 0);
    int first = number * batch_size, left = text->count - first;
    return (Batch){.images = text->tokens + (size_t)first * (size_t)text->length,
                   .labels = text->labels + first,
                   .count = left < batch_size ? left : batch_size};
}
