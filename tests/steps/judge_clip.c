// Clip: gradients clipped by the norm of all of them, after the average. The updates are read by
// clipped.c, and whether they are multiples of the mean is judged in clipped_mean.c; here, whether
// the factors are the right ones.

#include "clipped.h"
#include "drawn.h"
#include "end.h"
#include "hypotheses.h"
#include "mean.h"
#include "rates.h"
#include "diagnoses/judge_clip.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"

#define MEASURED "the program measures the norms of gradients"
#define START    "all ranks start from the same weights"
#define ONCE     "each rank makes one update from each gradient"
#define SHARED   "the workers share the batches of an epoch"
#define SAME     "all ranks multiply by the same factor"
#define BELOW    "a mean whose norm is not above the limit stays as it is"
#define ABOVE    "a mean whose norm is above the limit is scaled down to it"

// ---- What comes before factors.

static Fault measured_fault(const Run *run)
{
    RankSet with = ranks_with(&run->traces, "variable_gradient"), all = all_ranks(run->ranks);
    return with == all ? NO_FAULT
                       : fault_with(&d_norms_not_measured, "%s measured no gradient",
                                    rank_names(all & ~with).text);
}

static Fault start_fault(Cell cell)
{
    double root = clipped_update((Cell){cell.row, 0, 0})->weights,
           own = clipped_update(cell)->weights;
    return cell.row->at > 0 || cell.rank == 0 || own == root
               ? NO_FAULT
               : fault_with(&d_start_differs, "as fingerprints:\nrank 0: %.9g\nrank %d: %.9g", root,
                            cell.rank, own);
}

static bool changes_nothing(const ClippedUpdate *update)
{
    return update->applies == 0 || (update->applies == 1 && norm_of(&update->applied) == 0);
}

static Fault applied_fault(Cell cell)
{
    const ClippedUpdate *update = clipped_update(cell);
    const ClippedUpdates *all = cell.row->of;
    if (update->applies == 1 && !changes_nothing(update))
        return NO_FAULT;
    char *evidence =
        format_text("rank %d: in update %d the optimizer got %d gradients%s", cell.rank,
                    cell.row->at + 1, update->applies, update->applies == 1 ? ", of zeros" : "");
    if (update->applies > 1)
        return (Fault){&d_applied_too_often, evidence};
    int without = 0;
    text_add(&evidence, "\nwithout a gradient, of %d updates:", all->count);
    for (int u = 0; u < all->count; u++)
        if (changes_nothing(&all->of[cell.rank][u]))
            text_add(&evidence, "%s %d", without++ ? "," : "", u + 1);
    return (Fault){without == all->count ? &d_no_update : &d_no_update_in_some_updates, evidence};
}

static Fault steps_fault(const Run *run)
{
    double batches = run_flag(run, "--images ") / run_flag(run, "--batch-size "),
           epochs = run_flag(run, "--epochs "), right = batches / run->ranks;
    for (int r = 0; r < run->ranks; r++) {
        int made = event_count(&run->traces.of[r], "gradient");
        if (!(fabs(made / epochs - right) < 1))
            return fault_with(&d_steps_wrong,
                              "rank %d computed %d gradients in %.0f epochs of %.0f batches; "
                              "right: %.0f batches / %d workers = %.2f an epoch",
                              r, made, epochs, batches, batches, run->ranks, right);
    }
    return NO_FAULT;
}

// ---- Factors. That all are multiples of the mean is known by now.

static double limit_of(const Row *row)
{
    return ((const ClippedUpdates *)row->of)->limit;
}

static const VariableGradients *applied_by(Cell cell)
{
    return &clipped_update(cell)->applied;
}

// Of what a rank applied the factor taken out again.
static double of_mean(Cell cell, double applied)
{
    return applied / cell.row->shown[cell.rank];
}

FORMULA(norm_of_mean, of_mean(cell, norm_of(applied_by(cell))))

// What a rank may have multiplied by.
static double clipped(Cell cell, double norm)
{
    return norm > limit_of(cell.row) ? limit_of(cell.row) / norm : 1;
}

FORMULA(right_factor, clipped(cell, norm_of_mean(cell)))
FORMULA(always, limit_of(cell.row) / norm_of_mean(cell))
FORMULA(reversed, fmax(1, always(cell)))
FORMULA(of_sum, clipped(cell, norm_of_mean(cell) * cell.row->ranks))

FORMULA(of_local_mean, clipped(cell, norm_of_mean(cell) * cell.row->ranks /
                                         run_local_size(cell.row->run, cell.rank)))

// As with a limit that is multiplied by the number of ranks.
FORMULA(of_part, clipped(cell, norm_of_mean(cell) / cell.row->ranks))
FORMULA(inverted, 1 / right_factor(cell))
FORMULA(rate_of, clipped_update(cell)->rate)
FORMULA(right_at_rate, right_factor(cell) * rate_of(cell))
FORMULA(of_rank, clipped(cell, own_of_number(cell)))
FORMULA(of_own, clipped(cell, own_number(cell)))

// Norms of all ranks, to the power 1 or 2.
static double sum_of_norms(Cell cell)
{
    double sum = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        sum += pow(cell.row->own[r], cell.number);
    return sum;
}

FORMULA(mean_of_norms, clipped(cell, pow(sum_of_norms(cell) / cell.row->ranks, 1.0 / cell.number)))
FORMULA(of_added_norms, clipped(cell, pow(sum_of_norms(cell), 1.0 / cell.number)))
FORMULA(largest_of_norms, clipped(cell, largest_own(cell.row)))

// The sum of squares, in the condition, too, or in the quotient alone.
static double by_square(Cell cell)
{
    double norm = norm_of_mean(cell);
    return cell.number > 0          ? clipped(cell, norm * norm)
           : right_factor(cell) < 1 ? limit_of(cell.row) / (norm * norm)
                                    : 1;
}

static double square_compared(Cell cell)
{
    double norm = norm_of_mean(cell);
    return norm * norm > limit_of(cell.row) ? limit_of(cell.row) / norm : 1;
}

FORMULA(by_mean_square, clipped(cell, norm_of_mean(cell) / sqrt(applied_by(cell)->length)))

static double by_added_variables(Cell cell)
{
    double sum = 0;
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++)
        sum += applied_by(cell)->norm[v];
    return clipped(cell, of_mean(cell, sum));
}

FORMULA(by_variable, clipped(cell, of_mean(cell, applied_by(cell)->norm[cell.number])))
FORMULA(by_largest_value, clipped(cell, of_mean(cell, applied_by(cell)->largest)))

// A limit that stands in the program: the norm of what is applied where the first gradient is scaled
// down.
static double at_fixed_limit(Cell cell)
{
    const ClippedUpdates *updates = cell.row->of;
    return clipped(cell, norm_of_mean(cell) * updates->limit / updates->first_scaled);
}

FORMULA(on_the_root, cell.rank == 0 ? right_factor(cell) : 1)

static const Hypothesis right = {right_factor, NULL, .by_ranks = 0};
static const Hypothesis right_or_one[] = {
    {right_factor, NULL, .by_ranks = 0}, {constant_one, NULL, .by_ranks = 0}, {0}};

// In the order in which they are tried.
static const Hypothesis known[] = {
    {constant_one, &d_not_clipped, .by_ranks = 0},
    {right_at_rate, &d_learning_rate_changed, .by_ranks = 0},
    {always, &d_scaled_up, .by_ranks = 0},
    {reversed, &d_condition_reversed, .by_ranks = 0},
    {of_sum, &d_gradients_summed, .by_ranks = -1},
    {of_sum, &d_sum_clipped, .by_ranks = 0},
    {of_local_mean, &d_divided_by_local_size, .by_ranks = -1, .by_local_size = 1},
    {right_factor, &d_averaged_twice, .by_ranks = 1},
    {of_part, &d_averaged_twice, .by_ranks = 1},
    {inverted, &d_factor_inverted, .by_ranks = 0},
    {of_part, &d_limit_times_workers, .by_ranks = 0},
    {of_own, &d_norm_of_own_gradient, .by_ranks = 0},
    {mean_of_norms, &d_mean_of_norms, .from = 1, .to = 2},
    {of_added_norms, &d_norms_of_workers_added_up, .from = 1, .to = 2},
    {largest_of_norms, &d_largest_of_norms, .by_ranks = 0},
    {by_square, &d_root_forgotten, .to = 1},
    {square_compared, &d_squares_compared, .by_ranks = 0},
    {by_mean_square, &d_root_of_mean_square, .by_ranks = 0},
    {by_added_variables, &d_norms_added_up, .by_ranks = 0},
    {by_largest_value, &d_largest_value, .by_ranks = 0},
    {on_the_root, &d_clipped_on_the_root_only, .by_ranks = 0},
    {of_rank, &d_norm_of_one_rank, .to = MAX_RANKS - 1},
    {by_variable, &d_norm_of_one_variable, .to = MAX_CLIPPED_VARIABLES - 1},
    {at_fixed_limit, &d_limit_fixed, .by_ranks = 0},
    {0},
};

static double first_scaled(const Rows *rows)
{
    EACH_ROW (row, rows)
        if (row->shown[0] < 1 - FACTOR_TOLERANCE)
            return norm_of(applied_by((Cell){row, 0, 0}));
    return NAN;
}

// ---- Faults of an update.

static bool differs_among_ranks(const Row *row)
{
    for (int r = 1; r < row->ranks; r++)
        if (!(fabs(row->shown[r] - row->shown[0]) <= FACTOR_TOLERANCE * row->shown[0]))
            return true;
    return false;
}

static bool wrong_below(const Row *row)
{
    return norm_of_mean((Cell){row, 0, 0}) <= limit_of(row) && !explains_row(&right, row);
}

static bool wrong_above(const Row *row)
{
    return norm_of_mean((Cell){row, 0, 0}) > limit_of(row) && !explains_row(&right, row);
}

static char *evidence_of(const Row *row)
{
    char *evidence = format_text("in update %d, with a limit of %g:", row->at + 1, limit_of(row));
    for (int r = 0; r < row->ranks; r++)
        text_add(&evidence, "\nrank %d: its own norm is %.5g; it multiplied the mean by %.5g", r,
                 row->own[r], row->shown[r]);
    text_add(&evidence, "\nthe norm of the mean is %.5g, so the factor is %.5g",
             norm_of_mean((Cell){row, 0, 0}), hypothesis_value(&right, row, 0));
    if (rate_of((Cell){row, 0, 0}) != 1)
        text_add(&evidence, "\nrank 0's learning rate is %.5g times --base-lr",
                 rate_of((Cell){row, 0, 0}));
    return evidence;
}

static bool judge_factors(const Runs *runs, const Rows *rows, const char *property,
                          bool (*fault)(const Row *row), Report *report)
{
    EACH_ROW (row, rows) {
        if (!fault(row))
            continue;
        const Diagnosis *diagnosis = diagnosis_of_rows(known, rows);
        if (!diagnosis)
            diagnosis = explain_each_row(right_or_one, rows) ? &d_clipped_in_some_updates
                        : fault == differs_among_ranks       ? &d_factors_differ
                                                             : &d_factor_wrong;
        return report_failure(report, property, diagnosis,
                              evidence_in(runs, row->run, evidence_of(row)));
    }
    return report_ok(report, property);
}

// A right answer with a caveat.
static void remark(const Rows *rows, Report *report)
{
    bool at_other_rate = false;
    EACH_ROW (row, rows)
        at_other_rate |= rate_of((Cell){row, 0, 0}) != 1;
    if (at_other_rate)
        report_note(report, "the learning rate is scaled in place of the gradient: the same with "
                            "SGD, but not with Adam");
}

static void judge_updates(const Runs *runs, const Rows *rows, Report *report)
{
    if (judge_drawn_images(runs, OWN_BATCHES, report) &&
        judge_cells(runs, rows, START, start_fault, report) &&
        judge_cells(runs, rows, ONCE, applied_fault, report) &&
        judge_multiple(runs, rows, report) &&
        judge_factors(runs, rows, SAME, differs_among_ranks, report)) {
        judge_factors(runs, rows, BELOW, wrong_below, report);
        judge_factors(runs, rows, ABOVE, wrong_above, report);
        judge_property(runs, SHARED, steps_fault, report);
    }
    if (report_passed(report))
        remark(rows, report);
    note_momentum(&runs->items[0], 0.9, report);
}

static void judge(const Runs *runs, Report *report)
{
    if (none_computed(runs, ONCE, report) ||
        !judge_property(runs, MEASURED, measured_fault, report))
        return;
    ClippedUpdates *all = allocate((size_t)runs->count, sizeof *all);
    Rows rows = {NULL, 0};
    for (int i = 0; i < runs->count; i++) {
        all[i] = clipped_updates(&runs->items[i]);
        clipped_add(&rows, &all[i]);
    }
    for (int i = 0; i < runs->count; i++)
        all[i].first_scaled = first_scaled(&rows);
    judge_updates(runs, &rows, report);
    for (int i = 0; i < runs->count; i++)
        clipped_updates_free(&all[i]);
    free(all);
    free(rows.items);
}

JUDGE("clip", judge)
OWN_ENDS("clip", EXPLAINED({"model_read_gradients: there are no gradients", &d_read_too_early},
                           {"apply_gradients: there are no gradients", &d_applied_too_often}))
