// The rates of a warm-up, on the line and after it: which of the known formulas tells what they
// are, and the mistake that it stands for. What is right in the first epochs is a line. What is
// known of any rate that goes by the number of workers is in rates.c.

#include "warmup.h"
#include "diagnoses/warmup_rates.h"

#include <math.h>

#define LINE "until then it rises with every batch, on a straight line from that of one device"

// Of an epoch, as the program has it.
static double schedule(int epoch)
{
    return epoch < 6 ? 1 : 0.1;
}

// ---- What the rate of an update may be.

// The part of `all` that `done` is.
static double part(Variant variant, double done, double all)
{
    if (variant == END_TO_END)
        return all > 1 ? done / (all - 1) : 1;
    return (done + (variant == AT_END)) / all;
}

// Of a warm-up of so many epochs, to `factor` times the rate of one device.
static double line(Moment moment, Variant variant, double epochs, double factor)
{
    const WarmupRun *t = moment.training;
    double way = part(variant, batch_number(moment), epochs * t->steps);
    return t->lr * (1 + (factor - 1) * way);
}

static double size_of(Moment moment)
{
    return moment.training->run->ranks;
}

static double local_size_of(Moment moment)
{
    return run_local_size(moment.training->run, moment.rank);
}

static double right_line(Moment moment, Variant variant, int number)
{
    (void)number;
    return line(moment, variant, WARMUP_EPOCHS, size_of(moment));
}

static double local_line(Moment moment, Variant variant, int number)
{
    (void)number;
    return line(moment, variant, WARMUP_EPOCHS, local_size_of(moment));
}

static double line_from_scaled(Moment moment, Variant variant, int number)
{
    (void)number;
    return size_of(moment) * line(moment, variant, WARMUP_EPOCHS, size_of(moment));
}

// A warm-up of `number` epochs; 0: of all that the run has.
static double line_of_epochs(Moment moment, Variant variant, int number)
{
    double epochs = number > 0 ? number : run_flag(moment.training->run, "--epochs ");
    double full = moment.training->lr * size_of(moment);
    return fmin(line(moment, variant, epochs, size_of(moment)), full);
}

static double line_from_zero(Moment moment, Variant variant, int number)
{
    (void)number;
    const WarmupRun *t = moment.training;
    return t->lr * size_of(moment) * part(variant, batch_number(moment), WARMUP_EPOCHS * t->steps);
}

static double staircase(Moment moment, Variant variant, int number)
{
    (void)number;
    double way = part(variant, update_at(moment)->epoch, WARMUP_EPOCHS);
    return moment.training->lr * (1 + (size_of(moment) - 1) * way);
}

// Again in each epoch, to 1 / `number` of the way.
static double saw(Moment moment, Variant variant, int number)
{
    const WarmupRun *t = moment.training;
    double way = part(variant, update_at(moment)->step, t->steps) / number;
    return t->lr * (1 + (size_of(moment) - 1) * way);
}

// A way that is a division of whole numbers: 0 until it is 1.
static double whole_way(Moment moment, Variant variant, int number)
{
    (void)number;
    const WarmupRun *t = moment.training;
    double way = floor(part(variant, batch_number(moment), WARMUP_EPOCHS * t->steps));
    return t->lr * (1 + (size_of(moment) - 1) * way);
}

static double full_rate(Moment moment, Variant variant, int number)
{
    (void)variant, (void)number;
    return moment.training->lr * size_of(moment);
}

static double one_devices(Moment moment, Variant variant, int number)
{
    (void)variant, (void)number;
    return moment.training->lr;
}

static double as_scheduled(Moment moment, double factor)
{
    return moment.training->lr * factor * schedule(update_at(moment)->epoch);
}

static double right_after(Moment moment, Variant variant, int number)
{
    (void)variant, (void)number;
    return as_scheduled(moment, size_of(moment));
}

static double unscaled_after(Moment moment, Variant variant, int number)
{
    (void)variant, (void)number;
    return as_scheduled(moment, 1);
}

static double local_after(Moment moment, Variant variant, int number)
{
    (void)variant, (void)number;
    return as_scheduled(moment, local_size_of(moment));
}

static double squared_after(Moment moment, Variant variant, int number)
{
    (void)variant, (void)number;
    return as_scheduled(moment, size_of(moment) * size_of(moment));
}

static double divided_after(Moment moment, Variant variant, int number)
{
    (void)variant, (void)number;
    return as_scheduled(moment, 1 / size_of(moment));
}

static double rank_after(Moment moment, Variant variant, int number)
{
    (void)variant, (void)number;
    return as_scheduled(moment, moment.rank);
}

// On the line until the schedule lowers the rate, if it ever does.
static double line_goes_on(Moment moment, Variant variant, int number)
{
    double rate = line(moment, variant, WARMUP_EPOCHS, size_of(moment));
    return number && schedule(update_at(moment)->epoch) < 1 ? right_after(moment, variant, number)
                                                            : rate;
}

// A warm-up of `number` epochs, then as scheduled.
static double longer_line(Moment moment, Variant variant, int number)
{
    return update_at(moment)->epoch < number ? line_of_epochs(moment, variant, number)
                                             : right_after(moment, variant, number);
}

// On the line for `number` epochs, beyond its end, then as scheduled.
static double line_too_far(Moment moment, Variant variant, int number)
{
    return update_at(moment)->epoch < number ? right_line(moment, variant, number)
                                             : right_after(moment, variant, number);
}

static double rank_line(Moment moment, Variant variant, int number)
{
    (void)number;
    return line(moment, variant, WARMUP_EPOCHS, moment.rank);
}

// ---- Rates that are wrong.

#define MAX_EPOCHS 40 // of a warm-up that is guessed

static bool some_number_explains(const WarmupRuns *all, WarmupPart where, Formula formula, int from)
{
    for (int number = from; number <= MAX_EPOCHS; number++)
        if (formula_explains(all, where, formula, number))
            return true;
    return false;
}

static const Diagnosis *diagnose_after(const WarmupRuns *all)
{
    static const struct {
        Formula formula;
        int number;
        const Diagnosis *diagnosis;
    } known[] = {{local_after, 0, &d_rate_by_local_size}, {squared_after, 0, &d_rate_scaled_twice},
                 {divided_after, 0, &d_rate_divided},     {rank_after, 0, &d_rate_by_rank},
                 {line_goes_on, 0, &d_warmup_never_ends}, {line_goes_on, 1, &d_warmup_never_ends},
                 {full_rate, 0, &d_schedule_overridden},  {line_of_epochs, 0, &d_warmup_too_long}};
    if (formula_explains(all, BEYOND, unscaled_after, 0))
        return formula_explains(all, WITHIN, right_line, 0) ? &d_scaled_but_reset
                                                            : &d_rate_not_scaled;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (formula_explains(all, BEYOND, known[i].formula, known[i].number))
            return known[i].diagnosis;
    if (some_number_explains(all, BEYOND, longer_line, WARMUP_EPOCHS + 1) ||
        some_number_explains(all, BEYOND, line_too_far, WARMUP_EPOCHS + 1))
        return &d_warmup_too_long;
    return &d_rate_wrong;
}

// True where it rises with each batch of all warm-ups, and comes near the rate of all workers.
static bool rises(const WarmupRuns *all)
{
    for (int i = 0; i < all->count; i++) {
        const WarmupRun *t = &all->items[i];
        double last = 0, full = t->lr * t->run->ranks;
        if (t->run->ranks == 1)
            continue;
        for (int u = 0; u < t->of[0].count && in_warmup(&t->of[0].items[u]); u++) {
            if (!(t->of[0].items[u].learning_rate > last))
                return false;
            last = t->of[0].items[u].learning_rate;
        }
        if (!(last > 0.8 * full && last < 1.01 * full))
            return false;
    }
    return true;
}

static bool shorter_explains(const WarmupRuns *all)
{
    for (int number = 1; number < WARMUP_EPOCHS; number++)
        if (formula_explains(all, WITHIN, line_of_epochs, number))
            return true;
    return false;
}

static const Diagnosis *diagnose_line(const WarmupRuns *all)
{
    static const struct {
        Formula formula;
        int number;
        const Diagnosis *diagnosis;
    } known[] = {{full_rate, 0, &d_warmup_missing},
                 {one_devices, 0, &d_warmup_missing_never_scaled},
                 {whole_way, 0, &d_warmup_wrong_whole_numbers},
                 {staircase, 0, &d_warmup_by_epoch},
                 {saw, 1, &d_warmup_in_each_epoch},
                 {saw, WARMUP_EPOCHS, &d_warmup_in_each_epoch},
                 {line_from_zero, 0, &d_warmup_from_zero},
                 {line_from_scaled, 0, &d_warmup_from_scaled},
                 {local_line, 0, &d_rate_by_local_size}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (formula_explains(all, WITHIN, known[i].formula, known[i].number))
            return known[i].diagnosis;
    if (formula_explains(all, WITHIN, line_of_epochs, 0) ||
        some_number_explains(all, WITHIN, line_of_epochs, WARMUP_EPOCHS + 1))
        return formula_explains(all, BEYOND, right_after, 0) ? &d_warmup_not_straight_too_flat
                                                             : &d_warmup_too_long;
    if (shorter_explains(all))
        return &d_warmup_too_short;
    return rises(all) ? &d_warmup_not_straight : &d_warmup_wrong;
}

const RateRule rates_in_warmup = {LINE, WITHIN, right_line, diagnose_line};
const RateRule rates_after_warmup = {SCALED, BEYOND, right_after, diagnose_after};

// True where the formula explains the last rate of every rank.
static bool explains_last(const WarmupRun *t, Formula formula)
{
    for (Variant variant = 0; variant < VARIANTS; variant++) {
        bool good = true;
        for (int r = 0; r < t->run->ranks && good; r++) {
            Moment moment = {t, r, t->of[r].count - 1};
            good = same_rate(update_at(moment)->learning_rate, formula(moment, variant, 0));
        }
        if (good)
            return true;
    }
    return false;
}

const Diagnosis *wrong_last_rates(const WarmupRun *t)
{
    static const struct {
        Formula formula;
        const Diagnosis *diagnosis;
    } known[] = {{rank_after, &d_rate_by_rank},
                 {rank_line, &d_rate_by_rank},
                 {local_after, &d_rate_by_local_size},
                 {local_line, &d_rate_by_local_size}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains_last(t, known[i].formula))
            return known[i].diagnosis;
    return NULL;
}
