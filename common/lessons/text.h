// Sentences as numbers of words, for models that begin with input_tokens(). They are generated:
// only the word frequencies are those of a language (Zipf's law: the word of rank k is about as
// frequent as 1 / k), so that a batch names few of many words, the same ones again and again.

#ifndef HVDLAB_TEXT_H
#define HVDLAB_TEXT_H

#include "data/batches.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct {
    float *tokens; // count x length numbers of words, 0 ... vocabulary - 1, the frequent ones
                   // first; behind a sentence's last word NO_TOKEN; owned
    int *labels;   // count class numbers, 0 ... classes - 1, owned
    int count, length, vocabulary, classes;
} TextDataset;

// 12,000 (TRAIN) or 2,000 (TEST) sentences of 0 to `length` words, in ten classes: every other word
// is one of its class, as a rule, the others are anybody's. As with images, --images cuts their
// number, and without --seed they are the same in every run; with it a function of the seed alone.
// Freed with text_free.
TextDataset load_text(const Args *args, Split split, int length, int vocabulary);
TextDataset synthetic_text(Split split, uint64_t seed, int sentences, int length, int vocabulary);
void text_free(TextDataset *text);

// Batch `number`, from 0, of `batch_size` sentences each, in the order in which they lie; the last
// one may be short. Valid as long as the text is. One that is not there makes the program exit with
// an error message.
Batch text_batch(const TextDataset *text, int number, int batch_size);

#pragma GCC visibility pop

#endif
