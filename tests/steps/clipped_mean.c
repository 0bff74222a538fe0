// Whether every rank applies a multiple of the mean of all ranks' gradients, the same for all
// variables; and which mistake explains what it applies where it does not.

#include "clipped.h"

#include <math.h>
#include "diagnoses/clipped_mean.h"

#define MULTIPLE "every rank applies the mean of all gradients, times one factor for all variables"

// Less than any variable that is exchanged, more than what ranks compare.
#define GRADIENTS_BYTES 4096

// ---- What a rank may have multiplied by one factor.

static const Hypothesis own_gradient = {.of = own_number}, of_machine = {.of = sum_of_machine};

// Whether each rank applies a multiple of the base, by a factor that is at most so far from 1.
static bool row_is_multiple(const Row *row, const Hypothesis *base, double from_1)
{
    double factor;
    for (int r = 0; r < row->ranks; r++)
        if (!is_multiple(row, r, base, &factor) || !(fabs(factor - 1) <= from_1))
            return false;
    return true;
}

static bool all_multiples(const Rows *rows, const Hypothesis *base)
{
    EACH_ROW (row, rows)
        if (!row_is_multiple(row, base, INFINITY))
            return false;
    return true;
}

// In each update all ranks apply a multiple of the mean that is scaled down, or their own gradient
// as it is; and there are both.
static bool is_own_where_not_scaled(const Rows *rows)
{
    int means = 0, owns = 0;
    EACH_ROW (row, rows) {
        if (row->ranks == 1)
            continue;
        bool mean = row_is_multiple(row, &mean_gradient, INFINITY);
        bool own = row_is_multiple(row, &own_gradient, 1e-3);
        if (!mean && !own)
            return false;
        means += mean;
        owns += own;
    }
    return means > 0 && owns > 0;
}

// ---- What a rank may have applied to a variable. Rows are clipped_variable()'s.

FORMULA(limit_of, ((const ClippedUpdates *)cell.row->of)->limit)

// How a rank's own gradient is scaled before the exchange: where its norm is above the limit, or always, or
// where that of the variable is.
enum { CLIPPED, SCALED, CLIPPED_VARIABLE };

static double clipped_before_sum(Cell cell)
{
    double sum = 0, limit = limit_of(cell);
    for (int r = 0; r < cell.row->ranks; r++) {
        const VariableGradients *own = &clipped_update((Cell){cell.row, r, 0})->own;
        double norm = cell.number == CLIPPED_VARIABLE ? own->norm[cell.row->batches] : norm_of(own);
        sum += cell.row->own[r] * (norm > limit || cell.number == SCALED ? limit / norm : 1);
    }
    return sum;
}

// The norm of the mean's variable is not known: either it is what was applied, or the limit was.
static double by_variable(Cell cell)
{
    double norm = clipped_update(cell)->applied.norm[cell.row->batches], limit = limit_of(cell);
    double mean = sum_of_own(cell) / cell.row->ranks, shown = cell.row->shown[cell.rank];
    if (fabs(norm - limit) <= 1e-3 * limit)
        return shown * mean >= 0 ? shown : NAN;
    return norm < limit ? mean : NAN;
}

static const Hypothesis known[] = {
    {clipped_before_sum, &d_clipped_before_average, .by_ranks = 1, .to = SCALED},
    {clipped_before_sum, &d_clipped_before_average, .by_ranks = 0},
    {by_variable, &d_norm_per_variable, .by_ranks = 0},
    {clipped_before_sum, &d_norm_per_variable, .by_ranks = 1, .from = CLIPPED_VARIABLE,
     .to = CLIPPED_VARIABLE},
    {0},
};

static const Diagnosis *known_of_variables(const Rows *rows)
{
    Rows variables = {NULL, 0};
    EACH_ROW (row, rows)
        for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++) {
            Row variable = clipped_variable(row, v);
            rows_add(&variables, &variable);
        }
    return diagnosis_of_taken(known, variables);
}

// No value is above the limit, and one is as large wherever the gradient is no multiple of the mean.
static bool values_are_clipped(const Rows *rows)
{
    const double close = 1e-5;
    EACH_ROW (row, rows)
        for (int r = 0; r < row->ranks; r++) {
            Cell cell = {row, r, 0};
            double factor, over = clipped_update(cell)->applied.largest / limit_of(cell) - 1;
            bool changed = !is_multiple(row, r, &mean_gradient, &factor);
            if (over > close || (changed && !(fabs(over) <= close)))
                return false;
        }
    return true;
}

// ---- Diagnoses.

static bool something_is_exchanged(const Rows *rows)
{
    EACH_ROW (row, rows) {
        const Events *events = &row->run->traces.of[0];
        for (int e = event_find(events, "gradient", 0); e >= 0 && e < events->count; e++)
            if (event_bytes(events->items[e]) >= GRADIENTS_BYTES)
                return true;
    }
    return false;
}

static const Diagnosis *wrong_gradient(const Rows *rows)
{
    if (all_multiples(rows, &own_gradient))
        return something_is_exchanged(rows) ? &d_mean_not_written : &d_gradients_not_averaged;
    if (is_own_where_not_scaled(rows))
        return &d_mean_written_in_some_updates;
    if (all_multiples(rows, &of_machine))
        return &d_averaged_within_machine;
    for (int rank = 0; rank < MAX_RANKS; rank++)
        if (all_multiples(rows, &(Hypothesis){.of = own_of_number, .from = rank}))
            return &d_gradients_of_one_rank;
    const Diagnosis *diagnosis = known_of_variables(rows);
    return diagnosis                  ? diagnosis
           : values_are_clipped(rows) ? &d_values_clipped
                                      : &d_gradients_wrong;
}

static void add_values(char **evidence, const Row *row, int rank)
{
    for (int v = 0; v < MAX_CLIPPED_VARIABLES; v++) {
        Row variable = clipped_variable(row, v);
        if (clipped_update((Cell){row, 0, 0})->own.norm[v] > 0)
            text_add(evidence, " %9.3g",
                     rank < 0 ? hypothesis_value(&mean_gradient, &variable, 0)
                              : variable.shown[rank]);
    }
}

static char *evidence_of(const Row *row)
{
    char *evidence =
        format_text("in update %d, with a limit of %g:", row->at + 1, limit_of((Cell){row, 0, 0}));
    for (int r = 0; r < row->ranks; r++)
        text_add(&evidence, "\nrank %d: computed a norm of %.5g, applied one of %.5g", r,
                 row->own[r], norm_of(&clipped_update((Cell){row, r, 0})->applied));
    text_add(&evidence, "\nfor each variable, as fingerprints\nmean:           ");
    add_values(&evidence, row, -1);
    for (int r = 0; r < row->ranks; r++) {
        text_add(&evidence, "\nrank %d applied: ", r);
        add_values(&evidence, row, r);
    }
    return evidence;
}

bool judge_multiple(const Runs *runs, const Rows *rows, Report *report)
{
    EACH_ROW (row, rows)
        if (!row_is_multiple(row, &mean_gradient, INFINITY))
            return report_failure(report, MULTIPLE, wrong_gradient(rows),
                                  evidence_in(runs, row->run, evidence_of(row)));
    return report_ok(report, MULTIPLE);
}
