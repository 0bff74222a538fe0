// Reads the updates, and looks which formulas explain their rates; warmup.h says what is promised.

#include "warmup.h"

#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"

WarmupRuns warmup_runs(const Runs *runs)
{
    WarmupRuns all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        all.items[i] = (WarmupRun){
            .run = run, .lr = run_flag(run, "--base-lr "), .steps = steps_per_epoch(run)};
        for (int r = 0; r < run->ranks; r++)
            all.items[i].of[r] = rates_read(run, r);
    }
    return all;
}

void warmup_runs_free(WarmupRuns *all)
{
    for (int i = 0; i < all->count; i++)
        for (int r = 0; r < all->items[i].run->ranks; r++)
            free(all->items[i].of[r].items);
    free(all->items);
}

const RateOfUpdate *update_of(const Row *row)
{
    return &((const WarmupRun *)row->of)->of[rank_of_row(row)].items[row->at];
}

WarmupPart part_of(const RateOfUpdate *update)
{
    return update->epoch < WARMUP_EPOCHS ? WITHIN : BEYOND;
}

char *moment_name(const Row *row)
{
    return format_text("rank %d, epoch %d, batch %d of %.0f", rank_of_row(row),
                       update_of(row)->epoch + 1, update_of(row)->step + 1,
                       ((const WarmupRun *)row->of)->steps);
}

double batch_number(const Row *row)
{
    return update_of(row)->epoch * ((const WarmupRun *)row->of)->steps + update_of(row)->step;
}

Row warmup_row(const WarmupRun *t, int rank, int number)
{
    Row row = row_of_rank(t->run, rank, t->of[rank].items[number].learning_rate);
    row.of = t;
    row.at = number;
    row.relative = 1e-5;
    return row;
}

void warmup_add(Rows *rows, const WarmupRun *t, int rank, WarmupPart where)
{
    for (int i = 0; i < t->of[rank].count; i++) {
        Row row = warmup_row(t, rank, i);
        if (part_of(update_of(&row)) == where)
            rows_add(rows, &row);
    }
}

bool first_wrong_rate(const WarmupRun *t, const RateRule *rule, Row *first, double *right)
{
    for (int r = 0; r < t->run->ranks; r++) {
        Rows rows = {NULL, 0};
        warmup_add(&rows, t, r, rule->where);
        const Row *last = NULL;
        Hypothesis hypothesis = rule->right;
        for (int variant = 0; variant < VARIANTS; variant++) {
            hypothesis.from = hypothesis.to = variant;
            const Row *wrong = first_unexplained(&hypothesis, &rows);
            if (wrong && last && wrong <= last)
                continue;
            last = wrong;
            if (!wrong)
                break;
            *first = *wrong;
            *right = hypothesis_value(&hypothesis, wrong, r);
        }
        free(rows.items);
        if (last)
            return true;
    }
    return false;
}

// "rates of rank 0: epoch 1: 0.004 to 0.006, epoch 2: ...".
static void add_rates(char **evidence, const WarmupRun *t, int rank)
{
    const Rates *rates = &t->of[rank];
    double first = 0;
    text_add(evidence, "\nrates of rank %d:", rank);
    for (int i = 0; i < rates->count; i++) {
        const RateOfUpdate *update = &rates->items[i];
        if (update->step == 0) {
            first = update->learning_rate;
            text_add(evidence, "%s epoch %d: %.5g", i ? "," : "", update->epoch + 1, first);
        }
        if (update->step == t->steps - 1 && update->learning_rate != first)
            text_add(evidence, " to %.5g", update->learning_rate);
    }
}

bool judge_warmup_rates(const WarmupRuns *all, const RateRule *rule, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const WarmupRun *t = &all->items[i];
        Row row;
        double right;
        if (!first_wrong_rate(t, rule, &row, &right))
            continue;
        char *name = moment_name(&row);
        char *evidence = format_text("%s: learning rate %.5g, where %.5g is right\n%d workers, "
                                     "%g the rate of one device, a warm-up of %d epochs",
                                     name, update_of(&row)->learning_rate, right, t->run->ranks,
                                     t->lr, WARMUP_EPOCHS);
        add_rates(&evidence, t, rank_of_row(&row));
        report_failure(report, rule->property, rule->diagnose(all),
                       evidence_of_run(t->run, evidence));
        free(name);
        return false;
    }
    return report_ok(report, rule->property);
}
