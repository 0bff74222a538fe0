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

// How many updates of that part of the rank's training the formula explains before the first one
// that it does not, whose moment is `*other`; -1: all.
static int explained(const WarmupRun *t, int rank, WarmupPart where, Formula formula,
                     Variant variant, int number, Moment *other)
{
    int count = 0;
    for (int i = 0; i < t->of[rank].count; i++) {
        Moment moment = {t, rank, i};
        const RateOfUpdate *update = update_at(moment);
        if (in_warmup(update) != (where == WITHIN))
            continue;
        if (!same_rate(update->learning_rate, formula(moment, variant, number))) {
            *other = moment;
            return count;
        }
        count++;
    }
    return -1;
}

static bool explains_run(const WarmupRun *t, WarmupPart where, Formula formula, Variant variant,
                         int number)
{
    Moment other;
    for (int r = 0; r < t->run->ranks; r++)
        if (explained(t, r, where, formula, variant, number, &other) >= 0)
            return false;
    return true;
}

bool formula_explains(const WarmupRuns *all, WarmupPart where, Formula formula, int number)
{
    for (Variant variant = 0; variant < VARIANTS; variant++) {
        bool good = true;
        for (int i = 0; i < all->count && good; i++)
            good = explains_run(&all->items[i], where, formula, variant, number);
        if (good)
            return true;
    }
    return false;
}

bool first_wrong_rate(const WarmupRun *t, const RateRule *rule, Variant *variant, Moment *moment)
{
    for (int r = 0; r < t->run->ranks; r++) {
        int most = -1;
        for (Variant v = 0; v < VARIANTS; v++) {
            Moment other;
            int count = explained(t, r, rule->where, rule->right, v, 0, &other);
            if (count < 0) {
                most = -1;
                break;
            }
            if (count > most) {
                most = count;
                *variant = v;
                *moment = other;
            }
        }
        if (most >= 0)
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
        Variant variant = AT_END;
        Moment moment;
        if (!first_wrong_rate(t, rule, &variant, &moment))
            continue;
        char *name = moment_name(moment);
        char *evidence =
            format_text("%s: learning rate %.5g, where %.5g is right\n%d workers, "
                        "%g the rate of one device, a warm-up of %d epochs",
                        name, update_at(moment)->learning_rate, rule->right(moment, variant, 0),
                        t->run->ranks, t->lr, WARMUP_EPOCHS);
        add_rates(&evidence, t, moment.rank);
        report_failure(report, rule->property, rule->diagnose(all),
                       evidence_in(runs, t->run, evidence));
        free(name);
        return false;
    }
    return report_ok(report, rule->property);
}
