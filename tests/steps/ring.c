// ring: the values go around a ring, in chunks that are added up on their way, and the sums around
// it once more. So no rank sends much more than any all-reduce has to: 2 (N - 1) / N of the data.

#include "sums.h"
#include "diagnoses/ring.h"

#define AROUND "every rank sends to its neighbours in the ring only"
#define AMOUNT "no rank sends more than 2 (N - 1) / N of the data"

// The neighbours are those of the ranks' order, in either direction.
static bool goes_around(const SumCall *call)
{
    int ranks = call->run->ranks;
    for (int r = 0; r < ranks; r++) {
        RankSet neighbours = 1u << ((r + 1) % ranks) | 1u << ((r + ranks - 1) % ranks);
        if (receivers_from(call, r) & ~neighbours)
            return false;
    }
    return true;
}

// Or of another order: each rank sends to one at most, and no two to the same.
static bool goes_around_otherwise(const SumCall *call)
{
    RankSet taken = 0;
    for (int r = 0; r < call->run->ranks; r++) {
        RankSet receivers = receivers_from(call, r);
        if (rank_count(receivers) > 1 || receivers & taken)
            return false;
        taken |= receivers;
    }
    return true;
}

// Rank 0 alone receives from any rank, and all others from one that they name.
static bool is_lost_left(const SumCall *call)
{
    return call->from_any == 1 &&
           call->from_named == (all_ranks(call->run->ranks) & ~call->from_any);
}

const Diagnosis *not_around(const SumCall *call)
{
    if (is_lost_left(call))
        return &d_received_from_any;
    if (goes_around(call) || goes_around_otherwise(call))
        return NULL;
    bool fewer_than_ranks = bytes_of_values(call) < (double)sizeof(float) * call->run->ranks;
    for (int r = 0; r < call->run->ranks; r++)
        if (!fewer_than_ranks && !passes_by(call, r)) // few values may all be of one part
            return &d_not_a_ring_through_one;
    return &d_not_a_ring;
}

// A chunk may be longer than an N-th, by a value in each message.
static double two_rounds(const SumCall *call, int rank)
{
    double ranks = call->run->ranks;
    return 2 * (ranks - 1) / ranks * bytes_of_values(call) +
           (double)sizeof(float) * call->messages[rank];
}

static const Diagnosis *wrong_amount(const SumCall *call)
{
    return wrong_bytes_sent(call, two_rounds, &d_too_much_sent);
}

static char *amounts_beside_the_bound(const SumCall *call)
{
    double ranks = call->run->ranks;
    char *evidence = amounts_of_call(call);
    text_add(&evidence, "\n2 (N - 1) / N of the data: %.0f bytes",
             2 * (ranks - 1) / ranks * bytes_of_values(call));
    return evidence;
}

static const CallRule way = {AROUND, not_around, ways_of_call};
static const CallRule amount = {AMOUNT, wrong_amount, amounts_beside_the_bound};

void judge_ring(const Runs *runs, Report *report)
{
    judge_messages(runs, &way, &amount, report);
}
