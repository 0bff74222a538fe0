// The sparse gradient: in every step every rank applies, to each row of an embedding's table, the
// mean of all ranks' gradients of it, and sends rows, not the table. The steps are read by
// sparse_steps.c, and the rows are judged in sparse_rows.c; here it is the other layers, the
// weights, and the bytes.

#include "sparse_steps.h"
#include "diagnoses/judge_sparse.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"

#define START   "all ranks begin with the same weights"
#define OTHERS  "every rank applies the mean of all ranks' gradients to the other layers"
#define WEIGHTS "all ranks have the same weights after every step"
#define BYTES   "the bytes that a rank sends grow with the rows that were used, not with the table"

// What a rank may send in a step beside rows: the other layers' gradients, counts, ...
#define OTHER_BYTES 32768

// The ranks whose weights are not those of rank 0.
static RankSet that_differ(const Row *row)
{
    const double *weights = sparse_step(row)->weights;
    RankSet ranks = 0;
    for (int r = 1; r < row->ranks; r++)
        if (!(fabs(weights[r] - weights[0]) <= 1e-4))
            ranks |= 1u << r;
    return ranks;
}

static Fault weights_fault(const Row *row)
{
    RankSet ranks = that_differ(row);
    if (!ranks)
        return NO_FAULT;
    char *evidence =
        format_text("before step %d %s from rank 0 in the fingerprint of the weights:", row->at + 1,
                    rank_count(ranks) == 1 ? "a rank differs" : "ranks differ");
    for (int r = 0; r < row->ranks; r++)
        text_add(&evidence, "\nrank %d: %.6f", r, sparse_step(row)->weights[r]);
    return (Fault){row->at == 0 ? &d_not_broadcast : &d_weights_differ, evidence};
}

static Fault start_fault(const Row *row)
{
    return row->at == 0 ? weights_fault(row) : NO_FAULT;
}

static Fault others_fault(Cell cell)
{
    const SparseStep *step = sparse_step(cell.row);
    double sum = 0, most = 0, applied = step->others_applied[cell.rank];
    for (int r = 0; r < cell.row->ranks; r++) {
        sum += step->others_computed[r];
        most = fmax(most, fabs(step->others_computed[r]));
    }
    double mean = sum / cell.row->ranks;
    return fabs(applied - mean) <= 1e-4 * most
               ? NO_FAULT
               : fault_with(
                     &d_other_layers_not_averaged,
                     "in step %d rank %d applied %.6f, and the mean is %.6f, as fingerprints",
                     cell.row->at + 1, cell.rank, applied, mean);
}

static Fault bytes_fault(Cell cell)
{
    const SparseSteps *steps = cell.row->of;
    const SparseStep *step = sparse_step(cell.row);
    int named = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        named += step->named[r];
    double of_table = 4.0 * steps->dimension * steps->table_rows;
    double of_rows = named * 4.0 * (steps->dimension + 1), bytes = step->bytes[cell.rank];
    // Even who passes all rows on to each of the others, with numbers of 8 bytes.
    if (bytes <= 2 * cell.row->ranks * of_rows + OTHER_BYTES)
        return NO_FAULT;
    return fault_with(bytes >= of_table ? &d_sent_the_table : &d_sent_too_much,
                      "in step %d rank %d sent %.0f bytes; all ranks' rows together are %.0f "
                      "bytes, the table is %.0f",
                      cell.row->at + 1, cell.rank, bytes, of_rows, of_table);
}

static void judge_steps(const Runs *runs, const Rows *steps, Report *report)
{
    if (judge_rows(runs, steps, START, start_fault, report) &&
        judge_sparse_rows(runs, steps, report) &&
        judge_cells(runs, steps, OTHERS, others_fault, report) &&
        judge_rows(runs, steps, WEIGHTS, weights_fault, report))
        judge_cells(runs, steps, BYTES, bytes_fault, report);
}

static bool some_step_in_each(const Runs *runs, const SparseSteps all[], Report *report)
{
    for (int i = 0; i < runs->count; i++)
        if (all[i].count == 0)
            return report_failure_in(report, runs, all[i].run, ROWS, &d_nothing_trained,
                                     "some rank made no update");
    return true;
}

static void judge(const Runs *runs, Report *report)
{
    SparseSteps *all = allocate((size_t)runs->count, sizeof *all);
    Rows steps = {NULL, 0};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        all[i] = sparse_steps(run);
        for (int s = 0; s < all[i].count; s++)
            rows_add(&steps, &(Row){.run = run, .of = &all[i], .at = s, .ranks = run->ranks});
    }
    if (some_step_in_each(runs, all, report))
        judge_steps(runs, &steps, report);
    for (int i = 0; i < runs->count; i++)
        sparse_steps_free(&all[i]);
    free(all);
    free(steps.items);
}

JUDGE("sparse", judge)
