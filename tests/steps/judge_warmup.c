// Warm-up: the learning rate and the momentum of every update. They are read by warmup.c; rates are
// judged in warmup_rates.c, momentum in warmup_momentum.c. Here it is what trainings that end early
// show.

#include "end.h"

#include <stdint.h>
#include "mean.h"
#include "warmup.h"
#include "diagnoses/judge_warmup.h"

#include "base/format.h"

// Where a training is over before the warm-up is, nothing can be said of what follows.
static bool enough_epochs(const Runs *runs, const WarmupRuns *all, Report *report)
{
    for (const WarmupRun *t = all->items; t < all->items + all->count; t++)
        for (int r = 0; r < t->run->ranks; r++) {
            int count = t->of[r].count, trained = count ? t->of[r].items[count - 1].epoch + 1 : 0;
            double asked = run_flag(t->run, "--epochs ");
            if (trained < asked)
                return report_failure_in(report, runs, t->run, SCALED, &d_epochs_missing,
                                         "rank %d trained %d epochs of %g", r, trained, asked);
        }
    return true;
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, SCALED, report))
        return;
    WarmupRuns all = warmup_runs(runs);
    judge_mean(runs, report);
    if (enough_epochs(runs, &all, report)) {
        judge_warmup_rates(&all, &rates_after_warmup, report);
        if (!only_the_goal_is_wrong(&all) && judge_warmup_rates(&all, &rates_in_warmup, report)) {
            judge_momentum_within(&all, report);
            judge_momentum_beyond(runs, &all, report);
        }
    }
    warmup_runs_free(&all);
}

// ---- Ranks that disagree in the rate are ended by the library.

// The update that the ranks could not agree on becomes the last one. False where they did.
static bool add_disagreed_update(WarmupRun *t)
{
    double disagreed[MAX_RANKS];
    if (!rates_disagree(t->run, disagreed))
        return false;
    for (int r = 0; r < t->run->ranks; r++) {
        Rates *rates = &t->of[r];
        RateOfUpdate next = {.learning_rate = disagreed[r]};
        Row last = rates->count ? warmup_row(t, r, rates->count - 1) : (Row){0};
        long before = rates->count ? (long)batch_number(&last) : -1;
        next.epoch = (int)((before + 1) / (long)t->steps);
        next.step = (int)((before + 1) % (long)t->steps);
        rates->items[rates->count++] = next; // rates_read leaves room for one
    }
    return true;
}

static void name_disagreement(const WarmupRun *t, Report *report)
{
    const Diagnosis *diagnosis = wrong_last_rates(t);
    if (diagnosis)
        report_failure(
            report, SCALED, diagnosis,
            evidence_of_run(t->run, format_text("the ranks have different rates; that "
                                                "of one device is %g\nthe library "
                                                "said: %s",
                                                t->lr, event_text(disagreement(t->run), "text"))));
}

// What is wrong by then may be why: a momentum above 1, say.
static void crashed(const Run *run, Report *report)
{
    Runs one = {.items = (Run *)(uintptr_t)run, .count = 1};
    WarmupRuns all = warmup_runs(&one);
    const WarmupRun *t = &all.items[0];
    Row row;
    double right;
    if (add_disagreed_update(&all.items[0])) {
        name_disagreement(t, report);
    } else if (report_passed(report) && event_count(&run->traces.of[0], "step") > 0) {
        if (first_wrong_rate(t, &rates_after_warmup, &row, &right))
            judge_warmup_rates(&all, &rates_after_warmup, report);
        bool only_goal = only_the_goal_is_wrong(&all);
        if (!only_goal && first_wrong_rate(t, &rates_in_warmup, &row, &right))
            judge_warmup_rates(&all, &rates_in_warmup, report);
        else if (!only_goal && is_momentum_wrong(t))
            judge_momentum_within(&all, report);
    }
    warmup_runs_free(&all);
}

JUDGE("warmup", judge)
OWN_ENDS("warmup", .crashed = crashed, .rates_differ = &d_rates_differ)
