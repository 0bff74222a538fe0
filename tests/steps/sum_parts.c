// What a wrong sum is made of. What each rank brought is known (sweep_value), so a wrong sum can
// often be told in words: that of ranks 0 and 1, say. sum_parts.h says what is promised.

#include "sum_parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

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

bool is_average(const SumCall *call, const SumParts *parts, int rank)
{
    (void)rank;
    return parts->divisor == call->run->ranks;
}

static bool has_times(const SumCall *call, const SumParts *parts, int rank, int own, int others)
{
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] != (r == rank ? own : others))
            return false;
    return !parts->divisor;
}

bool is_its_own(const SumCall *call, const SumParts *parts, int rank)
{
    return has_times(call, parts, rank, 1, 0);
}

bool lacks_its_own(const SumCall *call, const SumParts *parts, int rank)
{
    return has_times(call, parts, rank, 0, 1);
}

bool doubles_its_own(const SumCall *call, const SumParts *parts, int rank)
{
    return has_times(call, parts, rank, 2, 1);
}

bool lacks_some(const SumCall *call, const SumParts *parts, int rank)
{
    (void)rank;
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] > 1)
            return false;
    return !parts->divisor;
}

bool has_some_again(const SumCall *call, const SumParts *parts, int rank)
{
    (void)rank;
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] < 1)
            return false;
    return !parts->divisor; // not once each: that is the sum
}

// All samples of a rank's call are of that kind.
static bool samples_are(const SumCall *call, int rank, SumKind kind)
{
    for (const char *at = call->samples[rank]; *at;) {
        char *end;
        size_t place = strtoul(at, &end, 10);
        double value = strtod(end + (*end == ':'), &end);
        SumParts parts;
        if (end == at || !find_parts(call, place, value, &parts) || !kind(call, &parts, rank))
            return false;
        at = end + (*end == ' ');
    }
    return true;
}

bool wrong_sums_are(const SumCalls *calls, SumKind kind)
{
    EACH_CALL (call, calls)
        for (int r = 0; r < call->run->ranks; r++)
            if (call->wrong[r] > 0 && !samples_are(call, r, kind))
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
