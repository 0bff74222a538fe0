// Whether every rank applies a multiple of the mean of all ranks' gradients, the same for all
// variables; and which mistake explains what it applies where it does not.

#include "clipped.h"

#include <math.h>
#include "diagnoses/clipped_mean.h"

#define MULTIPLE "every rank applies the mean of all gradients, times one factor for all variables"

// Less than any variable that is exchanged, more than what ranks compare.
#define GRADIENTS_BYTES 4096

// ---- What a rank may have multiplied by one factor.

static double own_base(const ClippedUpdates *updates, int u, int rank, int v, int number)
{
    (void)number;
    return updates->of[rank][u].own.value[v];
}

static double base_of_one_rank(const ClippedUpdates *updates, int u, int rank, int v, int number)
{
    (void)rank;
    return updates->of[number < updates->run->ranks ? number : 0][u].own.value[v];
}

static double base_of_machine(const ClippedUpdates *updates, int u, int rank, int v, int number)
{
    (void)number;
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += same_host(updates->run, r, rank) ? updates->of[r][u].own.value[v] : 0;
    return sum;
}

static bool all_multiples(const AllClipped *all, ClippedBase base, int number)
{
    double factor;
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            for (int r = 0; r < all->items[i].run->ranks; r++)
                if (!is_multiple(&all->items[i], u, r, base, number, &factor))
                    return false;
    return true;
}

// In each update all ranks apply a multiple of the mean that is scaled down, or their own gradient
// as it is; and there are both.
static bool is_own_where_not_scaled(const AllClipped *all)
{
    int means = 0, owns = 0;
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count && all->items[i].run->ranks > 1; u++) {
            double factor = 1;
            bool mean = true, own = true;
            for (int r = 0; r < all->items[i].run->ranks; r++) {
                mean = mean && is_multiple(&all->items[i], u, r, mean_base, 0, &factor);
                own = own && is_multiple(&all->items[i], u, r, own_base, 0, &factor) &&
                      fabs(factor - 1) < 1e-3;
            }
            if (!mean && !own)
                return false;
            means += mean;
            owns += own;
        }
    return means > 0 && owns > 0;
}

// ---- What a rank may have applied to a variable.

typedef bool (*Explanation)(const ClippedUpdates *updates, int u, int rank, int v, int number);

static double clip_factor(double limit, double norm)
{
    return norm > limit ? limit / norm : 1;
}

enum { AVERAGED, ADDED_UP, SCALED };

// Each rank's own gradient is scaled by its norm, and these are averaged, or added up.
static bool before_average(const ClippedUpdates *updates, int u, int rank, int v, int number)
{
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++) {
        const VariableGradients *own = &updates->of[r][u].own;
        double norm = norm_of(own);
        sum += own->value[v] *
               (number == SCALED ? updates->limit / norm : clip_factor(updates->limit, norm));
    }
    return is_applied(updates, u, rank, v, number == ADDED_UP ? sum : sum / updates->run->ranks);
}

static bool by_variable_before(const ClippedUpdates *updates, int u, int rank, int v, int number)
{
    (void)number;
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][u].own.value[v] *
               clip_factor(updates->limit, updates->of[r][u].own.norm[v]);
    return is_applied(updates, u, rank, v, sum / updates->run->ranks);
}

// The norm of the mean's variable is not known: either it is what was applied, or the limit was.
static bool by_variable(const ClippedUpdates *updates, int u, int rank, int v, int number)
{
    double norm = updates->of[rank][u].applied.norm[v], mean = mean_base(updates, u, rank, v, 0);
    (void)number;
    if (fabs(norm - updates->limit) <= 1e-3 * updates->limit)
        return updates->of[rank][u].applied.value[v] * mean >= 0;
    return norm < updates->limit && is_applied(updates, u, rank, v, mean);
}

static bool explains(const AllClipped *all, Explanation explanation, int number)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            for (int r = 0; r < all->items[i].run->ranks; r++)
                for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++)
                    if (!explanation(&all->items[i], u, r, v, number))
                        return false;
    return true;
}

// No value is above the limit, and one is as large wherever the gradient is no multiple of the mean.
static bool values_are_clipped(const AllClipped *all)
{
    const double close = 1e-5;
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            for (int r = 0; r < all->items[i].run->ranks; r++) {
                const ClippedUpdates *updates = &all->items[i];
                double factor, over = updates->of[r][u].applied.largest / updates->limit - 1;
                bool changed = !is_multiple(updates, u, r, mean_base, 0, &factor);
                if (over > close || (changed && !(fabs(over) <= close)))
                    return false;
            }
    return true;
}

// ---- Diagnoses.

static bool something_is_exchanged(const AllClipped *all)
{
    for (int i = 0; i < all->count; i++) {
        const Events *events = &all->items[i].run->traces.of[0];
        for (int e = event_find(events, "gradient", 0); e >= 0 && e < events->count; e++)
            if (event_bytes(events->items[e]) >= GRADIENTS_BYTES)
                return true;
    }
    return false;
}

static const Diagnosis *wrong_gradient(const AllClipped *all)
{
    if (all_multiples(all, own_base, 0))
        return something_is_exchanged(all) ? &d_mean_not_written : &d_gradients_not_averaged;
    if (is_own_where_not_scaled(all))
        return &d_mean_written_in_some_updates;
    if (all_multiples(all, base_of_machine, 0))
        return &d_averaged_within_machine;
    for (int rank = 0; rank < MAX_RANKS; rank++)
        if (all_multiples(all, base_of_one_rank, rank))
            return &d_gradients_of_one_rank;
    for (int number = AVERAGED; number <= SCALED; number++)
        if (explains(all, before_average, number))
            return &d_clipped_before_average;
    if (explains(all, by_variable, 0) || explains(all, by_variable_before, 0))
        return &d_norm_per_variable;
    return values_are_clipped(all) ? &d_values_clipped : &d_gradients_wrong;
}

static char *evidence_of(const ClippedUpdates *updates, int u)
{
    char *evidence = format_text("in update %d, with a limit of %g:", u + 1, updates->limit);
    for (int r = 0; r < updates->run->ranks; r++)
        text_add(&evidence, "\nrank %d: computed a norm of %.5g, applied one of %.5g", r,
                 norm_of(&updates->of[r][u].own), norm_of(&updates->of[r][u].applied));
    text_add(&evidence, "\nfor each variable, as fingerprints\nmean:           ");
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++)
        if (updates->of[0][u].own.norm[v] > 0)
            text_add(&evidence, " %9.3g", mean_base(updates, u, 0, v, 0));
    for (int r = 0; r < updates->run->ranks; r++) {
        text_add(&evidence, "\nrank %d applied: ", r);
        for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++)
            if (updates->of[0][u].own.norm[v] > 0)
                text_add(&evidence, " %9.3g", updates->of[r][u].applied.value[v]);
    }
    return evidence;
}

bool judge_multiple(const Runs *runs, const AllClipped *all, Report *report)
{
    double factor;
    for (int i = 0; i < all->count; i++) {
        const ClippedUpdates *updates = &all->items[i];
        for (int u = 0; u < updates->count; u++)
            for (int r = 0; r < updates->run->ranks; r++)
                if (!is_multiple(updates, u, r, mean_base, 0, &factor))
                    return report_failure(report, MULTIPLE, wrong_gradient(all),
                                          evidence_in(runs, updates->run, evidence_of(updates, u)));
    }
    return report_ok(report, MULTIPLE);
}
