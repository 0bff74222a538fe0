// Whether every rank applies, to each row of the table, the mean of what all ranks computed for it:
// which of the known explanations tells what they apply, and the mistake that it stands for.

#include "hypotheses.h"
#include "sparse_steps.h"
#include "diagnoses/sparse_rows.h"

#include <math.h>
#include <stdlib.h>
#include "base/format.h"

// ---- What a rank may have applied to a row, given what all computed. A Row is one row of the table
// in one step; Row.batches counts the ranks that named it, or is 1.

enum { MOST_ROWS = 1 << 16 }; // Row.at is MOST_ROWS * step + place among the step's rows

static const SparseStep *step_of(const Row *row)
{
    return &((const SparseSteps *)row->of)->items[row->at / MOST_ROWS];
}

// Where it stood among that rank's rows; -1: the rank did not name it.
static int place_of(const Row *row, int rank)
{
    return step_of(row)->place[rank][row->at % MOST_ROWS];
}

static int contributors(const Row *row)
{
    int count = 0;
    for (int r = 0; r < row->ranks; r++)
        count += place_of(row, r) >= 0;
    return count;
}

static Row row_in_step(const Row *in, int k)
{
    const SparseStep *step = sparse_step(in);
    Row row = {.run = in->run,
               .of = in->of,
               .at = MOST_ROWS * in->at + k,
               .ranks = in->ranks,
               .allowed = step->allowed};
    row.batches = contributors(&row) > 0 ? contributors(&row) : 1;
    for (int r = 0; r < row.ranks; r++) {
        row.own[r] = step->computed[r][k];
        row.shown[r] = step->applied[r][k];
    }
    return row;
}

static Rows rows_of(const Rows *steps, int min_ranks)
{
    Rows rows = {NULL, 0};
    EACH_ROW (step, steps)
        for (int k = 0; k < sparse_step(step)->rows && step->ranks >= min_ranks; k++) {
            Row row = row_in_step(step, k);
            rows_add(&rows, &row);
        }
    return rows;
}

// Of two values that the rank may have applied the nearer one.
static double nearer(Cell cell, double a, double b)
{
    double applied = cell.row->shown[cell.rank];
    return fabs(a - applied) <= fabs(b - applied) ? a : b;
}

// A sum, whether or not it is divided.
static double divided_or_not(Cell cell, double sum)
{
    return nearer(cell, sum, sum / cell.row->ranks);
}

FORMULA(of_one_rank, divided_or_not(cell, own_of_number(cell)))

// 0 where this rank's batch did not name the row.
FORMULA(only_own_rows,
        place_of(cell.row, cell.rank) < 0 ? 0 : divided_or_not(cell, sum_of_own(cell)))
FORMULA(own_again, sum_of_own(cell) + own_number(cell))
FORMULA(all_but_own, divided_or_not(cell, sum_of_own(cell) - own_number(cell)))

// Divided by the number of ranks that named any row in the step.
static double mean_of_naming_ranks(Cell cell)
{
    int ranks = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        ranks += step_of(cell.row)->named[r] > 0;
    return ranks > 0 ? sum_of_own(cell) / ranks : 0;
}

// What one of those brought who named the row.
static double of_some_rank(Cell cell)
{
    double nearest = contributors(cell.row) > 0 ? INFINITY : 0;
    for (int r = 0; r < cell.row->ranks; r++)
        if (place_of(cell.row, r) >= 0)
            nearest = nearer(cell, nearest, divided_or_not(cell, cell.row->own[r]));
    return nearest;
}

// The sum of the first pairs of all that were gathered. (Where there are fewer, anything may follow
// them.)
static double sum_of_first(Cell cell, int pairs)
{
    int before = 0;
    double sum = 0;
    for (int r = 0; r < cell.row->ranks; r++) {
        int place = place_of(cell.row, r);
        sum += place >= 0 && before + place < pairs ? cell.row->own[r] : 0;
        before += step_of(cell.row)->named[r];
    }
    return before < pairs ? cell.row->shown[cell.rank] : divided_or_not(cell, sum);
}

// As many as there would be if every rank had brought as many as this one.
FORMULA(first_pairs, sum_of_first(cell, step_of(cell.row)->named[cell.rank] * cell.row->ranks))

// As many as this rank brought.
FORMULA(first_as_own, sum_of_first(cell, step_of(cell.row)->named[cell.rank]))

// Of this step and of all before it.
static double added_to_earlier(Cell cell)
{
    const SparseStep *last = step_of(cell.row);
    double sum = 0;
    for (const SparseStep *step = ((const SparseSteps *)cell.row->of)->items; step <= last;
         step++) {
        int found = row_in(step, last->number[cell.row->at % MOST_ROWS]);
        for (int r = 0; found >= 0 && r < cell.row->ranks; r++)
            sum += step->computed[r][found];
    }
    return sum;
}

static const Hypothesis mean = {sum_of_own, NULL, .by_ranks = 1};
static const Hypothesis nothing = {.of = constant_zero};

static const Hypothesis known[] = {
    {sum_of_own, &d_number_of_workers_fixed, .by_number = 1, .from = 2, .to = MAX_RANKS},
    {of_one_rank, &d_gradients_of_one_rank, .to = MAX_RANKS - 1},
    {own_number, &d_not_exchanged, .by_ranks = 0},
    {constant_zero, &d_no_update, .by_ranks = 0},
    {own_number, &d_divided_but_not_summed, .by_ranks = 1},
    {sum_of_own, &d_not_averaged, .by_ranks = 0},
    {sum_of_own, &d_averaged_twice, .by_ranks = 2},
    {sum_of_own, &d_divided_by_local_size, .by_local_size = 1},
    {sum_of_own, &d_divided_by_contributors, .by_batches = 1},
    {mean_of_naming_ranks, &d_divided_by_contributors_of_the_step, .by_ranks = 0},
    {only_own_rows, &d_own_rows_only, .by_ranks = 0},
    {all_but_own, &d_own_rows_missing, .by_ranks = 0},
    {own_again, &d_own_rows_twice, .by_ranks = 1},
    {of_some_rank, &d_rows_overwritten, .by_ranks = 0},
    {first_pairs, &d_counts_assumed_equal, .by_ranks = 0},
    {first_as_own, &d_counts_assumed_equal_own_count, .by_ranks = 0},
    {added_to_earlier, &d_earlier_steps_added, .by_ranks = 1},
    {0},
};

// ---- Diagnoses of rows.

// Where a rank gathered, but less than the values of its rows.
static Fault cut_short_fault(Cell cell)
{
    const SparseStep *step = sparse_step(cell.row);
    double gathered = step->gathered[cell.rank];
    double values = 4.0 * step->named[cell.rank] * ((const SparseSteps *)cell.row->of)->dimension;
    if (cell.row->ranks == 1 || gathered <= 0 || gathered >= values)
        return NO_FAULT;
    return fault_with(&d_rows_cut_short,
                      "in step %d rank %d sent %.0f bytes of %d rows; their values alone are "
                      "%.0f bytes",
                      cell.row->at + 1, cell.rank, gathered, step->named[cell.rank], values);
}

static char *evidence_of(const Row *row)
{
    char *evidence =
        format_text("in step %d, row %d of the table, as fingerprints:", row->at / MOST_ROWS + 1,
                    step_of(row)->number[row->at % MOST_ROWS]);
    for (int r = 0; r < row->ranks; r++) {
        if (place_of(row, r) < 0)
            text_add(&evidence, "\nrank %d: did not name it,   applied %12.8f", r, row->shown[r]);
        else
            text_add(&evidence, "\nrank %d: computed %12.8f, applied %12.8f", r, row->own[r],
                     row->shown[r]);
    }
    text_add(&evidence, "\nmean: %35.8f", hypothesis_value(&mean, row, 0));
    return evidence;
}

// A row that no rank named and some rank changed, in the same run; else the one that is given.
static const Row *most_telling(const Rows *rows, const Row *wrong)
{
    EACH_ROW (row, rows)
        if (row->run == wrong->run && contributors(row) == 0 && !explains_row(&nothing, row))
            return row;
    return wrong;
}

// `wrong` is the first row that is not the mean.
static bool report_wrong(const Runs *runs, const Rows *steps, const Rows *rows, const Row *wrong,
                         Report *report)
{
    // One rank alone can't tell one mistake from another.
    const Diagnosis *diagnosis = diagnosis_of_taken(known, rows_of(steps, 2));
    if (!diagnosis) {
        EACH_ROW (step, steps)
            for (int r = 0; r < step->ranks; r++)
                if (!report_fault(report, runs, step->run, ROWS,
                                  cut_short_fault((Cell){step, r, 0})))
                    return false;
        wrong = most_telling(rows, wrong);
        diagnosis = contributors(wrong) == 0 ? &d_other_rows_changed : &d_rows_wrong;
    }
    return report_failure(report, ROWS, diagnosis,
                          evidence_in(runs, wrong->run, evidence_of(wrong)));
}

bool judge_sparse_rows(const Runs *runs, const Rows *steps, Report *report)
{
    Rows rows = rows_of(steps, 1);
    const Row *wrong = first_unexplained(&mean, &rows);
    bool ok = wrong ? report_wrong(runs, steps, &rows, wrong, report) : report_ok(report, ROWS);
    free(rows.items);
    return ok;
}
