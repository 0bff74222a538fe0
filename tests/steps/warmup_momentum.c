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

static double rate_before(Moment moment)
{
    return update_at((Moment){moment.training, moment.rank, moment.number - 1})->learning_rate;
}

static double momentum_before(Moment moment)
{
    return update_at((Moment){moment.training, moment.rank, moment.number - 1})->momentum;
}

static double rise(Moment moment)
{
    return update_at(moment)->learning_rate / rate_before(moment);
}

typedef double (*MomentumFormula)(Moment moment);

static double corrected(Moment moment)
{
    return MOMENTUM * rise(moment);
}

static double uncorrected(Moment moment)
{
    (void)moment;
    return MOMENTUM;
}

static double corrected_again(Moment moment)
{
    return momentum_before(moment) * rise(moment);
}

static double corrected_backwards(Moment moment)
{
    return MOMENTUM / rise(moment);
}

// As if the rate before an epoch's first batch had been what the schedule has just set.
static double corrected_from_schedule(Moment moment)
{
    return update_at(moment)->step > 0 ? corrected(moment)
                                       : MOMENTUM * update_at(moment)->learning_rate /
                                             rates_after_warmup.right(moment, AT_END, 0);
}

static double one_over(Moment moment)
{
    return rise(moment);
}

static bool first_other_momentum(const WarmupRun *t, WarmupPart where, MomentumFormula formula,
                                 Moment *other)
{
    for (int r = 0; r < t->run->ranks; r++)
        for (int i = 1; i < t->of[r].count; i++) {
            Moment moment = {t, r, i};
            const RateOfUpdate *update = update_at(moment);
            if (in_warmup(update) != (where == WITHIN))
                continue;
            // After the warm-up one may correct for what the schedule does, as Goyal et al. do.
            if (same_rate(update->momentum, formula(moment)) ||
                (where == BEYOND && same_rate(update->momentum, corrected(moment))))
                continue;
            *other = moment;
            return true;
        }
    return false;
}

static bool momentum_explains(const WarmupRuns *all, WarmupPart where, MomentumFormula formula)
{
    Moment other;
    for (int i = 0; i < all->count; i++)
        if (first_other_momentum(&all->items[i], where, formula, &other))
            return false;
    return true;
}

bool is_momentum_wrong(const WarmupRun *t)
{
    Moment moment;
    return first_other_momentum(t, WITHIN, corrected, &moment) &&
           first_other_momentum(t, WITHIN, uncorrected, &moment);
}

static const Diagnosis *diagnose_momentum(const WarmupRuns *all)
{
    static const struct {
        MomentumFormula formula;
        const Diagnosis *diagnosis;
    } known[] = {{corrected_backwards, &d_momentum_corrected_backwards},
                 {corrected_from_schedule, &d_momentum_from_schedule},
                 {one_over, &d_momentum_wrong_own_missing}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (momentum_explains(all, WITHIN, known[i].formula))
            return known[i].diagnosis;
    if (!momentum_explains(all, WITHIN, corrected_again))
        return &d_momentum_wrong;
    return momentum_explains(all, BEYOND, uncorrected) ? &d_momentum_piles_up
                                                       : &d_momentum_not_restored;
}

void judge_momentum_within(const Runs *runs, const WarmupRuns *all, Report *report)
{
    if (momentum_explains(all, WITHIN, uncorrected)) {
        report_note(report, "the momentum stays the optimizer's own in every batch of the warm-up "
                            "(a factor of 1, if you correct it); to pass, that part is not needed");
        return;
    }
    for (int i = 0; i < all->count; i++) {
        Moment moment;
        if (!first_other_momentum(&all->items[i], WITHIN, corrected, &moment))
            continue;
        char *name = moment_name(moment);
        char *evidence = format_text(
            "%s: momentum %.5g\nthe rate went from %.5g to %.5g: %g * %.5g / %.5g = %.5g", name,
            update_at(moment)->momentum, rate_before(moment), update_at(moment)->learning_rate,
            MOMENTUM, update_at(moment)->learning_rate, rate_before(moment), corrected(moment));
        report_failure(report, CORRECTED, diagnose_momentum(all),
                       evidence_in(runs, all->items[i].run, evidence));
        free(name);
        return;
    }
    report_ok(report, CORRECTED);
}

void judge_momentum_beyond(const Runs *runs, const WarmupRuns *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        Moment moment;
        if (!first_other_momentum(&all->items[i], BEYOND, uncorrected, &moment))
            continue;
        char *name = moment_name(moment);
        report_failure_in(report, runs, all->items[i].run, RESTORED, &d_momentum_not_restored,
                          "%s: momentum %.5g, where %g is right", name, update_at(moment)->momentum,
                          MOMENTUM);
        free(name);
        return;
    }
    report_ok(report, RESTORED);
}
