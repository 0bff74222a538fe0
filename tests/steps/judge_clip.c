// Clip: gradients clipped by the norm of all of them, after the average. The updates are read by
// clipped.c, and whether they are multiples of the mean is judged in clipped_mean.c; here, whether
// the factors are the right ones.

#include "clipped.h"
#include "drawn.h"
#include "end.h"
#include "mean.h"
#include "diagnoses/judge_clip.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"

#define MEASURED "the program measures the norms of gradients"
#define START    "all ranks start from the same weights"
#define ONCE     "each rank makes one update from each gradient"
#define SAME     "all ranks multiply by the same factor"
#define BELOW    "a mean whose norm is not above the limit stays as it is"
#define ABOVE    "a mean whose norm is above the limit is scaled down to it"

// Of a factor.
#define TOLERANCE 1e-3

// ---- What comes before factors.

static bool judge_measured(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        RankSet with = ranks_with(&run->traces, "variable_gradient");
        if (with != all_ranks(run->ranks))
            return report_failure_in(report, runs, run, MEASURED, &d_norms_not_measured,
                                     "%s measured no gradient",
                                     rank_names(all_ranks(run->ranks) & ~with).text);
    }
    return report_ok(report, MEASURED);
}

static bool judge_start(const Runs *runs, const AllClipped *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const ClippedUpdates *updates = &all->items[i];
        for (int r = 1; updates->count > 0 && r < updates->run->ranks; r++)
            if (!(updates->of[r][0].weights == updates->of[0][0].weights))
                return report_failure_in(report, runs, updates->run, START, &d_start_differs,
                                         "as fingerprints:\nrank 0: %.9g\nrank %d: %.9g",
                                         updates->of[0][0].weights, r, updates->of[r][0].weights);
    }
    return report_ok(report, START);
}

static bool judge_applied(const Runs *runs, const AllClipped *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const ClippedUpdates *updates = &all->items[i];
        for (int u = 0; u < updates->count; u++)
            for (int r = 0; r < updates->run->ranks; r++) {
                const ClippedUpdate *update = &updates->of[r][u];
                if (update->applies == 1 && !(norm_of(&update->applied) == 0))
                    continue;
                return report_failure_in(report, runs, updates->run, ONCE,
                                         update->applies > 1 ? &d_applied_too_often : &d_no_update,
                                         "rank %d: in update %d the optimizer got %d gradients%s",
                                         r, u + 1, update->applies,
                                         update->applies == 1 ? ", of zeros" : "");
            }
    }
    return report_ok(report, ONCE);
}

// ---- Factors. That all are multiples of the mean is known by now.

static double factor_of(const ClippedUpdates *updates, int u, int rank)
{
    double factor;
    is_multiple(updates, u, rank, mean_base, 0, &factor);
    return factor;
}

static double norm_of_mean(const ClippedUpdates *updates, int u, int rank)
{
    return norm_of(&updates->of[rank][u].applied) / factor_of(updates, u, rank);
}

static bool is_near(double factor, double expected)
{
    return fabs(factor - expected) <= TOLERANCE * expected;
}

// What a rank may have multiplied by; `number` is of use to some.
typedef double (*Factor)(const ClippedUpdates *updates, int u, int rank, double number);

static double clipped_at(double limit, double norm)
{
    return norm > limit ? limit / norm : 1;
}

static double right(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    return clipped_at(updates->limit, norm_of_mean(updates, u, rank));
}

static double one(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)updates, (void)u, (void)rank, (void)number;
    return 1;
}

static double always(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    return updates->limit / norm_of_mean(updates, u, rank);
}

static double reversed(const ClippedUpdates *updates, int u, int rank, double number)
{
    double norm = norm_of_mean(updates, u, rank);
    (void)number;
    return norm < updates->limit ? updates->limit / norm : 1;
}

static double of_sum(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    return updates->run->ranks *
           clipped_at(updates->limit, updates->run->ranks * norm_of_mean(updates, u, rank));
}

static double of_sum_then_divided(const ClippedUpdates *updates, int u, int rank, double number)
{
    return of_sum(updates, u, rank, number) / updates->run->ranks;
}

static double divided_again(const ClippedUpdates *updates, int u, int rank, double number)
{
    return right(updates, u, rank, number) / updates->run->ranks;
}

static double divided_before(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    int ranks = updates->run->ranks;
    return clipped_at(updates->limit, norm_of_mean(updates, u, rank) / ranks) / ranks;
}

static double inverted(const ClippedUpdates *updates, int u, int rank, double number)
{
    return 1 / right(updates, u, rank, number);
}

static double times_ranks(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    return clipped_at(updates->run->ranks * updates->limit, norm_of_mean(updates, u, rank));
}

static double own(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    return clipped_at(updates->limit, norm_of(&updates->of[rank][u].own));
}

static double of_rank(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)rank;
    return own(updates, u, number < updates->run->ranks ? (int)number : 0, 0);
}

// Norms of all ranks, to the power 1 or 2.
static double sum_of_norms(const ClippedUpdates *updates, int u, double power)
{
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += pow(norm_of(&updates->of[r][u].own), power);
    return sum;
}

static double mean_of_norms(const ClippedUpdates *updates, int u, int rank, double power)
{
    (void)rank;
    double mean = sum_of_norms(updates, u, power) / updates->run->ranks;
    return clipped_at(updates->limit, pow(mean, 1 / power));
}

static double of_added_norms(const ClippedUpdates *updates, int u, int rank, double power)
{
    (void)rank;
    return clipped_at(updates->limit, pow(sum_of_norms(updates, u, power), 1 / power));
}

static double largest_of_norms(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)rank, (void)number;
    double largest = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        largest = fmax(largest, norm_of(&updates->of[r][u].own));
    return clipped_at(updates->limit, largest);
}

// The sum of squares, in the condition, too, or in the quotient alone.
static double by_square(const ClippedUpdates *updates, int u, int rank, double number)
{
    double norm = norm_of_mean(updates, u, rank);
    if (number > 0)
        return clipped_at(updates->limit, norm * norm);
    return norm > updates->limit ? updates->limit / (norm * norm) : 1;
}

static double square_compared(const ClippedUpdates *updates, int u, int rank, double number)
{
    double norm = norm_of_mean(updates, u, rank);
    (void)number;
    return norm * norm > updates->limit ? updates->limit / norm : 1;
}

static double by_mean_square(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    return clipped_at(updates->limit * sqrt(updates->of[rank][u].applied.length),
                      norm_of_mean(updates, u, rank));
}

static double by_added_variables(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    double sum = 0;
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++)
        sum += updates->of[rank][u].applied.norm[v];
    return clipped_at(updates->limit, sum / factor_of(updates, u, rank));
}

static double by_variable(const ClippedUpdates *updates, int u, int rank, double number)
{
    return clipped_at(updates->limit,
                      updates->of[rank][u].applied.norm[(int)number] / factor_of(updates, u, rank));
}

static double by_largest_value(const ClippedUpdates *updates, int u, int rank, double number)
{
    (void)number;
    return clipped_at(updates->limit,
                      updates->of[rank][u].applied.largest / factor_of(updates, u, rank));
}

static double by_number(const ClippedUpdates *updates, int u, int rank, double number)
{
    return clipped_at(number, norm_of_mean(updates, u, rank));
}

static double on_the_root(const ClippedUpdates *updates, int u, int rank, double number)
{
    return rank == 0 ? right(updates, u, rank, number) : 1;
}

static bool explains_update(const ClippedUpdates *updates, int u, Factor factor, double number)
{
    for (int r = 0; r < updates->run->ranks; r++)
        if (!is_near(factor_of(updates, u, r), factor(updates, u, r, number)))
            return false;
    return true;
}

static bool explains(const AllClipped *all, Factor factor, double number)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            if (!explains_update(&all->items[i], u, factor, number))
                return false;
    return true;
}

// ---- Diagnoses.

// In the order in which they are tried. What a number tells: clipped_at the power of norms, or
// which way a square is meant.
static const struct {
    Factor factor;
    double number;
    const Diagnosis *diagnosis;
} known[] = {
    {one, 0, &d_not_clipped},
    {always, 0, &d_scaled_up},
    {reversed, 0, &d_condition_reversed},
    {of_sum, 0, &d_gradients_summed},
    {of_sum_then_divided, 0, &d_sum_clipped},
    {divided_again, 0, &d_averaged_twice},
    {divided_before, 0, &d_averaged_twice},
    {inverted, 0, &d_factor_inverted},
    {times_ranks, 0, &d_limit_times_workers},
    {own, 0, &d_norm_of_own_gradient},
    {mean_of_norms, 1, &d_mean_of_norms},
    {mean_of_norms, 2, &d_mean_of_norms},
    {of_added_norms, 1, &d_norms_of_workers_added_up},
    {of_added_norms, 2, &d_norms_of_workers_added_up},
    {largest_of_norms, 0, &d_largest_of_norms},
    {by_square, 0, &d_root_forgotten},
    {by_square, 1, &d_root_forgotten},
    {square_compared, 0, &d_squares_compared},
    {by_mean_square, 0, &d_root_of_mean_square},
    {by_added_variables, 0, &d_norms_added_up},
    {by_largest_value, 0, &d_largest_value},
    {on_the_root, 0, &d_clipped_on_the_root_only},
};

static bool clipped_or_not(const AllClipped *all)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            if (!explains_update(&all->items[i], u, right, 0) &&
                !explains_update(&all->items[i], u, one, 0))
                return false;
    return true;
}

// The norm of what is applied where the first gradient is scaled down: a limit in all runs?
static double first_scaled_norm(const AllClipped *all)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            if (factor_of(&all->items[i], u, 0) < 1 - TOLERANCE)
                return norm_of(&all->items[i].of[0][u].applied);
    return NAN;
}

static const Diagnosis *wrong_factor(const AllClipped *all, bool same)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, known[i].factor, known[i].number))
            return known[i].diagnosis;
    for (int rank = 0; rank < MAX_RANKS; rank++)
        if (explains(all, of_rank, rank))
            return &d_norm_of_one_rank;
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++)
        if (explains(all, by_variable, v))
            return &d_norm_of_one_variable;
    if (explains(all, by_number, first_scaled_norm(all)))
        return &d_limit_fixed;
    return clipped_or_not(all) ? &d_clipped_in_some_updates
           : same              ? &d_factor_wrong
                               : &d_factors_differ;
}

static char *evidence_of(const ClippedUpdates *updates, int u)
{
    char *evidence = format_text("in update %d, with a limit of %g:", u + 1, updates->limit);
    for (int r = 0; r < updates->run->ranks; r++)
        text_add(&evidence, "\nrank %d: its own norm is %.5g; it multiplied the mean by %.5g", r,
                 norm_of(&updates->of[r][u].own), factor_of(updates, u, r));
    double norm = norm_of_mean(updates, u, 0);
    text_add(&evidence, "\nthe norm of the mean is %.5g, so the factor is %.5g", norm,
             clipped_at(updates->limit, norm));
    return evidence;
}

static bool differs_among_ranks(const ClippedUpdates *updates, int u)
{
    for (int r = 1; r < updates->run->ranks; r++)
        if (!is_near(factor_of(updates, u, r), factor_of(updates, u, 0)))
            return true;
    return false;
}

static bool wrong_below(const ClippedUpdates *updates, int u)
{
    return norm_of_mean(updates, u, 0) <= updates->limit && !explains_update(updates, u, right, 0);
}

static bool wrong_above(const ClippedUpdates *updates, int u)
{
    return norm_of_mean(updates, u, 0) > updates->limit && !explains_update(updates, u, right, 0);
}

static bool judge_factors(const Runs *runs, const AllClipped *all, const char *property,
                          bool (*fault)(const ClippedUpdates *updates, int u), Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const ClippedUpdates *updates = &all->items[i];
        for (int u = 0; u < updates->count; u++)
            if (fault(updates, u))
                return report_failure(report, property,
                                      wrong_factor(all, fault != differs_among_ranks),
                                      evidence_in(runs, updates->run, evidence_of(updates, u)));
    }
    return report_ok(report, property);
}

// A right answer with a caveat.
static void remark(const AllClipped *all, Report *report)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            if (all->items[i].of[0][u].at_other_rate) {
                report_note(report,
                            "the learning rate is scaled in place of the gradient: the same "
                            "with SGD, but not with Adam");
                return;
            }
}

static void judge(const Runs *runs, Report *report)
{
    if (none_computed(runs, ONCE, report) || !judge_measured(runs, report))
        return;
    AllClipped all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = clipped_updates(&runs->items[i]);
    if (judge_drawn_images(runs, OWN_BATCHES, report) && judge_start(runs, &all, report) &&
        judge_applied(runs, &all, report) && judge_multiple(runs, &all, report) &&
        judge_factors(runs, &all, SAME, differs_among_ranks, report)) {
        judge_factors(runs, &all, BELOW, wrong_below, report);
        judge_factors(runs, &all, ABOVE, wrong_above, report);
    }
    if (report_passed(report))
        remark(&all, report);
    for (int i = 0; i < runs->count; i++)
        clipped_updates_free(&all.items[i]);
    free(all.items);
}

static const Explanation explanations[] = {
    {"model_read_gradients: there are no gradients", &d_read_too_early},
    {"apply_gradients: there are no gradients", &d_applied_too_often},
    {0},
};
static const Ends ends = {.explanations = explanations};

JUDGE("clip", judge)
ENDS("clip", &ends)
