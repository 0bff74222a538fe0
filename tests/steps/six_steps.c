// What is known of ends of runs in the six steps: the library's lines that name a mistake of
// theirs, and why ranks wait for each other in their training.

#include "six_steps.h"

#include <math.h>
#include "whereabouts.h"
#include "diagnoses/six_steps.h"

static const Explanation explanations[] = {
    {"a batch of 0 images cannot be trained on", &d_batch_size_changed},
    {"model_read_gradients: there are no gradients", &d_no_gradients_to_read},
    {"call hvd_init() first", &d_init_missing},
    {"already works on device", &d_pinned_too_late},
    {"to be the root", &d_broadcast_root_missing},
    {"has no weights before compile", &d_broadcast_too_early},
    {"but an epoch needs at least 1", &d_steps_zero},
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

static const Diagnosis *mistake_in_training(const Traces *traces)
{
    RankSet in_metrics = ranks_waiting_for(traces, "metrics");
    if (some_but_not_all(traces, "distributed"))
        return &d_hung_some_wrap;
    if (some_but_not_all(traces, "broadcast") ||
        (ranks_waiting_for(traces, "variables") &&
         ranks_with(traces, "broadcast") != all_ranks(traces->ranks)))
        return &d_hung_some_broadcast;
    if (plans_differ(traces, "steps") && steps_by_local_size(traces))
        return &d_hung_steps_by_local_size;
    if (plans_differ(traces, "steps"))
        return &d_hung_steps;
    if (plans_differ(traces, "epochs"))
        return &d_hung_epochs;
    if (in_metrics && in_metrics != all_ranks(traces->ranks))
        return &d_hung_some_average;
    if (some_but_not_all(traces, "fit_end"))
        return &d_hung_some_go_on;
    return NULL;
}

// Where a rank is busy, or waits for a message, the steps say no more than what any program gets.
static const Diagnosis *mistake(const Traces *traces)
{
    if (some_but_not_all(traces, "init"))
        return &d_hung_some_init;
    if (busy_ranks(traces) || ranks_waiting_for_messages(traces))
        return NULL;
    if (ranks_with(traces, "end") && some_but_not_all(traces, "fit"))
        return &d_hung_some_train;
    return mistake_in_training(traces);
}

// Training began without hvd_init().
static Fault ended(const Run *run)
{
    return ranks_with(&run->traces, "fit") && !ranks_with(&run->traces, "init")
               ? fault_with(&d_init_missing, "no rank called hvd_init()")
               : NO_FAULT;
}

const Ends six_steps = {.explanations = explanations,
                        .disagreed = {"name root", &d_broadcast_root_differs},
                        .mistake = mistake,
                        .ended = ended,
                        .training = "2"};
