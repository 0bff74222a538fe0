// Whether every rank applies the mean of the gradients of all batches of all ranks: which of the
// known formulas tells what they apply, and the mistake that it stands for.

#include "accumulated.h"
#include "diagnoses/accumulated_mean.h"

#include <math.h>
#include "base/format.h"

#define MEAN "every rank applies the mean of the gradients of all batches of all ranks"

// ---- What a rank may have applied, given what all computed.

static double own_sum(const Updates *updates, int rank, int u)
{
    const Update *update = &updates->of[rank][u];
    double sum = 0;
    for (int p = 0; p < update->count; p++)
        sum += update->gradients[p];
    return sum;
}

static double sum_of_all(const Updates *updates, int u)
{
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += own_sum(updates, r, u);
    return sum;
}

// Of what each rank computed in pass `pass` of update u.
static double mean_of_pass(const Updates *updates, int u, int pass)
{
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][u].gradients[pass];
    return sum / updates->run->ranks;
}

static int batches_of(const Updates *updates, int u)
{
    return updates->of[0][u].count;
}

// By rank `rank`, in update u; `number` is of use to some.
typedef double (*Formula)(const Updates *updates, int rank, int u, int number);

static double mean(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u) / updates->run->ranks / batches_of(updates, u);
}

static double own_last(const Updates *updates, int rank, int u, int number)
{
    (void)number;
    return updates->of[rank][u].gradients[batches_of(updates, u) - 1];
}

static double mean_of_last(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return mean_of_pass(updates, u, batches_of(updates, u) - 1);
}

static double mean_of_last_divided(const Updates *updates, int rank, int u, int number)
{
    return mean_of_last(updates, rank, u, number) / batches_of(updates, u);
}

static double mean_of_first(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return mean_of_pass(updates, u, 0);
}

// All that they have so far is divided by 1 where there is one batch in an update.
static double without_pass(const Updates *updates, int u, int pass, bool fewer)
{
    int count = batches_of(updates, u);
    double sum = sum_of_all(updates, u) / updates->run->ranks - mean_of_pass(updates, u, pass);
    return fewer && count > 1 ? sum / (count - 1) : sum / count;
}

static double without_first(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return without_pass(updates, u, 0, number == 1);
}

static double without_last(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return without_pass(updates, u, batches_of(updates, u) - 1, number == 1);
}

static double own_mean(const Updates *updates, int rank, int u, int number)
{
    (void)number;
    return own_sum(updates, rank, u) / batches_of(updates, u);
}

static double own_total(const Updates *updates, int rank, int u, int number)
{
    (void)number;
    return own_sum(updates, rank, u);
}

static double own_mean_divided(const Updates *updates, int rank, int u, int number)
{
    return own_mean(updates, rank, u, number) / updates->run->ranks;
}

static double over_ranks(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u) / updates->run->ranks;
}

static double over_batches(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u) / batches_of(updates, u);
}

static double over_nothing(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u);
}

static double over_ranks_twice(const Updates *updates, int rank, int u, int number)
{
    return mean(updates, rank, u, number) / updates->run->ranks;
}

static double over_batches_twice(const Updates *updates, int rank, int u, int number)
{
    return mean(updates, rank, u, number) / batches_of(updates, u);
}

static double over_most_batches(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u) / updates->run->ranks / updates->passes;
}

static double over_number_of_batches(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return sum_of_all(updates, u) / updates->run->ranks / number;
}

static double over_number_of_ranks(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return sum_of_all(updates, u) / batches_of(updates, u) / number;
}

static double over_local_size(const Updates *updates, int rank, int u, int number)
{
    (void)number;
    return sum_of_all(updates, u) / batches_of(updates, u) / run_local_size(updates->run, rank);
}

static double mean_of_machine(const Updates *updates, int rank, int u, int number)
{
    const Run *run = updates->run;
    double sum = 0;
    for (int r = 0; r < run->ranks; r++)
        sum += run_node(run, r) == run_node(run, rank) ? own_mean(updates, r, u, number) : 0;
    return sum / run_local_size(run, rank);
}

static double of_one_rank(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return own_mean(updates, number < updates->run->ranks ? number : 0, u, 0);
}

static double mean_on_the_root(const Updates *updates, int rank, int u, int number)
{
    return rank == 0 ? mean(updates, rank, u, number) : own_mean(updates, rank, u, number);
}

// What the update before has left is in it, too.
static double on_top(const Updates *updates, int rank, int u, int number)
{
    return mean(updates, rank, u, number) + (u > 0 ? updates->of[rank][u - 1].effective : 0);
}

// As on_top; the sum is emptied, or made again, with each epoch.
static double on_top_in_epoch(const Updates *updates, int rank, int u, int number)
{
    int updates_an_epoch = (updates->steps + updates->passes - 1) / updates->passes;
    return u % updates_an_epoch ? on_top(updates, rank, u, number) : mean(updates, rank, u, number);
}

// The batches' own sums go on growing, and the exchange changes nothing of them.
static double all_so_far(const Updates *updates, int rank, int u, int number)
{
    double sum = 0;
    for (int i = 0; i <= u; i++)
        sum += sum_of_all(updates, i) / updates->run->ranks;
    (void)rank, (void)number;
    return sum / batches_of(updates, u);
}

// mean = (mean + gradient) / 2, in every pass; the first one is taken whole, or halved as well.
static double halved(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    double value = number ? mean_of_pass(updates, u, 0) : 0;
    for (int p = number ? 1 : 0; p < batches_of(updates, u); p++)
        value = (value + mean_of_pass(updates, u, p)) / 2;
    return value;
}

static double nothing(const Updates *updates, int rank, int u, int number)
{
    (void)updates, (void)rank, (void)u, (void)number;
    return 0;
}

static bool is_finite(const Updates *updates, int u)
{
    for (int r = 0; r < updates->run->ranks; r++)
        if (!isfinite(own_sum(updates, r, u) + updates->of[r][u].effective))
            return false;
    return true;
}

static bool explains_update(const Updates *updates, int u, Formula formula, int number)
{
    for (int r = 0; r < updates->run->ranks; r++) {
        const Update *update = &updates->of[r][u];
        bool unknown = updates->by_weights && u + 1 >= updates->made[r];
        double off = update->effective - formula(updates, r, u, number);
        if (!unknown && !(fabs(off) <= update->allowed))
            return false;
    }
    return true;
}

// The first update that the formula does not explain, or -1; after the first one only up to where
// numbers are no longer finite.
static int first_unexplained(const Updates *updates, Formula formula, int number)
{
    for (int u = 0; u < updates->count && (u == 0 || is_finite(updates, u)); u++)
        if (!explains_update(updates, u, formula, number))
            return u;
    return -1;
}

static bool explains(const AllUpdates *all, Formula formula, int number)
{
    for (int i = 0; i < all->count; i++)
        if (first_unexplained(&all->items[i], formula, number) >= 0)
            return false;
    return true;
}

// ---- Diagnoses.

static const struct {
    Formula formula;
    int number;
    const Diagnosis *diagnosis;
} known[] = {
    {own_last, 0, &d_nothing_accumulated},
    {mean_of_last, 0, &d_last_batch_only},
    {mean_of_last_divided, 0, &d_last_batch_only_divided},
    {mean_of_first, 0, &d_first_batch_only},
    {own_mean, 0, &d_gradients_not_averaged},
    {own_total, 0, &d_gradients_not_averaged},
    {own_mean_divided, 0, &d_divided_but_not_summed},
    {over_ranks, 0, &d_not_divided_by_passes},
    {over_batches, 0, &d_not_divided_by_workers},
    {over_nothing, 0, &d_gradients_summed},
    {over_ranks_twice, 0, &d_averaged_twice},
    {over_batches_twice, 0, &d_divided_by_passes_twice},
    {over_most_batches, 0, &d_divided_by_full_update},
    {over_local_size, 0, &d_divided_by_local_size},
    {mean_of_machine, 0, &d_averaged_within_machine},
    {mean_on_the_root, 0, &d_averaged_on_the_root_only},
    {on_top, 0, &d_sum_not_emptied},
    {on_top_in_epoch, 0, &d_sum_not_emptied},
    {all_so_far, 0, &d_sum_not_emptied},
    {without_first, 0, &d_first_batch_lost},
    {without_first, 1, &d_first_batch_lost},
    {without_last, 0, &d_last_batch_lost},
    {without_last, 1, &d_last_batch_lost},
    {halved, 0, &d_batches_weighed_unevenly},
    {halved, 1, &d_batches_weighed_unevenly},
    {nothing, 0, &d_no_update},
};

// With a number that stands in the program.
static const struct {
    Formula formula;
    int from;
    const Diagnosis *diagnosis;
} numbered[] = {
    {of_one_rank, 0, &d_gradients_of_one_rank},
    {over_number_of_ranks, 2, &d_number_of_workers_fixed},
    {over_number_of_batches, 2, &d_number_of_batches_fixed},
};

// True where the mean reached the optimizer, whatever its learning rate made of it.
static bool only_the_rate_differs(const AllUpdates *all)
{
    for (int i = 0; i < all->count; i++) {
        const Updates *updates = &all->items[i];
        for (int u = 0; u < updates->count && is_finite(updates, u); u++)
            for (int r = 0; r < updates->run->ranks; r++) {
                const Update *update = &updates->of[r][u];
                if (!update->applied || !(fabs(update->raw - mean(updates, r, u, 0)) <=
                                          TOLERANCE * largest_gradient(updates, u)))
                    return false;
            }
    }
    return true;
}

static bool some_are_the_mean(const AllUpdates *all)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            if (explains_update(&all->items[i], u, mean, 0))
                return true;
    return false;
}

static bool something_is_exchanged(const AllUpdates *all)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            if (all->items[i].of[0][u].early + all->items[i].of[0][u].late > OTHER_BYTES)
                return true;
    return false;
}

static const Diagnosis *wrong_gradient(const AllUpdates *all)
{
    if (explains(all, own_last, 0) && something_is_exchanged(all))
        return &d_mean_not_written;
    if (only_the_rate_differs(all))
        return &d_learning_rate_changed;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, known[i].formula, known[i].number))
            return known[i].diagnosis;
    for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++)
        for (int number = numbered[i].from; number < MAX_RANKS; number++)
            if (explains(all, numbered[i].formula, number))
                return numbered[i].diagnosis;
    return some_are_the_mean(all) ? &d_in_some_updates : &d_gradients_wrong;
}

static char *evidence_of(const Updates *updates, int u)
{
    const Run *run = updates->run;
    char *evidence = format_text("in update %d, as fingerprints:", u + 1);
    for (int r = 0; r < run->ranks; r++) {
        const Update *update = &updates->of[r][u];
        text_add(&evidence, "\nrank %d: computed", r);
        for (int p = 0; p < update->count && p < 8; p++)
            text_add(&evidence, " %.6g", update->gradients[p]);
        text_add(&evidence, "%s, applied %.6g", update->count > 8 ? " ..." : "", update->raw);
        if (fabs(update->effective - update->raw) > update->allowed)
            text_add(&evidence, ", changed the weights as %.6g would", update->effective);
    }
    text_add(&evidence, "\nmean of all: %.6g", mean(updates, 0, u, 0));
    return evidence;
}

bool judge_accumulated_mean(const Runs *runs, const AllUpdates *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        int u = first_unexplained(&all->items[i], mean, 0);
        if (u < 0)
            continue;
        return report_failure(report, MEAN, wrong_gradient(all),
                              evidence_in(runs, all->items[i].run, evidence_of(&all->items[i], u)));
    }
    return report_ok(report, MEAN);
}
