// Whether every rank applies the mean of the gradients of all batches of all ranks: which of the
// known formulas tells what they apply, and the mistake that it stands for.

#include "accumulated.h"
#include "diagnoses/accumulated_mean.h"

#include <limits.h>
#include <math.h>
#include "base/format.h"

#define MEAN "every rank applies the mean of the gradients of all batches of all ranks"

// ---- What a rank may have applied, given what all computed. Rows are updates; what a rank has of
// its own is the sum of its batches' gradients.

static double of_pass(const Updates *updates, int u, int pass)
{
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][u].gradients[pass];
    return sum;
}

const Update *accumulated_update(Cell cell)
{
    return &((const Updates *)cell.row->of)->of[cell.rank][cell.row->at];
}

FORMULA(own_last, accumulated_update(cell)->gradients[cell.row->batches - 1])
FORMULA(first_of_all, of_pass(cell.row->of, cell.row->at, 0))
FORMULA(last_of_all, of_pass(cell.row->of, cell.row->at, cell.row->batches - 1))

// What is left may be divided by the number of batches less 1, where that is not 0.
static double for_the_rest(Cell cell)
{
    int batches = cell.row->batches;
    return cell.number && batches > 1 ? (double)batches / (batches - 1) : 1;
}

FORMULA(all_but_first, (sum_of_own(cell) - first_of_all(cell)) * for_the_rest(cell))
FORMULA(all_but_last, (sum_of_own(cell) - last_of_all(cell)) * for_the_rest(cell))
FORMULA(over_full_update, sum_of_own(cell) / ((const Updates *)cell.row->of)->passes)
FORMULA(right_value, sum_of_own(cell) / cell.row->ranks / cell.row->batches)

// With another learning rate than that of the command line.
static double mean_by_own_rate(Cell cell)
{
    const Update *update = accumulated_update(cell);
    return right_value(cell) * update->by_rate / update->raw;
}

// What the update before has left is in it, too; or only that of the same epoch.
static double on_top(Cell cell)
{
    const Updates *updates = cell.row->of;
    int updates_an_epoch = (updates->steps + updates->passes - 1) / updates->passes;
    bool first = cell.row->at % (cell.number ? updates_an_epoch : INT_MAX) == 0;
    return right_value(cell) + (first ? 0 : accumulated_update(cell)[-1].effective);
}

// The batches' own sums go on growing, and the exchange changes nothing of them.
static double all_so_far(Cell cell)
{
    const Updates *updates = cell.row->of;
    double sum = 0;
    for (int u = 0; u <= cell.row->at; u++)
        for (int p = 0; p < updates->of[0][u].count; p++)
            sum += of_pass(updates, u, p);
    return sum;
}

// mean = (mean + gradient) / 2, in every pass; the first one is taken whole, or halved as well.
static double halved(Cell cell)
{
    const Updates *updates = cell.row->of;
    double value = cell.number ? first_of_all(cell) : 0;
    for (int p = cell.number ? 1 : 0; p < cell.row->batches; p++)
        value = (value + of_pass(updates, cell.row->at, p)) / 2;
    return value;
}

static const Hypothesis right = {sum_of_own, NULL, .by_ranks = 1, .by_batches = 1};

static const Hypothesis known[] = {
    {own_last, &d_nothing_accumulated, .by_ranks = 0},
    {mean_by_own_rate, &d_learning_rate_changed, .by_ranks = 0},
    {last_of_all, &d_last_batch_only, .by_ranks = 1},
    {last_of_all, &d_last_batch_only_divided, .by_ranks = 1, .by_batches = 1},
    {first_of_all, &d_first_batch_only, .by_ranks = 1},
    {own_number, &d_gradients_not_averaged, .by_batches = 1},
    {own_number, &d_gradients_not_averaged, .by_ranks = 0},
    {own_number, &d_divided_but_not_summed, .by_ranks = 1, .by_batches = 1},
    {sum_of_own, &d_not_divided_by_passes, .by_ranks = 1},
    {sum_of_own, &d_not_divided_by_workers, .by_batches = 1},
    {sum_of_own, &d_gradients_summed, .by_ranks = 0},
    {sum_of_own, &d_averaged_twice, .by_ranks = 2, .by_batches = 1},
    {sum_of_own, &d_divided_by_passes_twice, .by_ranks = 1, .by_batches = 2},
    {over_full_update, &d_divided_by_full_update, .by_ranks = 1},
    {sum_of_own, &d_divided_by_local_size, .by_local_size = 1, .by_batches = 1},
    {mean_on_the_root, &d_averaged_on_the_root_only, .by_batches = 1},
    {on_top, &d_sum_not_emptied, .to = 1},
    {all_so_far, &d_sum_not_emptied, .by_ranks = 1, .by_batches = 1},
    {all_but_first, &d_first_batch_lost, .by_ranks = 1, .by_batches = 1, .to = 1},
    {all_but_last, &d_last_batch_lost, .by_ranks = 1, .by_batches = 1, .to = 1},
    {halved, &d_batches_weighed_unevenly, .by_ranks = 1, .to = 1},
    {constant_zero, &d_no_update, .by_ranks = 0},
    {own_of_number, &d_gradients_of_one_rank, .by_batches = 1, .to = MAX_RANKS - 1},
    {sum_of_own, &d_number_of_workers_fixed, .by_batches = 1, .by_number = 1, .from = 2,
     .to = MAX_RANKS - 1},
    {sum_of_own, &d_number_of_batches_fixed, .by_ranks = 1, .by_number = 1, .from = 2,
     .to = MAX_RANKS - 1},
    {0},
};

// ---- Rows.

static double sum_of_gradients(const Update *update)
{
    double sum = 0;
    for (int p = 0; p < update->count; p++)
        sum += update->gradients[p];
    return sum;
}

static Row row_of(const Updates *updates, int u)
{
    Row row = {.run = updates->run,
               .of = updates,
               .at = u,
               .ranks = updates->run->ranks,
               .batches = updates->of[0][u].count,
               .allowed = updates->of[0][u].allowed};
    for (int r = 0; r < row.ranks; r++) {
        row.own[r] = sum_of_gradients(&updates->of[r][u]);
        row.shown[r] = updates->of[r][u].effective;
        if (updates->by_weights && u + 1 >= updates->made[r])
            row.unknown |= 1u << r;
    }
    return row;
}

void accumulated_add(Rows *rows, const Updates *updates)
{
    for (int u = 0; u < updates->count; u++) {
        Row row = row_of(updates, u);
        if (u > 0 && !row_is_finite(&row))
            return;
        rows_add(rows, &row);
    }
}

// ---- Diagnoses.

static bool something_is_exchanged(const Rows *rows)
{
    EACH_ROW (row, rows) {
        const Update *update = accumulated_update((Cell){row, 0, 0});
        if (update->early + update->late > OTHER_BYTES)
            return true;
    }
    return false;
}

static bool some_are_the_mean(const Rows *rows)
{
    EACH_ROW (row, rows)
        if (explains_row(&right, row))
            return true;
    return false;
}

static bool all_apply_the_same(const Row *row)
{
    return row->unknown || !row_is_finite(row) || ranks_alike(row, 0) == all_ranks(row->ranks);
}

static const Diagnosis *wrong_gradient(const Rows *rows)
{
    static const Hypothesis mean_or_own[] = {{sum_of_own, NULL, .by_ranks = 1, .by_batches = 1},
                                             {own_number, NULL, .by_batches = 1},
                                             {0}};
    const Diagnosis *diagnosis = diagnosis_of_rows(known, rows);
    if (diagnosis == &d_nothing_accumulated && something_is_exchanged(rows))
        return &d_mean_not_written;
    if (diagnosis)
        return diagnosis;
    if (explain_each_row(mean_or_own, rows))
        return &d_gradients_not_averaged_in_some_updates;
    if (!all_apply_the_same(first_unexplained(&right, rows)))
        return &d_gradients_differ;
    return some_are_the_mean(rows) ? &d_in_some_updates : &d_gradients_wrong;
}

static char *evidence_of(const Row *row)
{
    char *evidence = format_text("in update %d, as fingerprints:", row->at + 1);
    for (int r = 0; r < row->ranks; r++) {
        const Update *update = accumulated_update((Cell){row, r, 0});
        text_add(&evidence, "\nrank %d: computed", r);
        for (int p = 0; p < update->count && p < 8; p++)
            text_add(&evidence, " %.6g", update->gradients[p]);
        text_add(&evidence, "%s, applied %.6g", update->count > 8 ? " ..." : "", update->raw);
        if (fabs(update->effective - update->raw) > update->allowed)
            text_add(&evidence, ", changed the weights as %.6g would", update->effective);
    }
    text_add(&evidence, "\nmean of all: %.6g", hypothesis_value(&right, row, 0));
    return evidence;
}

bool judge_accumulated_mean(const Runs *runs, const Rows *rows, Report *report)
{
    const Row *wrong = first_unexplained(&right, rows);
    return report_property(report, MEAN, wrong ? wrong_gradient(rows) : NULL,
                           wrong ? evidence_in(runs, wrong->run, evidence_of(wrong)) : NULL);
}
