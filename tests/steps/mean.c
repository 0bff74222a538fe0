// Whether every rank applies the mean of all ranks' gradients: which of the known formulas tells
// what they apply (applied.c has read it), and the mistake that it stands for.

#include "applied.h"
#include "drawn.h"
#include "mean.h"
#include "waiting.h"
#include "diagnoses/mean.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"

// ---- What a rank may have applied, given what all computed.

static double mean(const Run *run, const double own[], int rank, int number)
{
    (void)rank;
    (void)number;
    return sum_over_ranks(run, own) / run->ranks;
}

static double total(const Run *run, const double own[], int rank, int number)
{
    (void)rank;
    (void)number;
    return sum_over_ranks(run, own);
}

static double mean_of_mean(const Run *run, const double own[], int rank, int number)
{
    return mean(run, own, rank, number) / run->ranks;
}

static double its_own(const Run *run, const double own[], int rank, int number)
{
    (void)run;
    (void)number;
    return own[rank];
}

static double its_own_divided(const Run *run, const double own[], int rank, int number)
{
    (void)number;
    return own[rank] / run->ranks;
}

static double of_one_rank(const Run *run, const double own[], int rank, int number)
{
    (void)rank;
    return own[number < run->ranks ? number : 0];
}

static double total_over_number(const Run *run, const double own[], int rank, int number)
{
    (void)rank;
    return sum_over_ranks(run, own) / number;
}

static double total_over_local_size(const Run *run, const double own[], int rank, int number)
{
    (void)number;
    return sum_over_ranks(run, own) / run_local_size(run, rank);
}

static double mean_of_machine(const Run *run, const double own[], int rank, int number)
{
    (void)number;
    double result = 0;
    for (int r = 0; r < run->ranks; r++)
        result += run_node(run, r) == run_node(run, rank) ? own[r] : 0;
    return result / run_local_size(run, rank);
}

static double nothing(const Run *run, const double own[], int rank, int number)
{
    (void)run;
    (void)own;
    (void)rank;
    (void)number;
    return 0;
}

static double mean_on_the_root(const Run *run, const double own[], int rank, int number)
{
    return rank == 0 ? mean(run, own, rank, number) : own[rank];
}

static double twice_the_mean(const Run *run, const double own[], int rank, int number)
{
    return 2 * mean(run, own, rank, number);
}

// True where each rank applied the mean of those that applied the same: some ranks, and neither all
// nor each its own.
static bool averaged_in_groups(const Run *run, const AppliedUpdate *update)
{
    if (explains_applied(run, update, mean, 0) || explains_applied(run, update, its_own, 0))
        return false;
    double allowed = update->tolerance * largest_of_ranks(run, update->own);
    for (int rank = 0; rank < run->ranks; rank++) {
        RankSet group = applied_the_same(run, update, rank);
        double of_group = 0;
        for (int r = 0; r < run->ranks; r++)
            of_group += has_rank(group, r) ? update->own[r] : 0;
        if (!(fabs(update->applied[rank] - of_group / rank_count(group)) <= allowed))
            return false;
    }
    return true;
}

typedef struct {
    AppliedUpdates *items;
    int count;
} AllUpdates;

static bool explains(const AllUpdates *all, AppliedFormula formula, int number)
{
    for (int i = 0; i < all->count; i++)
        if (first_not_applied(&all->items[i], formula, number) >= 0)
            return false;
    return true;
}

static bool some_number_explains(const AllUpdates *all, AppliedFormula formula, int from, int to)
{
    for (int number = from; number <= to; number++)
        if (explains(all, formula, number))
            return true;
    return false;
}

// Two ranks are one group, or none.
static bool always_in_groups(const AllUpdates *all)
{
    for (int i = 0; i < all->count; i++) {
        const AppliedUpdates *updates = &all->items[i];
        for (int u = 0; u < finite_updates(updates); u++)
            if (updates->run->ranks > 2 && !averaged_in_groups(updates->run, &updates->items[u]))
                return false;
    }
    return true;
}

// True where each update is the mean or, on all ranks, the rank's own: some are this, some that,
// where neither explains all.
static bool always_mean_or_own(const AllUpdates *all)
{
    for (int i = 0; i < all->count; i++) {
        const AppliedUpdates *updates = &all->items[i];
        for (int u = 0; u < finite_updates(updates); u++)
            if (!explains_applied(updates->run, &updates->items[u], mean, 0) &&
                !explains_applied(updates->run, &updates->items[u], its_own, 0))
                return false;
    }
    return true;
}

// True where something of the size of a gradient is exchanged between these events.
static bool exchanged_between(const Events *events, int from, int to)
{
    const double words = 64; // bytes
    for (int i = from; i < to; i++)
        if (strcmp(event_text(events->items[i], "event"), "collective_begin") == 0 &&
            event_number(events->items[i], "bytes") > words)
            return true;
    return false;
}

// True where every rank exchanges something after it has applied its first gradient, and nothing
// between computing and applying it.
static bool exchanged_too_late(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        int gradient = event_find(events, "gradient", 0);
        int apply = gradient < 0 ? -1 : event_find(events, "apply", gradient);
        int step = apply < 0 ? -1 : event_find(events, "step", apply);
        if (step < 0 || exchanged_between(events, gradient, apply) ||
            !exchanged_between(events, apply, step))
            return false;
    }
    return true;
}

// Each rank's own are equal: then the mean can't be told from them, or from one rank's.
static bool own_are_equal(const AppliedUpdates *updates)
{
    const Run *run = updates->run;
    const AppliedUpdate *first = &updates->items[0];
    for (int r = 1; r < run->ranks; r++)
        if (!(fabs(first->own[r] - first->own[0]) <= TOLERANCE * largest_of_ranks(run, first->own)))
            return false;
    return true;
}

// ---- Diagnoses.

static const Diagnosis *wrong_own(const AllUpdates *all)
{
    const Run *run = all->items[0].run;
    if (ranks_with(&run->traces, "distributed"))
        return &d_wrapped_but_not_used;
    return exchanged_too_late(run) ? &d_averaged_too_late : &d_gradients_not_averaged;
}

static const Diagnosis *wrong_gradient(const AllUpdates *all)
{
    if (explains(all, its_own, 0))
        return wrong_own(all);
    if (explains(all, total, 0))
        return &d_gradients_summed;
    if (explains(all, mean_of_mean, 0))
        return &d_averaged_twice;
    if (explains(all, its_own_divided, 0))
        return &d_divided_but_not_summed;
    if (some_number_explains(all, of_one_rank, 0, MAX_RANKS - 1))
        return &d_gradients_of_one_rank;
    if (explains(all, mean_of_machine, 0))
        return &d_averaged_within_machine;
    if (all->count > 1 && some_number_explains(all, total_over_number, 2, MAX_RANKS))
        return &d_number_of_workers_fixed;
    if (explains(all, total_over_local_size, 0))
        return &d_divided_by_local_size;
    if (explains(all, nothing, 0))
        return ranks_with(&all->items[0].run->traces, "apply") ? &d_no_update_zero
                                                               : &d_no_update_not_applied;
    if (explains(all, mean_on_the_root, 0))
        return &d_averaged_on_the_root_only;
    if (explains(all, twice_the_mean, 0))
        return &d_twice_the_mean;
    for (int i = 0; i < all->count; i++)
        if (ranks_that_called(all->items[i].run, "hvd_distributed_optimizer_every"))
            return &d_not_in_every_step;
    if (always_mean_or_own(all))
        return &d_averaged_in_some_steps;
    return always_in_groups(all) ? &d_averaged_within_groups : &d_gradients_wrong;
}

// The place where the update stands in the training.
static char *moment(const Run *run, int update)
{
    const cJSON *step = event_nth(&run->traces.of[0], "step", update);
    if (!step)
        return format_text("in update %d, as fingerprints:", update + 1);
    return format_text("in step %.0f of epoch %.0f, as fingerprints:",
                       event_number(step, "step") + 1, event_number(step, "epoch") + 1);
}

// "the same was applied by: ranks 0 and 1; rank 2".
static void add_groups(const Run *run, const AppliedUpdate *update, char **evidence)
{
    RankSet told = 0;
    text_add(evidence, "\nthe same was applied by:");
    for (int r = 0; r < run->ranks; r++) {
        RankSet group = applied_the_same(run, update, r);
        if (!has_rank(told, r))
            text_add(evidence, "%s %s", r ? ";" : "", rank_names(group).text);
        told |= group;
    }
}

static char *evidence_of(const AppliedUpdates *updates, int at)
{
    const Run *run = updates->run;
    const AppliedUpdate *update = &updates->items[at];
    char *evidence = moment(run, at);
    for (int r = 0; r < run->ranks; r++)
        text_add(&evidence, "\nrank %d: computed %9.5f, applied %9.5f", r, update->own[r],
                 update->applied[r]);
    text_add(&evidence, "\nmean:            %9.5f", mean(run, update->own, 0, 0));
    if (averaged_in_groups(run, update))
        add_groups(run, update, &evidence);
    return evidence;
}

static bool compare_with_mean(const Runs *runs, const AllUpdates *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        int at = first_not_applied(&all->items[i], mean, 0);
        if (at < 0)
            continue;
        return report_failure(
            report, MEAN_APPLIED, wrong_gradient(all),
            evidence_in(runs, all->items[i].run, evidence_of(&all->items[i], at)));
    }
    return report_ok(report, MEAN_APPLIED);
}

// Whether all draw images of their own is said once: by step 4 where that is graded, too. Where
// they do and compute the same gradient all the same, the mean can't be told from it.
static bool judge_batches(const Runs *runs, const AllUpdates *all, Report *report)
{
    if (report->held)
        return true;
    if (!judge_drawn_images(runs, OWN_BATCHES, report))
        return false;
    for (int i = 0; i < all->count; i++)
        if (own_are_equal(&all->items[i])) {
            report_failure(report, MEAN_APPLIED, &d_gradients_equal,
                           evidence_in(runs, all->items[i].run, evidence_of(&all->items[i], 0)));
            return false;
        }
    return true;
}

void judge_mean(const Runs *runs, Report *report)
{
    AllUpdates all = {allocate((size_t)runs->count, sizeof *all.items), 0};
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (run->ranks > 1) // one rank's mean is its own
            all.items[all.count++] = applied_updates(run);
    if (judge_batches(runs, &all, report))
        compare_with_mean(runs, &all, report);
    for (int i = 0; i < all.count; i++)
        free(all.items[i].items);
    free(all.items);
}

// ---- A worker alone.

// A collective call of one rank sends nothing, whatever it is given.
static const cJSON *anything_sent(const Events *events)
{
    for (int i = 0; i < events->count; i++)
        if (event_is(events->items[i], "message_begin") &&
            event_number(events->items[i], "bytes") > 0)
            return events->items[i];
    return NULL;
}

bool judge_silence(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        const cJSON *sent = run->ranks == 1 ? anything_sent(&run->traces.of[0]) : NULL;
        if (!sent)
            continue;
        return report_failure_in(report, runs, run, SILENT, &d_sends_alone,
                                 "it calls %s with %.0f bytes", event_text(sent, "function"),
                                 event_number(sent, "bytes"));
    }
    return report_ok(report, SILENT);
}
