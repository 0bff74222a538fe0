// Whether every rank applies, to each row of the table, the mean of what all ranks computed for it:
// which of the known explanations tells what they apply, and the mistake that it stands for.

#include "sparse_steps.h"
#include "diagnoses/sparse_rows.h"

#include <math.h>
#include "base/format.h"

// ---- What a rank may have applied to a row, given what all computed.

// Of row `row` in step `step`; `number` is of use to some.
typedef bool (*Explanation)(const SparseSteps *steps, int step, int rank, int row, int number);

static bool is(const SparseStep *step, int rank, int row, double value)
{
    return fabs(step->applied[rank][row] - value) <= step->allowed;
}

static double sum_of(const SparseSteps *steps, int step, int row)
{
    double sum = 0;
    for (int r = 0; r < steps->run->ranks; r++)
        sum += steps->items[step].computed[r][row];
    return sum;
}

static double mean_of(const SparseSteps *steps, int step, int row)
{
    return sum_of(steps, step, row) / steps->run->ranks;
}

static bool mean(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row, mean_of(steps, step, row));
}

static bool nothing(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row, 0);
}

static bool its_own(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    const SparseStep *s = &steps->items[step];
    return is(s, rank, row, s->computed[rank][row]);
}

static bool its_own_divided(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    const SparseStep *s = &steps->items[step];
    return is(s, rank, row, s->computed[rank][row] / steps->run->ranks);
}

static bool total(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row, sum_of(steps, step, row));
}

static bool mean_of_mean(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row, mean_of(steps, step, row) / steps->run->ranks);
}

static bool total_over_number(const SparseSteps *steps, int step, int rank, int row, int number)
{
    return is(&steps->items[step], rank, row, sum_of(steps, step, row) / number);
}

static bool total_over_local_size(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row,
              sum_of(steps, step, row) / run_local_size(steps->run, rank));
}

static int contributors(const SparseSteps *steps, int step, int row)
{
    int count = 0;
    for (int r = 0; r < steps->run->ranks; r++)
        count += steps->items[step].place[r][row] >= 0;
    return count;
}

static bool total_over_contributors(const SparseSteps *steps, int step, int rank, int row,
                                    int number)
{
    (void)number;
    int count = contributors(steps, step, row);
    return is(&steps->items[step], rank, row, count ? sum_of(steps, step, row) / count : 0);
}

static bool of_one_rank(const SparseSteps *steps, int step, int rank, int row, int number)
{
    const SparseStep *s = &steps->items[step];
    double value = number < steps->run->ranks ? s->computed[number][row] : s->computed[0][row];
    return is(s, rank, row, value) || is(s, rank, row, value / steps->run->ranks);
}

// 0 where this rank's batch did not name the row.
static bool only_own_rows(const SparseSteps *steps, int step, int rank, int row, int number)
{
    if (steps->items[step].place[rank][row] < 0)
        return nothing(steps, step, rank, row, number);
    return mean(steps, step, rank, row, number) || total(steps, step, rank, row, number);
}

static bool own_again(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    const SparseStep *s = &steps->items[step];
    return is(s, rank, row, mean_of(steps, step, row) + s->computed[rank][row] / steps->run->ranks);
}

static bool all_but_own(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    const SparseStep *s = &steps->items[step];
    double others = sum_of(steps, step, row) - s->computed[rank][row];
    return is(s, rank, row, others) || is(s, rank, row, others / steps->run->ranks);
}

// What one of those brought who named the row, whether or not it is divided.
static bool of_some_rank(const SparseSteps *steps, int step, int rank, int row, int number)
{
    const SparseStep *s = &steps->items[step];
    if (contributors(steps, step, row) == 0)
        return nothing(steps, step, rank, row, number);
    for (int r = 0; r < steps->run->ranks; r++)
        if (s->place[r][row] >= 0 && (is(s, rank, row, s->computed[r][row]) ||
                                      is(s, rank, row, s->computed[r][row] / steps->run->ranks)))
            return true;
    return false;
}

// The mean of the first pairs of all that were gathered: as many as there would be if every rank
// had brought as many as this one. (Where there are fewer, anything may follow them.)
static bool sum_of_first(const SparseSteps *steps, int step, int rank, int row, int pairs)
{
    const SparseStep *s = &steps->items[step];
    int ranks = steps->run->ranks, before = 0;
    double sum = 0;
    for (int r = 0; r < ranks; r++) {
        if (s->place[r][row] >= 0 && before + s->place[r][row] < pairs)
            sum += s->computed[r][row];
        before += s->named[r];
    }
    return before < pairs || is(s, rank, row, sum / ranks) || is(s, rank, row, sum);
}

static bool first_pairs(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return sum_of_first(steps, step, rank, row, steps->items[step].named[rank] * steps->run->ranks);
}

// As many as this rank brought.
static bool first_as_own(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return sum_of_first(steps, step, rank, row, steps->items[step].named[rank]);
}

// The means of this step and of all before it.
static bool added_to_earlier(const SparseSteps *steps, int step, int rank, int row, int number)
{
    (void)number;
    double sum = 0;
    for (int earlier = 0; earlier <= step; earlier++) {
        int found = row_in(&steps->items[earlier], steps->items[step].number[row]);
        if (found >= 0)
            sum += mean_of(steps, earlier, found);
    }
    return is(&steps->items[step], rank, row, sum);
}

// A row in which the explanation fails.
typedef struct {
    int step, rank, row; // step -1: there is none
} Spot;

static Spot first_unexplained(const SparseSteps *steps, Explanation explanation, int number)
{
    for (int step = 0; step < steps->count; step++)
        for (int row = 0; row < steps->items[step].rows; row++)
            for (int rank = 0; rank < steps->run->ranks; rank++)
                if (!explanation(steps, step, rank, row, number))
                    return (Spot){step, rank, row};
    return (Spot){.step = -1};
}

// One rank alone can't tell one from another.
static bool explains(const AllSparseSteps *all, Explanation explanation, int number)
{
    for (int i = 0; i < all->count; i++)
        if (all->items[i].run->ranks > 1 &&
            first_unexplained(&all->items[i], explanation, number).step >= 0)
            return false;
    return true;
}

static bool some_number_explains(const AllSparseSteps *all, Explanation explanation, int from,
                                 int to)
{
    for (int number = from; number <= to; number++)
        if (explains(all, explanation, number))
            return true;
    return false;
}

// ---- Diagnoses of rows.

// Where a rank gathered, but less than the values of its rows. NULL: nowhere.
static const SparseSteps *first_cut_short(const AllSparseSteps *all, Spot *spot)
{
    for (int i = 0; i < all->count; i++)
        for (int s = 0; s < all->items[i].count; s++)
            for (int r = 0; r < all->items[i].run->ranks && all->items[i].run->ranks > 1; r++) {
                const SparseStep *step = &all->items[i].items[s];
                double values = 4.0 * step->named[r] * all->items[i].dimension;
                if (step->gathered[r] > 0 && step->gathered[r] < values) {
                    *spot = (Spot){s, r, 0};
                    return &all->items[i];
                }
            }
    return NULL;
}

// True where the runs have different numbers of ranks, not counting one rank alone.
static bool sizes_differ(const AllSparseSteps *all)
{
    int one = 0;
    for (int i = 0; i < all->count; i++) {
        int ranks = all->items[i].run->ranks;
        if (ranks > 1 && one > 1 && ranks != one)
            return true;
        one = ranks > 1 ? ranks : one;
    }
    return false;
}

// NULL: nothing explains all steps.
static const Diagnosis *known_mistake(const AllSparseSteps *all)
{
    static const struct {
        Explanation explanation;
        const Diagnosis *diagnosis;
    } known[] = {
        {its_own, &d_not_exchanged},
        {nothing, &d_no_update},
        {its_own_divided, &d_divided_but_not_summed},
        {total, &d_not_averaged},
        {mean_of_mean, &d_averaged_twice},
        {total_over_local_size, &d_divided_by_local_size},
        {total_over_contributors, &d_divided_by_contributors},
        {only_own_rows, &d_own_rows_only},
        {all_but_own, &d_own_rows_missing},
        {own_again, &d_own_rows_twice},
        {of_some_rank, &d_rows_overwritten},
        {first_pairs, &d_counts_assumed_equal},
        {first_as_own, &d_counts_assumed_equal_own_count},
        {added_to_earlier, &d_earlier_steps_added},
    };
    if (sizes_differ(all) && some_number_explains(all, total_over_number, 2, MAX_RANKS))
        return &d_number_of_workers_fixed;
    if (some_number_explains(all, of_one_rank, 0, MAX_RANKS - 1))
        return &d_gradients_of_one_rank;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, known[i].explanation, 0))
            return known[i].diagnosis;
    return NULL;
}

static char *evidence_of_row(const SparseSteps *steps, Spot spot)
{
    const SparseStep *step = &steps->items[spot.step];
    char *evidence = format_text("in step %d, row %d of the table, as fingerprints:", spot.step + 1,
                                 step->number[spot.row]);
    for (int r = 0; r < steps->run->ranks; r++) {
        if (step->place[r][spot.row] < 0)
            text_add(&evidence, "\nrank %d: did not name it,   applied %12.8f", r,
                     step->applied[r][spot.row]);
        else
            text_add(&evidence, "\nrank %d: computed %12.8f, applied %12.8f", r,
                     step->computed[r][spot.row], step->applied[r][spot.row]);
    }
    text_add(&evidence, "\nmean: %35.8f", mean_of(steps, spot.step, spot.row));
    return evidence;
}

// A row that no rank named and some rank changed; else the one that is given.
static Spot most_telling(const SparseSteps *steps, Spot spot)
{
    for (int step = 0; step < steps->count; step++)
        for (int row = 0; row < steps->items[step].rows; row++)
            for (int rank = 0; rank < steps->run->ranks; rank++)
                if (contributors(steps, step, row) == 0 && !nothing(steps, step, rank, row, 0))
                    return (Spot){step, rank, row};
    return spot;
}

bool judge_sparse_rows(const Runs *runs, const AllSparseSteps *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const SparseSteps *steps = &all->items[i];
        Spot spot = first_unexplained(steps, mean, 0);
        if (spot.step < 0)
            continue;
        const Diagnosis *diagnosis = known_mistake(all);
        Spot cut;
        const SparseSteps *in = diagnosis ? NULL : first_cut_short(all, &cut);
        if (in) {
            const SparseStep *step = &in->items[cut.step];
            return report_failure_in(report, runs, in->run, ROWS, &d_rows_cut_short,
                                     "in step %d rank %d sent %.0f bytes of %d rows; "
                                     "their values alone are %.0f bytes",
                                     cut.step + 1, cut.rank, step->gathered[cut.rank],
                                     step->named[cut.rank],
                                     4.0 * step->named[cut.rank] * in->dimension);
        }
        if (!diagnosis) {
            spot = most_telling(steps, spot);
            diagnosis = contributors(steps, spot.step, spot.row) == 0 ? &d_other_rows_changed
                                                                      : &d_rows_wrong;
        }
        return report_failure(report, ROWS, diagnosis,
                              evidence_in(runs, steps->run, evidence_of_row(steps, spot)));
    }
    return report_ok(report, ROWS);
}
