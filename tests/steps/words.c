// How one speaks of ranks.

#include "words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

RankSet all_ranks(int ranks)
{
    return (RankSet)((1u << ranks) - 1);
}

bool has_rank(RankSet ranks, int rank)
{
    return ranks >> rank & 1;
}

int rank_count(RankSet ranks)
{
    return __builtin_popcount(ranks);
}

// True where the set is one stretch of at least three ranks.
static bool is_stretch(RankSet ranks)
{
    RankSet from_zero = ranks / (ranks & -ranks);
    return rank_count(ranks) >= 3 && (from_zero & (from_zero + 1)) == 0;
}

RankNames names_of(const char *word, RankSet ranks)
{
    RankNames names;
    snprintf(names.text, sizeof names.text, "no %s", word);
    if (ranks == 0)
        return names;
    int first = __builtin_ctz(ranks), last = MAX_RANKS - 1;
    while (!has_rank(ranks, last))
        last--;
    if (is_stretch(ranks)) {
        snprintf(names.text, sizeof names.text, "%ss %d-%d", word, first, last);
        return names;
    }
    int length =
        snprintf(names.text, sizeof names.text, "%s%s %d", word, first < last ? "s" : "", first);
    for (int r = first + 1; r <= last; r++)
        if (has_rank(ranks, r))
            length += snprintf(names.text + length, sizeof names.text - (size_t)length, "%s %d",
                               r == last ? " and" : ",", r);
    return names;
}

RankNames rank_names(RankSet ranks)
{
    return names_of("rank", ranks);
}

const char *verb_s(RankSet ranks)
{
    return rank_count(ranks) == 1 ? "s" : "";
}

int list_length(const char *list)
{
    int count = *list != '\0';
    for (; *list; list++)
        count += *list == ',';
    return count;
}

// The plural with which a text begins: its length; 0: with none of these.
static size_t plural_length(const char *text)
{
    static const char *const plurals[] = {"batches",   "blocks",   "different ones", "epochs",
                                          "gradients", "images",   "messages",       "parts",
                                          "pushes",    "requests", "steps",          "times",
                                          "updates",   "values",   "weights"};
    for (size_t i = 0; i < sizeof plurals / sizeof *plurals; i++) {
        size_t length = strlen(plurals[i]);
        if (strncmp(text, plurals[i], length) == 0 && !isalpha((unsigned char)text[length]))
            return length;
    }
    return 0;
}

void say_one(char *text)
{
    const char *line = text;
    for (char *at = text; *at; at++) {
        line = *at == '\n' ? at + 1 : line;
        bool begins = at == text || strchr(" (\n", at[-1]);
        begins = begins && (at < text + 2 || at[-2] != '-'); // not of "N - 1 times"
        size_t length = begins && at[0] == '1' && at[1] == ' ' ? plural_length(at + 2) : 0;
        const char *said = strstr(line, " said: ");
        if (length == 0 || (said && said < at))
            continue;
        char *after = at + 2 + length;
        int ending = strncmp(after - 3, "hes", 3) == 0 ? 2 : 1; // batches, pushes
        memmove(after - ending, after, strlen(after) + 1);
    }
}
