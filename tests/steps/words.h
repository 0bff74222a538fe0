// How one speaks of ranks.

#ifndef HVDLAB_STEPS_WORDS_H
#define HVDLAB_STEPS_WORDS_H

#include <stdbool.h>
#include "base/format.h"

#define MAX_RANKS 16 // of a run

// Some of the ranks: bit R stands for rank R.
typedef unsigned RankSet;

// The first `ranks` of them.
RankSet all_ranks(int ranks);

bool has_rank(RankSet ranks, int rank);
int rank_count(RankSet ranks);

// "rank 2", "ranks 0 and 2", "ranks 1-3", "no rank".
typedef struct {
    char text[64];
} RankNames;
RankNames rank_names(RankSet ranks);

// The same with another word in the place of "rank".
RankNames names_of(const char *word, RankSet ranks);

// The ending of a verb after them: "rank 2 waits", "ranks 0 and 2 wait".
const char *verb_s(RankSet ranks);

// How many there are in a list "3,1,20".
int list_length(const char *list);

// In place: "1 batches" becomes "1 batch", except in what a program has printed ("rank 0 said: ...").
void say_one(char *text);

#endif
