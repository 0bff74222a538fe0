// Warm-up: the learning rate and the momentum of every update. What is right in the first epochs is
// a line, and a batch may have the rate at its end, as the program asks for, or that at its
// beginning, as others define it.

#include "end.h"
#include "mean.h"
#include "rates.h"

#include <math.h>
#include <stdlib.h>

#define SCALED                                                                                     \
    "after the warm-up the learning rate is that of one device, times the number of workers"
#define LINE      "until then it rises with every batch, on a straight line from that of one device"
#define CORRECTED "each rise of the rate raises the momentum of its batch as much"
#define RESTORED  "after the warm-up momentum is the optimizer's own"

// As the program has them.
#define WARMUP_EPOCHS 3
#define MOMENTUM      0.9

static double schedule(int epoch)
{
    return epoch < 6 ? 1 : 0.1;
}

// ---- A run's updates.

typedef struct {
    const Run *run;
    Rates of[MAX_RANKS];
    double lr; // of one device
    double steps;
} Training;

typedef struct {
    Training *items;
    int count;
} Trainings;

static Trainings read_trainings(const Runs *runs)
{
    Trainings all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        all.items[i] = (Training){
            .run = run, .lr = run_flag(run, "--base-lr "), .steps = steps_per_epoch(run)};
        for (int r = 0; r < run->ranks; r++)
            all.items[i].of[r] = rates_read(run, r);
    }
    return all;
}

static void free_trainings(Trainings *all)
{
    for (int i = 0; i < all->count; i++)
        for (int r = 0; r < all->items[i].run->ranks; r++)
            free(all->items[i].of[r].items);
    free(all->items);
}

static bool in_warmup(const RateOfUpdate *update)
{
    return update->epoch < WARMUP_EPOCHS;
}

// One update of one rank.
typedef struct {
    const Training *training;
    int rank, number;
} Moment;

static const RateOfUpdate *update_at(Moment moment)
{
    return &moment.training->of[moment.rank].items[moment.number];
}

// "rank 0, epoch 2, batch 1 of 3".
static char *moment_name(Moment moment)
{
    const RateOfUpdate *update = update_at(moment);
    return format_text("rank %d, epoch %d, batch %d of %.0f", moment.rank, update->epoch + 1,
                       update->step + 1, moment.training->steps);
}

// ---- What the rate of an update may be, right or wrong. On its way a rate may be that of the
// batch's end, or of its beginning, or such that the first batch has the line's first point and the
// last batch its last one.

typedef enum { AT_END, AT_BEGIN, END_TO_END, VARIANTS } Variant;

// The part of `all` that `done` is.
static double part(Variant variant, double done, double all)
{
    if (variant == END_TO_END)
        return all > 1 ? done / (all - 1) : 1;
    return (done + (variant == AT_END)) / all;
}

static double batch_number(Moment moment)
{
    const RateOfUpdate *update = update_at(moment);
    return update->epoch * moment.training->steps + update->step;
}

// Of a warm-up of so many epochs, to `factor` times the rate of one device.
static double line(Moment moment, Variant variant, double epochs, double factor)
{
    const Training *t = moment.training;
    double way = part(variant, batch_number(moment), epochs * t->steps);
    return t->lr * (1 + (factor - 1) * way);
}

// `number` is of use to some.
typedef double (*Formula)(Moment moment, Variant variant, int number);

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
    const Training *t = moment.training;
    return t->lr * size_of(moment) * part(variant, batch_number(moment), WARMUP_EPOCHS * t->steps);
}

static double staircase(Moment moment, Variant variant, int number)
{
    (void)number;
    double way = part(variant, update_at(moment)->epoch, WARMUP_EPOCHS);
    return moment.training->lr * (1 + (size_of(moment) - 1) * way);
}

// Anew in each epoch, to 1 / `number` of the way.
static double saw(Moment moment, Variant variant, int number)
{
    const Training *t = moment.training;
    double way = part(variant, update_at(moment)->step, t->steps) / number;
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

// Beyond the warm-up, or within.
typedef enum { WITHIN, BEYOND } Part;

// How many updates of that part of the rank's training the formula explains before the first one
// that it does not, whose moment is `*other`; -1: all.
static int explained(const Training *t, int rank, Part where, Formula formula, Variant variant,
                     int number, Moment *other)
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

static bool explains_run(const Training *t, Part where, Formula formula, Variant variant,
                         int number)
{
    Moment other;
    for (int r = 0; r < t->run->ranks; r++)
        if (explained(t, r, where, formula, variant, number, &other) >= 0)
            return false;
    return true;
}

// True where the formula explains that part of all runs, in one variant.
static bool explains(const Trainings *all, Part where, Formula formula, int number)
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

// The first update of the run that is not what it should be in the variant that explains most.
static bool first_wrong(const Training *t, Part where, Formula right, Variant *variant,
                        Moment *moment)
{
    for (int r = 0; r < t->run->ranks; r++) {
        int most = -1;
        for (Variant v = 0; v < VARIANTS; v++) {
            Moment other;
            int count = explained(t, r, where, right, v, 0, &other);
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

// ---- Rates that are wrong.

static const Diagnosis not_scaled = {
    "rate-not-scaled",
    "the learning rate is that of one device, on any number of workers. The optimizer and the "
    "schedule want that of all: times hvd_size().",
    NULL};
static const Diagnosis reset = {
    "scaled-but-reset",
    "the warm-up leads to the rate of all workers, and then the rate is that of one device again: "
    "the schedule sets it at the beginning of every epoch, and has to begin from the scaled "
    "rate, too.",
    NULL};
static const Diagnosis local = {
    "rate-by-local-size",
    "the learning rate is multiplied by hvd_local_size(), the workers of one machine. All workers "
    "share the update: hvd_size().",
    NULL};
static const Diagnosis by_rank = {
    "rate-by-rank",
    "the learning rate is multiplied by hvd_rank(), this worker's own number: each has another "
    "one, and the root's is 0.",
    NULL};
static const Diagnosis scaled_twice = {
    "rate-scaled-twice", "the learning rate is multiplied by the number of workers twice.", NULL};
static const Diagnosis divided = {
    "rate-divided",
    "the learning rate is divided by the number of workers. N workers make one update from N times "
    "as many images, so it may be a longer step.",
    NULL};
static const Diagnosis never_ends = {
    "warmup-never-ends",
    "the rate goes on rising: nothing ends the warm-up. After its epochs the callback leaves the "
    "rate alone.",
    NULL};
static const Diagnosis overridden = {
    "schedule-overridden",
    "the warm-up ends at the right rate, but goes on setting it, so that the schedule can't lower "
    "it any more.",
    NULL};
static const Diagnosis too_long = {
    "warmup-too-long",
    "the warm-up lasts longer than the epochs that it was given. (Epochs count from 0: the first "
    "one after it has the number warmup->epochs.)",
    NULL};
static const Diagnosis wrong_after = {
    "rate-wrong",
    "after the warm-up the rate of each epoch is the schedule's, for the learning rate of one "
    "device times hvd_size().",
    NULL};
static const Diagnosis missing = {
    "warmup-missing",
    "the rate is that of all workers from the first batch on: nothing leads there. (Is "
    "WARMUP_EPOCHS 3?)",
    NULL};
static const Diagnosis never_scaled = {
    "warmup-missing",
    "the rate stays that of one device as long as the warm-up lasts: nothing leads up from there.",
    NULL};
static const Diagnosis by_epoch = {
    "warmup-by-epoch",
    "the rate changes only from epoch to epoch, in jumps. It is to rise a little with every batch: "
    "training->step of training->steps of the epoch are over.",
    NULL};
static const Diagnosis each_epoch = {
    "warmup-in-each-epoch",
    "the rate begins anew in each epoch: only the batches of the current one are counted. "
    "training->step begins with 0 in every epoch.",
    NULL};
static const Diagnosis from_zero = {
    "warmup-from-zero",
    "the rate rises from 0. It is to begin at that of one device, which a small batch can bear.",
    NULL};
static const Diagnosis from_scaled = {
    "warmup-from-scaled",
    "the rate begins at that of all workers and rises from there: the callback needs that of one "
    "device.",
    NULL};
static const Diagnosis too_short = {
    "warmup-too-short",
    "the rate is that of all workers before the epochs of the warm-up are over.", NULL};
static const Diagnosis crooked = {
    "warmup-not-straight",
    "the rate rises with each batch, but not on a straight line from that of one device to that of "
    "all workers: a part of the way that is epochs done / warmup->epochs, the parts of an epoch "
    "counted, too.",
    NULL};
static const Diagnosis wrong_line = {
    "warmup-wrong",
    "how far the warm-up has come is the number of its batches that will be over with this one / "
    "the number that all its epochs have. At 0 the rate is that of one device, at 1 that of all "
    "workers.",
    NULL};

#define MOST_EPOCHS 40 // of a warm-up that is guessed

static bool some_number_explains(const Trainings *all, Part where, Formula formula, int from)
{
    for (int number = from; number <= MOST_EPOCHS; number++)
        if (explains(all, where, formula, number))
            return true;
    return false;
}

static const Diagnosis *diagnose_after(const Trainings *all)
{
    static const struct {
        Formula formula;
        int number;
        const Diagnosis *diagnosis;
    } known[] = {{local_after, 0, &local},       {squared_after, 0, &scaled_twice},
                 {divided_after, 0, &divided},   {rank_after, 0, &by_rank},
                 {line_goes_on, 0, &never_ends}, {line_goes_on, 1, &never_ends},
                 {full_rate, 0, &overridden},    {line_of_epochs, 0, &too_long}};
    if (explains(all, BEYOND, unscaled_after, 0))
        return explains(all, WITHIN, right_line, 0) ? &reset : &not_scaled;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, BEYOND, known[i].formula, known[i].number))
            return known[i].diagnosis;
    if (some_number_explains(all, BEYOND, longer_line, WARMUP_EPOCHS + 1) ||
        some_number_explains(all, BEYOND, line_too_far, WARMUP_EPOCHS + 1))
        return &too_long;
    return &wrong_after;
}

// True where it rises with each batch of all warm-ups, and comes near the rate of all workers.
static bool rises(const Trainings *all)
{
    for (int i = 0; i < all->count; i++) {
        const Training *t = &all->items[i];
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

static bool shorter_explains(const Trainings *all)
{
    for (int number = 1; number < WARMUP_EPOCHS; number++)
        if (explains(all, WITHIN, line_of_epochs, number))
            return true;
    return false;
}

static const Diagnosis *diagnose_line(const Trainings *all)
{
    static const struct {
        Formula formula;
        int number;
        const Diagnosis *diagnosis;
    } known[] = {{full_rate, 0, &missing},
                 {one_devices, 0, &never_scaled},
                 {staircase, 0, &by_epoch},
                 {saw, 1, &each_epoch},
                 {saw, WARMUP_EPOCHS, &each_epoch},
                 {line_from_zero, 0, &from_zero},
                 {line_from_scaled, 0, &from_scaled},
                 {local_line, 0, &local},
                 {line_of_epochs, 0, &too_long}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, WITHIN, known[i].formula, known[i].number))
            return known[i].diagnosis;
    if (some_number_explains(all, WITHIN, line_of_epochs, WARMUP_EPOCHS + 1))
        return &too_long;
    if (shorter_explains(all))
        return &too_short;
    return rises(all) ? &crooked : &wrong_line;
}

// "rates of rank 0: epoch 1: 0.004 to 0.006, epoch 2: ...".
static void add_rates(char **evidence, const Training *t, int rank)
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

static bool judge_rates(const Runs *runs, const Trainings *all, Part where, const char *property,
                        Report *report)
{
    Formula right = where == WITHIN ? right_line : right_after;
    for (int i = 0; i < all->count; i++) {
        const Training *t = &all->items[i];
        Variant variant = AT_END;
        Moment moment;
        if (!first_wrong(t, where, right, &variant, &moment))
            continue;
        char *name = moment_name(moment);
        char *evidence =
            format_text("%s: learning rate %.5g, where %.5g is right\n%d workers, "
                        "%g the rate of one device, a warm-up of %d epochs",
                        name, update_at(moment)->learning_rate, right(moment, variant, 0),
                        t->run->ranks, t->lr, WARMUP_EPOCHS);
        add_rates(&evidence, t, moment.rank);
        report_failure(report, property, where == WITHIN ? diagnose_line(all) : diagnose_after(all),
                       evidence_in(runs, t->run, evidence));
        free(name);
        return false;
    }
    report_ok(report, property);
    return true;
}

// ---- Momentum. That of the first update is no matter: nothing is remembered yet.

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
    return update_at(moment)->step > 0
               ? corrected(moment)
               : MOMENTUM * update_at(moment)->learning_rate / right_after(moment, AT_END, 0);
}

static double one_over(Moment moment)
{
    return rise(moment);
}

static bool first_other_momentum(const Training *t, Part where, MomentumFormula formula,
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

static bool momentum_explains(const Trainings *all, Part where, MomentumFormula formula)
{
    Moment other;
    for (int i = 0; i < all->count; i++)
        if (first_other_momentum(&all->items[i], where, formula, &other))
            return false;
    return true;
}

static const Diagnosis not_restored = {
    "momentum-not-restored",
    "the momentum of one batch is left for the next one, where it is corrected once more, or stays "
    "as it is. Each batch begins with the optimizer's own.",
    NULL};

static const Diagnosis *diagnose_momentum(const Trainings *all)
{
    static const Diagnosis not_corrected = {
        "momentum-not-corrected",
        "momentum is the same in all batches. What it remembers was made at lower rates than that "
        "of the batch, and would count too little beside it.",
        NULL};
    static const Diagnosis backwards = {
        "momentum-corrected-backwards",
        "momentum is multiplied by the old rate / the new one. What it remembers is too small for "
        "the new rate, so it has to grow: the new rate / the old one.",
        NULL};
    static const Diagnosis from_schedule = {
        "momentum-from-schedule",
        "in the first batch of an epoch, momentum is corrected as if the batch before had had the "
        "rate that the schedule has just set. That is what the optimizer has by then; the rate of "
        "the batch before has to be kept.",
        NULL};
    static const Diagnosis piled_up = {
        "momentum-piles-up",
        "momentum is multiplied by the rate / that of one device, so the corrections of all "
        "batches pile up. Either that of one batch is still there in the next, or the rate of the "
        "batch before is not kept anew in each.",
        NULL};
    static const Diagnosis without_own = {
        "momentum-wrong",
        "momentum is the quotient of the two rates alone. The optimizer's own is multiplied by it.",
        NULL};
    static const Diagnosis wrong = {
        "momentum-wrong",
        "a batch of the warm-up has the optimizer's own momentum, times its rate / the rate of "
        "the batch before.",
        NULL};
    static const struct {
        MomentumFormula formula;
        const Diagnosis *diagnosis;
    } known[] = {{uncorrected, &not_corrected},
                 {corrected_backwards, &backwards},
                 {corrected_from_schedule, &from_schedule},
                 {one_over, &without_own}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (momentum_explains(all, WITHIN, known[i].formula))
            return known[i].diagnosis;
    if (!momentum_explains(all, WITHIN, corrected_again))
        return &wrong;
    return momentum_explains(all, BEYOND, uncorrected) ? &piled_up : &not_restored;
}

static void judge_correction(const Runs *runs, const Trainings *all, Report *report)
{
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

static void judge_restored(const Runs *runs, const Trainings *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        Moment moment;
        if (!first_other_momentum(&all->items[i], BEYOND, uncorrected, &moment))
            continue;
        char *name = moment_name(moment);
        report_failure(report, RESTORED, &not_restored,
                       evidence_in(runs, all->items[i].run,
                                   format_text("%s: momentum %.5g, where %g is right", name,
                                               update_at(moment)->momentum, MOMENTUM)));
        free(name);
        return;
    }
    report_ok(report, RESTORED);
}

// ---- All of it.

// Where a training is over before the warm-up is, nothing can be said of what follows.
static bool too_few_epochs(const Runs *runs, const Trainings *all, Report *report)
{
    static const Diagnosis few = {"epochs-missing",
                                  "the program trains as many epochs as --epochs says.", NULL};
    for (int i = 0; i < all->count; i++) {
        const Training *t = &all->items[i];
        for (int r = 0; r < t->run->ranks; r++) {
            int count = t->of[r].count, trained = count ? t->of[r].items[count - 1].epoch + 1 : 0;
            if (trained >= run_flag(t->run, "--epochs "))
                continue;
            report_failure(report, SCALED, &few,
                           evidence_in(runs, t->run,
                                       format_text("rank %d trained %d epochs of %g", r, trained,
                                                   run_flag(t->run, "--epochs "))));
            return true;
        }
    }
    return false;
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, SCALED, report))
        return;
    Trainings all = read_trainings(runs);
    judge_mean(runs, report);
    if (!too_few_epochs(runs, &all, report)) {
        judge_rates(runs, &all, BEYOND, SCALED, report);
        if (judge_rates(runs, &all, WITHIN, LINE, report)) {
            judge_correction(runs, &all, report);
            judge_restored(runs, &all, report);
        }
    }
    free_trainings(&all);
}

// ---- Ranks that disagree in the rate are ended by the library.

static double rank_line(Moment moment, Variant variant, int number)
{
    (void)number;
    return line(moment, variant, WARMUP_EPOCHS, moment.rank);
}

// True where the formula explains the last rate of every rank.
static bool explains_last(const Training *t, Formula formula)
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

// The update that the ranks could not agree on becomes the last one. False where they did.
static bool add_disagreed_update(Training *t)
{
    for (int r = 0; r < t->run->ranks; r++) {
        Rates *rates = &t->of[r];
        RateOfUpdate next = {.learning_rate = rate_in_disagreement(t->run, r)};
        if (isnan(next.learning_rate))
            return false;
        long before = rates->count ? (long)batch_number((Moment){t, r, rates->count - 1}) : -1;
        next.epoch = (int)((before + 1) / (long)t->steps);
        next.step = (int)((before + 1) % (long)t->steps);
        rates->items[rates->count++] = next; // rates_read leaves room for one
    }
    return true;
}

static void name_disagreement(const Training *t, Report *report)
{
    static const struct {
        Formula formula;
        const Diagnosis *diagnosis;
    } known[] = {
        {rank_after, &by_rank}, {rank_line, &by_rank}, {local_after, &local}, {local_line, &local}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!explains_last(t, known[i].formula))
            continue;
        report_failure(report, SCALED, known[i].diagnosis,
                       evidence_of_run(t->run, format_text("the ranks have different rates, see "
                                                           "below; that of one device is %g",
                                                           t->lr)));
        return;
    }
}

// What is wrong by then may be why: a momentum above 1, say.
static void crashed(const Run *run, Report *report)
{
    Runs one = {.items = (Run *)(uintptr_t)run, .count = 1};
    Trainings all = read_trainings(&one);
    const Training *t = &all.items[0];
    Variant variant;
    Moment moment;
    if (add_disagreed_update(&all.items[0])) {
        name_disagreement(t, report);
    } else if (report_passed(report) && event_count(&run->traces.of[0], "step") > 0) {
        if (first_wrong(t, BEYOND, right_after, &variant, &moment))
            judge_rates(&one, &all, BEYOND, SCALED, report);
        if (first_wrong(t, WITHIN, right_line, &variant, &moment))
            judge_rates(&one, &all, WITHIN, LINE, report);
        else if (first_other_momentum(t, WITHIN, corrected, &moment))
            judge_correction(&one, &all, report);
    }
    free_trainings(&all);
}

#define DIFFER                                                                                     \
    {                                                                                              \
        "rates-differ",                                                                            \
            "the learning rate depends on the rank. All workers make the same update, at the "     \
            "same rate: "                                                                          \
            "often it was multiplied by hvd_rank() or hvd_local_size() instead of hvd_size().",    \
            NULL                                                                                   \
    }
static const Explanation explanations[] = {
    {"uses learning rate", DIFFER}, {"use learning rate", DIFFER}, {0}};
static const Ends ends = {.explanations = explanations, .crashed = crashed};

JUDGE("warmup", judge)
ENDS("warmup", &ends)
