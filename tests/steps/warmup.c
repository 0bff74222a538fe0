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

bool in_warmup(const RateOfUpdate *update)
{
    return update->epoch < WARMUP_EPOCHS;
}

const RateOfUpdate *update_at(Moment moment)
{
    return &moment.training->of[moment.rank].items[moment.number];
}

char *moment_name(Moment moment)
{
    const RateOfUpdate *update = update_at(moment);
    return format_text("rank %d, epoch %d, batch %d of %.0f", moment.rank, update->epoch + 1,
                       update->step + 1, moment.training->steps);
}

double batch_number(Moment moment)
{
    const RateOfUpdate *update = update_at(moment);
    return update->epoch * moment.training->steps + update->step;
}

Row warmup_row(Moment moment, double shown)
{
    Row row = row_of_rank(moment.training->run, moment.rank, shown);
    row.of = moment.training;
    row.at = moment.number;
    row.relative = 1e-5;
    return row;
}

Moment moment_of(const Row *row)
{
    return (Moment){row->of, rank_of_row(row), row->at};
}

const RateOfUpdate *update_of(Cell cell)
{
    return update_at(moment_of(cell.row));
}

void warmup_add(Rows *rows, const WarmupRun *t, int rank, WarmupPart where)
{
    for (int i = 0; i < t->of[rank].count; i++) {
        Moment moment = {t, rank, i};
        Row row = warmup_row(moment, update_at(moment)->learning_rate);
        if (in_warmup(update_at(moment)) == (where == WITHIN))
            rows_add(rows, &row);
    }
}

bool first_wrong_rate(const WarmupRun *t, const RateRule *rule, Moment *moment, double *right)
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
            *moment = moment_of(wrong);
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

bool judge_warmup_rates(const Runs *runs, const WarmupRuns *all, const RateRule *rule,
                        Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const WarmupRun *t = &all->items[i];
        Moment moment;
        double right;
        if (!first_wrong_rate(t, rule, &moment, &right))
            continue;
        char *name = moment_name(moment);
        char *evidence = format_text("%s: learning rate %.5g, where %.5g is right\n%d workers, "
                                     "%g the rate of one device, a warm-up of %d epochs",
                                     name, update_at(moment)->learning_rate, right, t->run->ranks,
                                     t->lr, WARMUP_EPOCHS);
        add_rates(&evidence, t, moment.rank);
        report_failure(report, rule->property, rule->diagnose(all),
                       evidence_in(runs, t->run, evidence));
        free(name);
        return false;
    }
    return report_ok(report, rule->property);
}
