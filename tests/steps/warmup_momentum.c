// The momentum of a warm-up: that of each batch is the optimizer's own, times what the rate has
// risen by. That of the first update is no matter: nothing is remembered yet. The correction is not
// needed to pass, but where there is one it must be right.

#include "warmup.h"
#include "diagnoses/warmup_momentum.h"

#include <stdlib.h>
#include "base/format.h"

#define CORRECTED "each rise of the rate raises the momentum of its batch as much"
#define RESTORED  "after the warm-up momentum is the optimizer's own"

#define MOMENTUM 0.9 // as the program has it

static const RateOfUpdate *update_before(const Row *row)
{
    return update_of(row) - 1;
}

FORMULA(rise, update_of(cell.row)->learning_rate / update_before(cell.row)->learning_rate)
FORMULA(corrected, rise(cell) * MOMENTUM)
FORMULA(its_own, MOMENTUM)
FORMULA(corrected_again, rise(cell) * update_before(cell.row)->momentum)
FORMULA(corrected_backwards, MOMENTUM / rise(cell))

// As if the rate before an epoch's first batch had been what the schedule has just set.
static double corrected_from_schedule(Cell cell)
{
    const RateOfUpdate *update = update_of(cell.row);
    double scheduled = hypothesis_value(&rates_after_warmup.right, cell.row, cell.rank);
    return update->step > 0 ? corrected(cell) : MOMENTUM * update->learning_rate / scheduled;
}

static const Hypothesis is_corrected = {.of = corrected}, is_own = {.of = its_own},
                        piles_up = {.of = corrected_again};

static const Hypothesis known[] = {
    {corrected_backwards, &d_momentum_corrected_backwards, .by_ranks = 0},
    {corrected_from_schedule, &d_momentum_from_schedule, .by_ranks = 0},
    {rise, &d_momentum_wrong_own_missing, .by_ranks = 0},
    {0},
};

// Of a part of all ranks' trainings, without the first update. After the warm-up one may correct for
// what the schedule does, as Goyal et al. do: that is left out.
static Rows momenta(const WarmupRun *t, int count, WarmupPart where)
{
    Rows rows = {NULL, 0};
    for (const WarmupRun *end = t + count; t < end; t++)
        for (int r = 0; r < t->run->ranks; r++)
            for (int i = 1; i < t->of[r].count; i++) {
                Row row = warmup_row(t, r, i);
                row.shown[r] = update_of(&row)->momentum;
                if (part_of(update_of(&row)) == where &&
                    (where == WITHIN || !explains_row(&is_corrected, &row)))
                    rows_add(&rows, &row);
            }
    return rows;
}

bool is_momentum_wrong(const WarmupRun *t)
{
    Rows rows = momenta(t, 1, WITHIN);
    bool wrong = !explains_rows(&is_corrected, &rows) && !explains_rows(&is_own, &rows);
    free(rows.items);
    return wrong;
}

static const Diagnosis *diagnose_momentum(const Rows *within, const Rows *beyond)
{
    const Diagnosis *diagnosis = diagnosis_of_rows(known, within);
    if (diagnosis || !explains_rows(&piles_up, within))
        return diagnosis ? diagnosis : &d_momentum_wrong;
    return explains_rows(&is_own, beyond) ? &d_momentum_piles_up : &d_momentum_not_restored;
}

static char *evidence_within(const Row *row)
{
    double rate = update_of(row)->learning_rate, before = update_before(row)->learning_rate;
    char *name = moment_name(row);
    char *evidence =
        format_text("%s: momentum %.5g\nthe rate went from %.5g to %.5g: %g * %.5g / %.5g = %.5g",
                    name, update_of(row)->momentum, before, rate, MOMENTUM, rate, before,
                    hypothesis_value(&is_corrected, row, rank_of_row(row)));
    free(name);
    return evidence;
}

void judge_momentum_within(const WarmupRuns *all, Report *report)
{
    Rows rows = momenta(all->items, all->count, WITHIN),
         beyond = momenta(all->items, all->count, BEYOND);
    const Row *wrong = first_unexplained(&is_corrected, &rows);
    if (explains_rows(&is_own, &rows))
        report_note(report, "the momentum stays the optimizer's own in every batch of the warm-up "
                            "(a factor of 1, if you correct it); to pass, that part is not needed");
    else
        report_property(report, CORRECTED, wrong ? diagnose_momentum(&rows, &beyond) : NULL,
                        wrong ? evidence_of_run(wrong->run, evidence_within(wrong)) : NULL);
    free(rows.items);
    free(beyond.items);
}

void judge_momentum_beyond(const Runs *runs, const WarmupRuns *all, Report *report)
{
    Rows rows = momenta(all->items, all->count, BEYOND);
    const Row *wrong = first_unexplained(&is_own, &rows);
    if (wrong) {
        char *name = moment_name(wrong);
        report_failure_in(report, runs, wrong->run, RESTORED, &d_momentum_not_restored,
                          "%s: momentum %.5g, where %g is right", name, update_of(wrong)->momentum,
                          MOMENTUM);
        free(name);
    } else {
        report_ok(report, RESTORED);
    }
    free(rows.items);
}
