// Whether every rank applies the mean of the gradients of all batches of all ranks: which of the
// known formulas tells what they apply, and the mistake that it stands for.

#include "accumulated.h"

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

static const Diagnosis nothing_added = {
    "nothing-accumulated",
    "every rank applies the gradient of its own last batch. compute_gradients() overwrites the "
    "gradients of the batch before, and the other workers' gradients do not reach the weights.",
    NULL};
static const Diagnosis not_written = {
    "mean-not-written",
    "something is exchanged, but every rank applies what compute_gradients() has left of its own "
    "last batch. apply_gradients() takes the gradients that model_write_gradients() has put there.",
    NULL};
static const Diagnosis last_divided = {
    "last-batch-only",
    "the workers apply their last batches' gradients alone, divided by the number of batches. Each "
    "batch's gradients are added to the sum (+=), not put in its place (=).",
    NULL};
static const Diagnosis last_only = {
    "last-batch-only",
    "the workers apply the mean of their last batches' gradients: compute_gradients() overwrites "
    "the gradients of the batch before, so the earlier batches are lost.",
    NULL};
static const Diagnosis first_only = {
    "first-batch-only",
    "the workers apply the mean of their first batches' gradients; those of the others are not "
    "in it.",
    NULL};
static const Diagnosis first_lost = {
    "first-batch-lost", "the gradients of the first batch of an update are not in it.", NULL};
static const Diagnosis last_lost = {
    "last-batch-lost",
    "the gradients of the last batch of an update are not in it. Often the sum is read before that "
    "batch is computed.",
    NULL};
static const Diagnosis not_exchanged = {
    "gradients-not-averaged",
    "every rank adds up its own batches' gradients and applies that: nothing of the other workers "
    "reaches its weights.",
    NULL};
static const Diagnosis divided_only = {
    "divided-but-not-summed",
    "every rank divides its own mean by the number of workers; nothing of the others is in it.",
    NULL};
static const Diagnosis not_by_batches = {
    "not-divided-by-passes",
    "the gradients of an update's batches are added up, but not divided by their number: with "
    "SGD the same as a learning rate that many times as high.",
    NULL};
static const Diagnosis not_by_ranks = {
    "not-divided-by-workers",
    "the workers' gradients are added up, but not divided by their number: with SGD the same as a "
    "learning rate that many times as high.",
    NULL};
static const Diagnosis not_divided = {
    "gradients-summed",
    "the gradients of all batches are added up, but divided neither by the number of batches nor "
    "by that of workers.",
    NULL};
static const Diagnosis by_ranks_twice = {
    "averaged-twice",
    "the gradients are divided by the number of workers twice: an average is already divided.",
    NULL};
static const Diagnosis by_batches_twice = {
    "divided-by-passes-twice", "the gradients are divided by the number of batches twice.", NULL};
static const Diagnosis by_most = {
    "divided-by-full-update",
    "the last update of an epoch is from fewer batches, and yet divided by the number that the "
    "others are from. `passes` says how many batches this update has.",
    NULL};
static const Diagnosis fixed_batches = {
    "number-of-batches-fixed",
    "the sum is divided by the same number in all runs, however many batches an update is from.",
    NULL};
static const Diagnosis fixed_ranks = {
    "number-of-workers-fixed",
    "the sum is divided by the same number on any number of workers: hvd_size() is right on all.",
    NULL};
static const Diagnosis by_local_size = {
    "divided-by-local-size",
    "the sum over all workers is divided by hvd_local_size(), the workers of one machine.", NULL};
static const Diagnosis within_machine = {
    "averaged-within-machine", "the gradients are averaged among the ranks of one machine only.",
    NULL};
static const Diagnosis one_ranks = {
    "gradients-of-one-rank",
    "all ranks apply the gradients of one of them, and the work of the others is lost.", NULL};
static const Diagnosis root_only = {
    "averaged-on-the-root-only",
    "the root applies the mean, and every other rank that of its own batches.", NULL};
static const Diagnosis not_emptied = {
    "sum-not-emptied",
    "the first update is right, and in each later one the gradients of those before are in it, "
    "too: the sum has to begin with zeros in every update.",
    NULL};
static const Diagnosis uneven = {
    "batches-weighed-unevenly",
    "the last batch counts for one half, the one before it for a quarter, and so on: that is what "
    "mean = (mean + gradient) / 2 makes of more than two. All batches count alike.",
    NULL};
static const Diagnosis zero = {
    "no-update",
    "gradients that are zero, or nearly so, reach the optimizer. Often this is a division of whole "
    "numbers: in C 1 / passes is 0 where passes is 2 or more.",
    NULL};
static const Diagnosis other_rate = {
    "learning-rate-changed",
    "the gradient is the mean, but it is applied with another learning rate than --base-lr. An "
    "update is from as many images on any number of workers, so the rate can stay.",
    NULL};
static const Diagnosis some_updates = {
    "in-some-updates",
    "some updates are the mean, and others (the one above is the first) are not, and no single "
    "mistake that this check knows explains those. Often each update does not begin with a sum of "
    "zeros, or 1 / passes is a division of whole numbers, which is 0 from two passes on.",
    NULL};
static const Diagnosis wrong = {
    "gradients-wrong",
    "this is not the mean of all these gradients, and nothing that this check knows explains it "
    "in all updates: neither the last batch's, nor a sum that is not divided, nor each rank's own.",
    NULL};

static const struct {
    Formula formula;
    int number;
    const Diagnosis *diagnosis;
} known[] = {
    {own_last, 0, &nothing_added},
    {mean_of_last, 0, &last_only},
    {mean_of_last_divided, 0, &last_divided},
    {mean_of_first, 0, &first_only},
    {own_mean, 0, &not_exchanged},
    {own_total, 0, &not_exchanged},
    {own_mean_divided, 0, &divided_only},
    {over_ranks, 0, &not_by_batches},
    {over_batches, 0, &not_by_ranks},
    {over_nothing, 0, &not_divided},
    {over_ranks_twice, 0, &by_ranks_twice},
    {over_batches_twice, 0, &by_batches_twice},
    {over_most_batches, 0, &by_most},
    {over_local_size, 0, &by_local_size},
    {mean_of_machine, 0, &within_machine},
    {mean_on_the_root, 0, &root_only},
    {on_top, 0, &not_emptied},
    {on_top_in_epoch, 0, &not_emptied},
    {all_so_far, 0, &not_emptied},
    {without_first, 0, &first_lost},
    {without_first, 1, &first_lost},
    {without_last, 0, &last_lost},
    {without_last, 1, &last_lost},
    {halved, 0, &uneven},
    {halved, 1, &uneven},
    {nothing, 0, &zero},
};

// With a number that stands in the program.
static const struct {
    Formula formula;
    int from;
    const Diagnosis *diagnosis;
} numbered[] = {
    {of_one_rank, 0, &one_ranks},
    {over_number_of_ranks, 2, &fixed_ranks},
    {over_number_of_batches, 2, &fixed_batches},
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
        return &not_written;
    if (only_the_rate_differs(all))
        return &other_rate;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, known[i].formula, known[i].number))
            return known[i].diagnosis;
    for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++)
        for (int number = numbered[i].from; number < MAX_RANKS; number++)
            if (explains(all, numbered[i].formula, number))
                return numbered[i].diagnosis;
    return some_are_the_mean(all) ? &some_updates : &wrong;
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
