// Whether every replica makes one device's update from each batch: which of the known formulas
// tells what they apply, and the mistake that it stands for.

#include "hypotheses.h"
#include "replicas.h"
#include "diagnoses/replica_mean.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"

#define MEAN "every replica makes one device's update: by the mean gradient of the whole batch"

#define TOLERANCE 1e-4 // of the batch's largest gradient

// ---- What a replica might apply. Rows are the batches that train; what a replica has of its own is
// the sum of its gradients without their weights, and Row.batches counts images.

static const Part *part_of(const Row *row, int replica)
{
    const Batches *batches = row->of;
    return &batches->items[row->at].parts[replica];
}

static double weighted_sum(Cell cell)
{
    double sum = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        sum += part_of(cell.row, r)->weighted;
    return sum;
}

// Those of a replica without images are no matter: it has nothing of its own.
static double own_where_it_has(Cell cell)
{
    const Part *part = part_of(cell.row, cell.rank);
    return part->gradients > 0 ? part->sum : part->applied;
}

static double own_share_where_it_has(Cell cell)
{
    const Part *part = part_of(cell.row, cell.rank);
    return part->gradients > 0 ? part->weighted / cell.row->batches : part->applied;
}

static double by_busy_replicas(Cell cell)
{
    int busy = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        busy += part_of(cell.row, r)->images.count > 0;
    return sum_of_own(cell) / busy;
}

FORMULA(last_ones, cell.row->own[cell.row->ranks - 1])

static double by_whole_numbers(Cell cell)
{
    double sum = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        sum += cell.row->own[r] * (part_of(cell.row, r)->images.count / cell.row->batches);
    return sum;
}

FORMULA(sum_times_own_images, sum_of_own(cell) * part_of(cell.row, cell.rank)->images.count)

// Divided by the images of a full batch, which the last one may not be.
static double by_full_batch(Cell cell)
{
    const Batches *batches = cell.row->of;
    int full = 0;
    for (int b = 0; b < batches->count; b++)
        if (batches->items[b].trains && batches->items[b].images.count > full)
            full = batches->items[b].images.count;
    return weighted_sum(cell) / full;
}

// What its own share and those of some others come to; of all such sums the nearest to what it
// applies.
static double some_shares(Cell cell)
{
    const Row *row = cell.row;
    double applied = row->shown[cell.rank], nearest = INFINITY;
    for (unsigned chosen = 0; chosen < 1U << row->ranks; chosen++) {
        double sum = 0;
        for (int r = 0; r < row->ranks; r++)
            if (r == cell.rank || chosen >> r & 1)
                sum += part_of(row, r)->weighted / row->batches;
        if (fabs(sum - applied) < fabs(nearest - applied))
            nearest = sum;
    }
    return nearest;
}

FORMULA(sum_by_own_rate, weighted_sum(cell) * part_of(cell.row, cell.rank)->rate / PAGE_RATE)

static const Hypothesis right = {weighted_sum, NULL, .by_batches = 1};
static const Hypothesis own_ones[] = {
    {own_where_it_has, &d_not_exchanged, .by_ranks = 0},
    {own_share_where_it_has, &d_not_exchanged, .by_ranks = 0},
    {0},
};

static const Hypothesis known[] = {
    {sum_by_own_rate, &d_learning_rate_changed, .by_batches = 1},
    {sum_of_own, &d_sum_not_mean, .by_ranks = 0},
    {sum_of_own, &d_parts_weigh_the_same, .by_ranks = 1},
    {by_busy_replicas, &d_parts_weigh_the_same, .by_ranks = 0},
    {weighted_sum, &d_not_divided_by_batch, .by_ranks = 0},
    {weighted_sum, &d_divided_twice, .by_ranks = 1, .by_batches = 1},
    {weighted_sum, &d_multiplied_by_replicas, .by_ranks = -1, .by_batches = 1},
    {own_of_number, &d_first_replicas_gradient, .by_ranks = 0},
    {last_ones, &d_last_replicas_gradient, .by_ranks = 0},
    {constant_zero, &d_gradient_zero, .by_ranks = 0},
    {by_whole_numbers, &d_integer_division, .by_ranks = 0},
    {by_full_batch, &d_divided_by_full_batch, .by_ranks = 0},
    {sum_times_own_images, &d_scaled_after_sum, .by_batches = 1},
    {some_shares, &d_sum_incomplete, .by_ranks = 0},
    {0},
};

// ---- Rows.

static void add_run(Rows *rows, const Batches *batches)
{
    int before = rows->count;
    bool wrong = false;
    for (int b = 0; b < batches->count; b++) {
        const BatchSeen *batch = &batches->items[b];
        if (!batch->trains)
            continue;
        Row row = {.run = batches->run,
                   .of = batches,
                   .at = b,
                   .ranks = batches->replicas,
                   .batches = batch->images.count};
        for (int r = 0; r < row.ranks; r++) {
            row.own[r] = batch->parts[r].sum;
            row.shown[r] = batch->parts[r].applied;
        }
        row.allowed = TOLERANCE * largest_own(&row);
        rows_add(rows, &row);
        wrong = wrong || !explains_row(&right, &row);
    }
    // On one device what is done may be right all the same: it tells nothing of the mistake.
    if (batches->replicas == 1 && !wrong)
        rows->count = before;
}

// ---- The mistakes.

static bool sums_are_made(const Rows *rows)
{
    EACH_ROW (row, rows)
        for (int r = 0; r < row->ranks; r++)
            if (part_of(row, r)->sums)
                return true;
    return false;
}

static bool applies_the_mean(const Row *row, int replica)
{
    return fabs(row->shown[replica] - hypothesis_value(&right, row, replica)) <= row->allowed;
}

// True where in every run the first batch whose updates are wrong comes after right ones, a replica
// has none of its images, and one that has some is wrong.
static bool only_with_empty_parts(const Rows *rows)
{
    const Run *last = NULL;
    EACH_ROW (row, rows) {
        if (row->run == last || explains_row(&right, row))
            continue;
        last = row->run;
        bool empty = false, others = false;
        for (int r = 0; r < row->ranks; r++) {
            bool has_none = part_of(row, r)->images.count == 0;
            empty |= has_none;
            others |= !has_none && !applies_the_mean(row, r);
        }
        if (row->at == 0 || !empty || !others)
            return false;
    }
    return true;
}

// The row is the first one whose updates are not right.
static const Diagnosis *wrong_gradient(const Runs *runs, const Rows *rows, const Row *wrong)
{
    bool made = sums_are_made(rows);
    if (diagnosis_of_rows(own_ones, rows))
        return replicas_are_equal(runs, EQUAL_TOLERANCE) ? &d_weights_made_equal
               : made                                    ? &d_sum_not_written
                                                         : &d_not_exchanged;
    const Diagnosis *diagnosis = diagnosis_of_rows(known, rows);
    if (diagnosis)
        return diagnosis;
    if (only_with_empty_parts(rows))
        return &d_empty_part_not_zero;
    return ranks_alike(wrong, 0) == all_ranks(wrong->ranks) ? &d_not_the_mean
           : made                                           ? &d_applied_differs
                                                            : &d_applied_differs_by_hand;
}

static char *gradient_evidence(const Row *row)
{
    const Batches *batches = row->of;
    char *text = replica_batch_text(batches, &batches->items[row->at]);
    for (int r = 0; r < row->ranks; r++) {
        const Part *part = part_of(row, r);
        text_add(&text, "\nreplica %d: %d images, computed ", r, part->images.count);
        if (part->gradients == 1)
            text_add(&text, "%.6g", part->sum);
        else
            text_add(&text, "%d gradients", part->gradients);
        text_add(&text, ", applied %.6g", part->given);
        if (fabs(part->rate - PAGE_RATE) > PAGE_RATE * TOLERANCE)
            text_add(&text, " with learning rate %g", part->rate);
    }
    text_add(&text, "\nmean over the batch's images: %.6g (fingerprints)",
             hypothesis_value(&right, row, 0));
    return text;
}

bool judge_replica_mean(const Runs *runs, Report *report)
{
    Batches *all = allocate((size_t)runs->count, sizeof *all);
    Rows rows = {NULL, 0};
    for (int i = 0; i < runs->count; i++) {
        all[i] = replica_batches(runs, &runs->items[i]);
        add_run(&rows, &all[i]);
    }
    const Row *wrong = first_unexplained(&right, &rows);
    report_property(report, MEAN, wrong ? wrong_gradient(runs, &rows, wrong) : NULL,
                    wrong ? evidence_in(runs, wrong->run, gradient_evidence(wrong)) : NULL);
    for (int i = 0; i < runs->count; i++)
        replica_batches_free(&all[i]);
    free(all);
    free(rows.items);
    return !wrong;
}
