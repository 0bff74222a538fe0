// gather: the sums come about on the root, rank 0. Every other rank sends it its values, and gets
// the sums back.

#include "sums.h"
#include "diagnoses/judge_gather.h"

#define BY_ROOT "all values go to rank 0 and the sums come back from it, by messages"
#define AMOUNT  "what the root moves is 2 (N - 1) times the data"

// What is wrong with the way of a call's values, or NULL.
static const Diagnosis *wrong_way(const SumCall *call)
{
    if (!passes_by(call, 0))
        return NULL;
    for (int root = 1; root < call->run->ranks; root++)
        if (!passes_by(call, root))
            return &d_another_root;
    return &d_not_through_the_root;
}

static const Diagnosis *wrong_amount(const SumCall *call)
{
    double moved = bytes_sent_by(call, 0) + bytes_sent_to(call, 0);
    int others = call->run->ranks - 1;
    if (moved < 2 * others * bytes_of_values(call))
        return &d_not_by_messages;
    return moved > 2 * others * (bytes_of_values(call) + SLACK) ? &d_too_much_sent : NULL;
}

static const CallRule way = {BY_ROOT, wrong_way, ways_of_call};
static const CallRule amount = {AMOUNT, wrong_amount, amounts_of_call};

static void judge(const Runs *runs, Report *report)
{
    judge_messages(runs, &way, &amount, report);
}

JUDGE("gather", judge)
ENDS("gather", &ends_of_sums)
