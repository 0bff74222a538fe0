// What is known of ends of runs in the six steps: the library's lines that name a mistake of
// theirs, and why ranks wait for each other in their training.

#include "six_steps.h"

#include <math.h>
#include "whereabouts.h"

static const Explanation explanations[] = {
    {"a batch of 0 images cannot be trained on",
     {"batch-size-changed",
      "--batch-size divided by a number of workers that is larger gives a batch of 0 images. A "
      "worker's batch stays as it is; the workers share the number of batches.",
      "5"}},
    {"call hvd_init() first",
     {"init-missing",
      "hvd_init() is missing, or comes only after another hvd call. It is the first "
      "thing that main does.",
      "1"}},
    {"already works on device",
     {"pinned-too-late",
      "device_use() comes after something has already used a device (compile() "
      "does). Choose the device right after hvd_init().",
      "1"}},
    {"all must name the same root",
     {"broadcast-root-differs",
      "a broadcast has one root, the same on all ranks: the rank whose weights all others get. "
      "With hvd_rank() every rank names itself.",
      "4"}},
    {"to be the root",
     {"broadcast-root-missing",
      "the root of the broadcast is a rank that the job does not have. Ranks count from 0; the "
      "root of this lab is rank 0.",
      "4"}},
    {"has no weights before compile",
     {"broadcast-too-early",
      "the weights are drawn by compile(); before it there is nothing to "
      "broadcast. The callback does it when training begins.",
      "4"}},
    {"but an epoch needs at least 1",
     {"steps-zero",
      "the number of steps is 0, or less: mostly a division of whole numbers that comes to 0, "
      "such as 1 / size, or 3 / size with more than 3 workers, or a division made twice. Multiply "
      "first, and divide once.",
      "5"}},
    {0},
};

// True where each rank asked for the epoch's batches divided by the number of its machine's ranks.
static bool steps_by_local_size(const Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++) {
        const cJSON *fit = event_nth(&traces->of[r], "fit", 0),
                    *start = event_nth(&traces->of[r], "start", 0);
        double exact = event_number(fit, "train_len") / event_number(start, "local_size");
        if (!(fabs(event_number(fit, "steps") - exact) < 1))
            return false;
    }
    return true;
}

static Diagnosis mistake_in_training(const Traces *traces)
{
    RankSet in_metrics = ranks_waiting_for(traces, "metrics");
    if (some_but_not_all(traces, "distributed"))
        return (Diagnosis){"hung",
                           "only some of the ranks wrapped their optimizer. The all-reduce of the "
                           "gradients needs all of them: wrap it on every rank, outside of any if.",
                           "3"};
    if (some_but_not_all(traces, "broadcast") ||
        (ranks_waiting_for(traces, "variables") &&
         ranks_with(traces, "broadcast") != all_ranks(traces->ranks)))
        return (Diagnosis){
            "hung",
            "only some of the ranks broadcast. A broadcast is a collective call: the "
            "root sends and the others receive, by the same call, so every rank must "
            "make it, outside of any if.",
            "4"};
    if (plans_differ(traces, "steps") && steps_by_local_size(traces))
        return (Diagnosis){
            "hung",
            "the ranks asked fit() for different numbers of steps: the batches divided by "
            "hvd_local_size(), the workers of one machine, and machines may have different numbers "
            "of them. All workers of the job share the steps: hvd_size().",
            "5"};
    if (plans_differ(traces, "steps"))
        return (Diagnosis){"hung",
                           "the ranks asked fit() for different numbers of steps. Each step is an "
                           "all-reduce of the gradients, so all must make equally many.",
                           "5"};
    if (plans_differ(traces, "epochs"))
        return (Diagnosis){"hung",
                           "the ranks asked fit() for different numbers of epochs. Each step is an "
                           "all-reduce of the gradients, so all must make equally many.",
                           NULL};
    if (in_metrics && in_metrics != all_ranks(traces->ranks))
        return (Diagnosis){
            "hung",
            "only some of the ranks average the metrics at the end of an epoch. The "
            "average is a collective call: every rank must add the callback, outside "
            "of any if.",
            "6"};
    if (some_but_not_all(traces, "fit_end"))
        return (Diagnosis){
            "hung",
            "the training of some ranks ended while the others went on, who now wait "
            "for them. Every rank must have the stop rule, and it must see "
            "the same figures on all of them: that is what step 6 is for.",
            "6"};
    return (Diagnosis){0};
}

// Where a rank is busy, or waits for a message, the steps say no more than what any program gets.
static Diagnosis mistake(const Traces *traces)
{
    if (some_but_not_all(traces, "init"))
        return (Diagnosis){
            "hung",
            "hvd_init() must be called by every rank; the ranks that did wait for the others.",
            "1"};
    if (busy_ranks(traces) || ranks_waiting_for_messages(traces))
        return (Diagnosis){0};
    if (ranks_with(traces, "end") && some_but_not_all(traces, "fit"))
        return (Diagnosis){"hung",
                           "main returns on some ranks before they train. All ranks train; only "
                           "printing is left to the root.",
                           "2"};
    return mistake_in_training(traces);
}

const Ends six_steps = {.explanations = explanations, .mistake = mistake, .training = "2"};
