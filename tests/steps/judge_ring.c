// ring: the values go around a ring, in chunks that are added up on their way, and the sums around
// it once more. So no rank sends much more than any all-reduce has to: 2 (N - 1) / N of the data.

#include "sums.h"

#define AROUND "every rank sends to its neighbours in the ring only"
#define AMOUNT "no rank sends more than 2 (N - 1) / N of the data"

static const Diagnosis through_one = {"not-a-ring",
                                      "all values pass through one rank, and what that one moves "
                                      "grows with the number of ranks. In a "
                                      "ring each rank sends to the next one only.",
                                      NULL};
static const Diagnosis not_a_ring = {
    "not-a-ring",
    "ranks send to others than the next one. That may be a good all-reduce, but it is no ring.",
    NULL};
static const Diagnosis from_any = {
    "received-from-any",
    "rank 0 receives from any rank, MPI_ANY_SOURCE, and all others name the rank that they receive "
    "from. Often this is (rank - 1) % size: in C it is -1 on rank 0, and -1 happens to be "
    "MPI_ANY_SOURCE in Open MPI. (rank + size - 1) % size is the left neighbour on every rank.",
    NULL};
static const Diagnosis not_messages = {
    "not-by-messages",
    "the sums are right, but less was sent by MPI_Sendrecv, MPI_Send and their kind than any "
    "all-reduce needs: the values must have come on another way.",
    NULL};
static const Diagnosis too_much = {
    "too-much-sent",
    "more travels than has to. A chunk is an N-th of the values, and a rank sends one chunk at "
    "each of the 2 (N - 1) hops: N - 1 times one that is not added up yet, N - 1 times sums.",
    NULL};

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
        return &from_any;
    if (goes_around(call) || goes_around_otherwise(call))
        return NULL;
    bool fewer_than_ranks = bytes_of_values(call) < (double)sizeof(float) * call->run->ranks;
    for (int r = 0; r < call->run->ranks; r++)
        if (!fewer_than_ranks && !passes_by(call, r)) // few values may all be of one part
            return &through_one;
    return &not_a_ring;
}

// A chunk may be longer than an N-th, by a value in each message.
static const Diagnosis *wrong_amount(const SumCall *call)
{
    double ranks = call->run->ranks, values = bytes_of_values(call), all = 0;
    const Diagnosis *diagnosis = NULL;
    for (int r = 0; r < call->run->ranks; r++) {
        double sent = bytes_sent_by(call, r);
        double most = 2 * (ranks - 1) / ranks * values + (double)sizeof(float) * call->messages[r];
        if (sent > most)
            diagnosis = &too_much;
        all += sent;
    }
    return all < 2 * (ranks - 1) * values ? &not_messages : diagnosis;
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

JUDGE("ring", judge_ring)
ENDS("ring", &ends_of_sums)
