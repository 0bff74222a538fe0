// Whether every replica makes one device's update from each batch: which of the known formulas
// tells what they apply, and the mistake that it stands for.

#include "replicas.h"
#include "diagnoses/replica_mean.h"

#include <math.h>

#define MEAN "every replica makes one device's update: by the mean gradient of the whole batch"

#define TOLERANCE 1e-4 // of the batch's largest gradient

// ---- What a replica might apply.

typedef double (*Formula)(const Batches *batches, const BatchSeen *batch, int replica);

static double weighted_sum(const Batches *batches, const BatchSeen *batch, int replica)
{
    double sum = 0;
    (void)replica;
    for (int r = 0; r < batches->replicas; r++)
        sum += batch->parts[r].weighted;
    return sum;
}

static double mean(const Batches *batches, const BatchSeen *batch, int replica)
{
    return weighted_sum(batches, batch, replica) / batch->images.count;
}

static double own(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)batches;
    return batch->parts[replica].sum;
}

static double own_share(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)batches;
    return batch->parts[replica].weighted / batch->images.count;
}

// Those of a replica without images are no matter: it has nothing of its own.
static double own_where_it_has(const Batches *batches, const BatchSeen *batch, int replica)
{
    const Part *part = &batch->parts[replica];
    return part->gradients > 0 ? own(batches, batch, replica) : part->applied;
}

static double own_share_where_it_has(const Batches *batches, const BatchSeen *batch, int replica)
{
    const Part *part = &batch->parts[replica];
    return part->gradients > 0 ? own_share(batches, batch, replica) : part->applied;
}

static double sum(const Batches *batches, const BatchSeen *batch, int replica)
{
    double all = 0;
    (void)replica;
    for (int r = 0; r < batches->replicas; r++)
        all += batch->parts[r].sum;
    return all;
}

static double by_replicas(const Batches *batches, const BatchSeen *batch, int replica)
{
    return sum(batches, batch, replica) / batches->replicas;
}

static double by_busy_replicas(const Batches *batches, const BatchSeen *batch, int replica)
{
    int busy = 0;
    for (int r = 0; r < batches->replicas; r++)
        busy += batch->parts[r].images.count > 0;
    return sum(batches, batch, replica) / busy;
}

static double divided_twice(const Batches *batches, const BatchSeen *batch, int replica)
{
    return mean(batches, batch, replica) / batches->replicas;
}

static double times_replicas(const Batches *batches, const BatchSeen *batch, int replica)
{
    return mean(batches, batch, replica) * batches->replicas;
}

static double first_ones(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)replica;
    return own(batches, batch, 0);
}

static double last_ones(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)replica;
    return own(batches, batch, batches->replicas - 1);
}

static double nothing(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)batches, (void)batch, (void)replica;
    return 0;
}

static double by_whole_numbers(const Batches *batches, const BatchSeen *batch, int replica)
{
    double all = 0;
    (void)replica;
    for (int r = 0; r < batches->replicas; r++)
        all += batch->parts[r].sum * (batch->parts[r].images.count / batch->images.count);
    return all;
}

static double sum_by_own_share(const Batches *batches, const BatchSeen *batch, int replica)
{
    return sum(batches, batch, replica) * batch->parts[replica].images.count / batch->images.count;
}

// Divided by the images of a full batch, which the last one may not be.
static double by_full_batch(const Batches *batches, const BatchSeen *batch, int replica)
{
    int full = 0;
    for (int b = 0; b < batches->count; b++)
        if (batches->items[b].trains && batches->items[b].images.count > full)
            full = batches->items[b].images.count;
    return weighted_sum(batches, batch, replica) / full;
}

// What its own share and those of some others come to; of all such sums the nearest to what it
// applies.
static double some_shares(const Batches *batches, const BatchSeen *batch, int replica)
{
    double applied = batch->parts[replica].applied, nearest = INFINITY;
    for (unsigned chosen = 0; chosen < 1U << batches->replicas; chosen++) {
        double sum_of_chosen = 0;
        for (int r = 0; r < batches->replicas; r++)
            if (r == replica || chosen >> r & 1)
                sum_of_chosen += own_share(batches, batch, r);
        if (fabs(sum_of_chosen - applied) < fabs(nearest - applied))
            nearest = sum_of_chosen;
    }
    return nearest;
}

static double mean_by_own_rate(const Batches *batches, const BatchSeen *batch, int replica)
{
    return mean(batches, batch, replica) * batch->parts[replica].rate / PAGE_RATE;
}

static double largest(const Batches *batches, const BatchSeen *batch)
{
    double most = 0;
    for (int r = 0; r < batches->replicas; r++)
        most = fmax(most, fabs(batch->parts[r].sum));
    return most;
}

static bool is_explained(const Batches *batches, const BatchSeen *batch, Formula formula)
{
    for (int r = 0; r < batches->replicas; r++) {
        double off = batch->parts[r].applied - formula(batches, batch, r);
        if (!(fabs(off) <= TOLERANCE * largest(batches, batch)))
            return false;
    }
    return true;
}

// The first batch whose updates the formula does not explain.
static const BatchSeen *first_unexplained(const Batches *batches, Formula formula)
{
    for (int b = 0; b < batches->count; b++)
        if (batches->items[b].trains && !is_explained(batches, &batches->items[b], formula))
            return &batches->items[b];
    return NULL;
}

// On one device what is done may be right all the same.
static bool explains(const AllBatches *all, Formula formula)
{
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        bool alone = batches->replicas == 1;
        if (first_unexplained(batches, formula) && !(alone && !first_unexplained(batches, mean)))
            return false;
    }
    return true;
}

// ---- The mistakes.

static const struct {
    Formula formula;
    const Diagnosis *diagnosis;
} known[] = {
    {mean_by_own_rate, &d_learning_rate_changed}, {sum, &d_sum_not_mean},
    {by_replicas, &d_parts_weigh_the_same},       {by_busy_replicas, &d_parts_weigh_the_same},
    {weighted_sum, &d_not_divided_by_batch},      {divided_twice, &d_divided_twice},
    {times_replicas, &d_multiplied_by_replicas},  {first_ones, &d_first_replicas_gradient},
    {last_ones, &d_last_replicas_gradient},       {nothing, &d_gradient_zero},
    {by_whole_numbers, &d_integer_division},      {by_full_batch, &d_divided_by_full_batch},
    {sum_by_own_share, &d_scaled_after_sum},      {some_shares, &d_sum_incomplete}};

static bool sums_are_made(const AllBatches *all)
{
    for (int i = 0; i < all->count; i++)
        for (int b = 0; b < all->items[i].count; b++)
            for (int r = 0; r < all->items[i].replicas; r++)
                if (all->items[i].items[b].parts[r].sums)
                    return true;
    return false;
}

static bool all_apply_the_same(const Batches *batches, const BatchSeen *batch)
{
    for (int r = 1; r < batches->replicas; r++)
        if (!(fabs(batch->parts[r].applied - batch->parts[0].applied) <=
              TOLERANCE * largest(batches, batch)))
            return false;
    return true;
}

static bool applies_the_mean(const Batches *batches, const BatchSeen *batch, int replica)
{
    double off = batch->parts[replica].applied - mean(batches, batch, replica);
    return fabs(off) <= TOLERANCE * largest(batches, batch);
}

// True where in every run the first batch whose updates are wrong comes after right ones, a replica
// has none of its images, and one that has some is wrong.
static bool only_with_empty_parts(const AllBatches *all)
{
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        const BatchSeen *batch = first_unexplained(batches, mean);
        bool empty = false, others = false;
        for (int r = 0; batch && r < batches->replicas; r++) {
            bool has_none = batch->parts[r].images.count == 0;
            empty |= has_none;
            others |= !has_none && !applies_the_mean(batches, batch, r);
        }
        if (batch && (batch == batches->items || !empty || !others))
            return false;
    }
    return true;
}

// The batch is the first one whose updates are not right.
static const Diagnosis *wrong_gradient(const AllBatches *all, const Batches *batches,
                                       const BatchSeen *batch)
{
    if (explains(all, own_where_it_has) || explains(all, own_share_where_it_has))
        return replicas_are_equal(all) ? &d_weights_made_equal
               : sums_are_made(all)    ? &d_sum_not_written
                                       : &d_not_exchanged;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, known[i].formula))
            return known[i].diagnosis;
    if (only_with_empty_parts(all))
        return &d_empty_part_not_zero;
    return all_apply_the_same(batches, batch) ? &d_not_the_mean
           : sums_are_made(all)               ? &d_applied_differs
                                              : &d_applied_differs_by_hand;
}

static char *gradient_evidence(const Batches *batches, const BatchSeen *batch)
{
    char *text = replica_batch_text(batches, batch);
    for (int r = 0; r < batches->replicas; r++) {
        const Part *part = &batch->parts[r];
        text_add(&text, "\nreplica %d: %d image%s, computed ", r, part->images.count,
                 part->images.count == 1 ? "" : "s");
        if (part->gradients == 1)
            text_add(&text, "%.6g", part->sum);
        else
            text_add(&text, "%d gradients", part->gradients);
        text_add(&text, ", applied %.6g", part->given);
        if (fabs(part->rate - PAGE_RATE) > PAGE_RATE * TOLERANCE)
            text_add(&text, " with learning rate %g", part->rate);
    }
    text_add(&text, "\nmean over the batch's images: %.6g (fingerprints)", mean(batches, batch, 0));
    return text;
}

bool judge_replica_mean(const Runs *runs, const AllBatches *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        const BatchSeen *batch = first_unexplained(batches, mean);
        if (!batch)
            continue;
        return report_failure(report, MEAN, wrong_gradient(all, batches, batch),
                              evidence_in(runs, batches->run, gradient_evidence(batches, batch)));
    }
    return report_ok(report, MEAN);
}
