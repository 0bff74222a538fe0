// around: one sum goes around a ring, and the whole sum once more, so that no rank sends the values
// more than twice.

#include "sums.h"
#include "diagnoses/judge_around.h"

#define AROUND "every rank sends to its neighbours in the ring only"
#define AMOUNT "no rank sends more than twice the data"

static double twice_the_data(const SumCall *call, int rank)
{
    (void)rank;
    return 2 * bytes_of_values(call) + SLACK;
}

static const Diagnosis *wrong_amount(const SumCall *call)
{
    return wrong_bytes_sent(call, twice_the_data, &d_too_much_sent);
}

static const CallRule way = {AROUND, not_around, ways_of_call};
static const CallRule amount = {AMOUNT, wrong_amount, amounts_of_call};

static void judge(const Runs *runs, Report *report)
{
    judge_messages(runs, &way, &amount, report);
}

JUDGE("around", judge)
ENDS("around", &ends_of_sums)
