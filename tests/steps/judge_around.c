// around: one sum goes around a ring, and the whole sum once more, so that no rank sends the values
// more than twice.

#include "sums.h"
#include "diagnoses/judge_around.h"

#define AROUND "every rank sends to its neighbours in the ring only"
#define AMOUNT "no rank sends more than twice the data"

static const Diagnosis *wrong_amount(const SumCall *call)
{
    double values = bytes_of_values(call), all = 0;
    const Diagnosis *diagnosis = NULL;
    for (int r = 0; r < call->run->ranks; r++) {
        double sent = bytes_sent_by(call, r);
        if (sent > 2 * values + SLACK)
            diagnosis = &d_too_much_sent;
        all += sent;
    }
    return all < 2 * (call->run->ranks - 1) * values ? &d_not_by_messages : diagnosis;
}

static const CallRule way = {AROUND, not_around, ways_of_call};
static const CallRule amount = {AMOUNT, wrong_amount, amounts_of_call};

static void judge(const Runs *runs, Report *report)
{
    judge_messages(runs, &way, &amount, report);
}

JUDGE("around", judge)
ENDS("around", &ends_of_sums)
