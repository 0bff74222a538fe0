// gather: the sums come about on the root, rank 0. Every other rank sends it its values, and gets
// the sums back.

#include "sums.h"

#define BY_ROOT "all values go to rank 0 and the sums come back from it, by messages"
#define AMOUNT  "what the root moves is 2 (N - 1) times the data"

static const Diagnosis another_root = {
    "another-root", "the values go to another rank. The root of this exercise is rank 0.", NULL};
static const Diagnosis not_by_root = {
    "not-through-the-root",
    "ranks send values to each other past the root. That may be a good all-reduce, but here the "
    "root is to do it all, so that one sees what that costs.",
    NULL};
static const Diagnosis not_messages = {
    "not-by-messages",
    "the sums are right, but less was sent by MPI_Send and its kind than all the values: they must "
    "have come on another way.",
    NULL};
static const Diagnosis too_much = {
    "too-much-sent", "more travels than every rank's values once, and the sums once to every rank.",
    NULL};

// What is wrong with the way of a call's values, or NULL.
static const Diagnosis *wrong_way(const SumCall *call)
{
    if (!passes_by(call, 0))
        return NULL;
    for (int root = 1; root < call->run->ranks; root++)
        if (!passes_by(call, root))
            return &another_root;
    return &not_by_root;
}

static const Diagnosis *wrong_amount(const SumCall *call)
{
    double moved = bytes_sent_by(call, 0) + bytes_sent_to(call, 0);
    int others = call->run->ranks - 1;
    if (moved < 2 * others * bytes_of_values(call))
        return &not_messages;
    return moved > 2 * others * (bytes_of_values(call) + SLACK) ? &too_much : NULL;
}

static const CallRule way = {BY_ROOT, wrong_way, ways_of_call};
static const CallRule amount = {AMOUNT, wrong_amount, amounts_of_call};

static void judge(const Runs *runs, Report *report)
{
    judge_messages(runs, &way, &amount, report);
}

JUDGE("gather", judge)
ENDS("gather", &ends_of_sums)
