// What a wrong sum is made of. What each rank brought is known (sweep_value), so a wrong sum can
// often be told in words: that of ranks 0 and 1, say. sum_parts.h says what is promised.

#include "sum_parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lessons/sweep.h"
#include "base/format.h"

enum {
    MAX_TIMES = 3,  // that a rank's values are looked for in a sum
    MANY_RANKS = 7, // from which on it is once, or one rank twice: there are 4^N combinations
};

// The next combination of `times`, none above `most`; false after the last.
static bool next_parts(SumParts *parts, int ranks, int most)
{
    for (int r = 0; r < ranks; r++) {
        if (parts->times[r]++ < most)
            return true;
        parts->times[r] = 0;
    }
    return false;
}

static bool explains(const SumCall *call, const SumParts *parts, size_t place, double value)
{
    double sum = 0, magnitudes = 0;
    for (int r = 0; r < call->run->ranks; r++) {
        double part = parts->times[r] * (double)sweep_value(call->trial, r, place);
        if (parts->divisor == HOST_MEANS)
            part /= run_local_size(call->run, r);
        sum += part;
        magnitudes += fabs(part);
    }
    if (parts->divisor > 0)
        value *= parts->divisor;
    return fabs(value - sum) <= call->run->ranks * (double)FLT_EPSILON * magnitudes;
}

// The whole sum, with one rank's values once more.
static bool one_twice(const SumCall *call, size_t place, double value, SumParts *parts)
{
    *parts = (SumParts){0};
    for (int twice = 0; twice < call->run->ranks; twice++) {
        for (int r = 0; r < call->run->ranks; r++)
            parts->times[r] = 1 + (r == twice);
        if (explains(call, parts, place, value))
            return true;
    }
    return false;
}

// The whole sum, divided by the number of ranks, or by fewer; or of the hosts' means.
static bool divided(const SumCall *call, size_t place, double value, SumParts *parts)
{
    *parts = (SumParts){0};
    for (int r = 0; r < call->run->ranks; r++)
        parts->times[r] = 1;
    for (parts->divisor = call->run->ranks; parts->divisor > 1; parts->divisor--)
        if (explains(call, parts, place, value))
            return true;
    parts->divisor = HOST_MEANS;
    return explains(call, parts, place, value);
}

bool find_parts(const SumCall *call, size_t place, double value, SumParts *parts)
{
    if (divided(call, place, value, parts))
        return true;
    if (one_twice(call, place, value, parts))
        return true;
    // Some rank's values once, or not at all, before less likely sums that may come near by chance.
    for (int most = 1; most <= (call->run->ranks < MANY_RANKS ? MAX_TIMES : 1); most += 2) {
        *parts = (SumParts){0};
        do
            if (explains(call, parts, place, value))
                return true;
        while (next_parts(parts, call->run->ranks, most));
    }
    return false;
}

char *parts_words(const SumParts *parts, int ranks)
{
    RankSet present = 0;
    for (int r = 0; r < ranks; r++)
        present |= parts->times[r] ? 1u << r : 0;
    if (parts->divisor == HOST_MEANS)
        return format_text("the sum of the hosts' averages");
    if (parts->divisor)
        return parts->divisor == ranks ? format_text("the average")
                                       : format_text("the sum divided by %d", parts->divisor);
    if (!present)
        return format_text("nobody's");
    char *words =
        format_text("%s %s", rank_count(present) == 1 ? "what is brought by" : "the sum of",
                    rank_names(present).text);
    for (int r = 0; r < ranks; r++)
        if (parts->times[r] > 1)
            text_add(&words, ", with rank %d %s", r,
                     parts->times[r] == 2 ? "twice" : "three times");
    return words;
}

// ---- Kinds of wrong sums.

// Whether the values of a rank are so often in a sum on rank `in`.
static bool are_times(char kind, int times, const Run *run, int of, int in)
{
    switch (kind) {
    case '?':
        return times <= 1;
    case '+':
        return times >= 1;
    case 's':
        return times == run_local_size(run, of);
    case 'o':
        return times == run_local_size(run, in);
    default:
        return times == kind - '0';
    }
}

static bool is_of_kind(const SumCall *call, const SumParts *parts, int rank, const char *kind)
{
    const Run *run = call->run;
    if (strcmp(kind, "/ranks") == 0)
        return parts->divisor == run->ranks;
    if (strcmp(kind, "/host") == 0)
        return parts->divisor == HOST_MEANS || parts->divisor == run_local_size(run, rank);
    for (int r = 0; r < run->ranks; r++) {
        const char *pair = r == rank ? kind : same_host(run, r, rank) ? kind + 3 : kind + 6;
        if (!are_times(pair[run_local_rank(run, r) > 0], parts->times[r], run, r, rank))
            return false;
    }
    return !parts->divisor;
}

// All samples of a rank's call are of that kind, or of that one.
static bool samples_are(const SumCall *call, int rank, const char *kind, const char *or_kind)
{
    for (const char *at = call->samples[rank]; *at;) {
        char *end;
        size_t place = strtoul(at, &end, 10);
        double value = strtod(end + (*end == ':'), &end);
        SumParts parts;
        if (end == at || !find_parts(call, place, value, &parts) ||
            !(is_of_kind(call, &parts, rank, kind) || is_of_kind(call, &parts, rank, or_kind)))
            return false;
        at = end + (*end == ' ');
    }
    return true;
}

bool wrong_sums_are(const SumCalls *calls, const char *kind, const char *or_kind)
{
    EACH_CALL (call, calls)
        for (int r = 0; r < call->run->ranks; r++)
            if (call->wrong[r] > 0 && !samples_are(call, r, kind, or_kind ? or_kind : kind))
                return false;
    return true;
}

bool some_values_are_right(const SumCalls *calls)
{
    EACH_CALL (call, calls)
        for (int r = 0; r < call->run->ranks; r++)
            if (call->wrong[r] > 0 && call->wrong[r] < call->count)
                return true;
    return false;
}
