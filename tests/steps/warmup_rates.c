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

FORMULA(one_devices, ((const WarmupRun *)cell.row->of)->lr)
FORMULA(steps_of, ((const WarmupRun *)cell.row->of)->steps)
FORMULA(batch_of, batch_number(cell.row))

// That stands in the program, beside the variant.
static int epochs_of(Cell cell)
{
    return cell.number / VARIANTS;
}

// The part of `all` that `done` is.
static double part(Cell cell, double done, double all)
{
    int variant = cell.number % VARIANTS;
    if (variant == END_TO_END)
        return all > 1 ? done / (all - 1) : 1;
    return (done + (variant == AT_END)) / all;
}

// So far on the way to `factor` times the rate of one device.
static double rate_at(Cell cell, double way, double factor)
{
    return one_devices(cell) * (1 + (factor - 1) * way);
}

// Of a warm-up of so many epochs.
static double line(Cell cell, double epochs, double factor)
{
    return rate_at(cell, part(cell, batch_of(cell), epochs * steps_of(cell)), factor);
}

FORMULA(right_line, line(cell, WARMUP_EPOCHS, cell.row->ranks))
FORMULA(local_line, line(cell, WARMUP_EPOCHS, run_local_size(cell.row->run, cell.rank)))
FORMULA(rank_line, line(cell, WARMUP_EPOCHS, cell.rank))

// A warm-up of so many epochs; 0: of all that the run has.
static double line_of_epochs(Cell cell)
{
    double epochs = epochs_of(cell) > 0 ? epochs_of(cell) : run_flag(cell.row->run, "--epochs ");
    return fmin(line(cell, epochs, cell.row->ranks), one_devices(cell) * cell.row->ranks);
}

FORMULA(line_from_zero,
        one_devices(cell) * part(cell, batch_of(cell), steps_of(cell) * WARMUP_EPOCHS))
FORMULA(staircase,
        rate_at(cell, part(cell, update_of(cell.row)->epoch, WARMUP_EPOCHS), cell.row->ranks))

// The part of the epoch is a division of whole numbers: 0 until the epoch is over.
static double whole_epochs(Cell cell)
{
    double epoch = update_of(cell.row)->epoch,
           over = floor((update_of(cell.row)->step + 1) / steps_of(cell));
    return rate_at(cell, (epoch + over) / WARMUP_EPOCHS, cell.row->ranks);
}

// Again in each epoch, to one of so many parts of the way.
static double saw(Cell cell)
{
    double way = part(cell, update_of(cell.row)->step, steps_of(cell)) / epochs_of(cell);
    return rate_at(cell, way, cell.row->ranks);
}

// A way that is a division of whole numbers: 0 until it is 1.
static double whole_way(Cell cell)
{
    double way = part(cell, batch_of(cell), WARMUP_EPOCHS * steps_of(cell));
    return rate_at(cell, floor(way), cell.row->ranks);
}

FORMULA(scheduled, one_devices(cell) * schedule(update_of(cell.row)->epoch))
FORMULA(scheduled_by_size, scheduled(cell) * cell.row->ranks)
FORMULA(scheduled_by_rank, scheduled(cell) * cell.rank)

// To the rate that is there after the warm-up, right or not, if it is not that of one device.
static double line_to_goal(Cell cell)
{
    const Rates *rates = &((const WarmupRun *)cell.row->of)->of[cell.rank];
    int after = 0;
    while (after < rates->count && part_of(&rates->items[after]) == WITHIN)
        after++;
    double goal = after < rates->count ? rates->items[after].learning_rate : NAN;
    if (cell.row->ranks > 1 && same_rate(goal, one_devices(cell)))
        return NAN;
    return line(cell, WARMUP_EPOCHS, goal / one_devices(cell));
}

// On the line until the schedule lowers the rate, if it ever does.
FORMULA(line_goes_on, epochs_of(cell) && schedule(update_of(cell.row)->epoch) < 1
                          ? scheduled_by_size(cell)
                          : right_line(cell))

// A warm-up of so many epochs, then as scheduled.
FORMULA(longer_line, update_of(cell.row)->epoch < epochs_of(cell) ? line_of_epochs(cell)
                                                                  : scheduled_by_size(cell))

// On the line for so many epochs, beyond its end, then as scheduled.
FORMULA(line_too_far,
        update_of(cell.row)->epoch < epochs_of(cell) ? right_line(cell) : scheduled_by_size(cell))

// ---- Rates that are wrong.

#define MAX_EPOCHS 40 // of a warm-up that is guessed

static const Hypothesis on_the_line = {right_line, NULL, EPOCHS(0, 0)},
                        after_it = {scheduled, NULL, .by_ranks = -1};

static const Hypothesis known_after[] = {
    {scheduled, &d_rate_not_scaled, .by_ranks = 0},
    {scheduled, &d_rate_by_local_size, .by_local_size = -1},
    {scheduled, &d_rate_scaled_twice, .by_ranks = -2},
    {scheduled, &d_rate_divided, .by_ranks = 1},
    {scheduled_by_rank, &d_rate_by_rank, .by_ranks = 0},
    {line_goes_on, &d_warmup_never_ends, EPOCHS(0, 1)},
    {one_devices, &d_schedule_overridden, .by_ranks = -1},
    {line_of_epochs, &d_warmup_too_long, EPOCHS(0, 0)},
    {longer_line, &d_warmup_too_long, EPOCHS(WARMUP_EPOCHS + 1, MAX_EPOCHS)},
    {line_too_far, &d_warmup_too_long, EPOCHS(WARMUP_EPOCHS + 1, MAX_EPOCHS)},
    {scheduled, &d_rate_wrong_fixed_number, .by_number = -1, .from = 2, .to = MAX_RANKS - 1},
    {0},
};

static const Hypothesis known_on_the_line[] = {
    {one_devices, &d_warmup_missing, .by_ranks = -1},
    {one_devices, &d_warmup_missing_never_scaled, .by_ranks = 0},
    {whole_way, &d_warmup_wrong_whole_numbers, EPOCHS(0, 0)},
    {staircase, &d_warmup_by_epoch, EPOCHS(0, 0)},
    {whole_epochs, &d_warmup_by_epoch_whole_numbers, .by_ranks = 0},
    {saw, &d_warmup_in_each_epoch, EPOCHS(1, 1)},
    {saw, &d_warmup_in_each_epoch, EPOCHS(WARMUP_EPOCHS, WARMUP_EPOCHS)},
    {line_from_zero, &d_warmup_from_zero, .by_ranks = -1, EPOCHS(0, 0)},
    {right_line, &d_warmup_from_scaled, .by_ranks = -1, EPOCHS(0, 0)},
    {local_line, &d_rate_by_local_size, EPOCHS(0, 0)},
    {line_of_epochs, &d_warmup_too_long, EPOCHS(0, 0)},
    {line_of_epochs, &d_warmup_too_long, EPOCHS(WARMUP_EPOCHS + 1, MAX_EPOCHS)},
    {line_of_epochs, &d_warmup_too_short, EPOCHS(1, WARMUP_EPOCHS - 1)},
    {0},
};

// Of all ranks of all runs.
static Rows rates_of(const WarmupRuns *all, WarmupPart where)
{
    Rows rows = {NULL, 0};
    for (int i = 0; i < all->count; i++)
        for (int r = 0; r < all->items[i].run->ranks; r++)
            warmup_add(&rows, &all->items[i], r, where);
    return rows;
}

static const Diagnosis *diagnose_after(const WarmupRuns *all)
{
    const Diagnosis *diagnosis = diagnosis_of_taken(known_after, rates_of(all, BEYOND));
    if (diagnosis == &d_rate_not_scaled && explains_taken(&on_the_line, rates_of(all, WITHIN)))
        return &d_scaled_but_reset;
    return diagnosis ? diagnosis : &d_rate_wrong;
}

// True where it rises with each batch of all warm-ups, and comes near the rate of all workers.
static bool rises(const WarmupRuns *all)
{
    for (int i = 0; i < all->count; i++) {
        const WarmupRun *t = &all->items[i];
        double last = 0, full = t->lr * t->run->ranks;
        if (t->run->ranks == 1)
            continue;
        for (int u = 0; u < t->of[0].count && part_of(&t->of[0].items[u]) == WITHIN; u++) {
            if (!(t->of[0].items[u].learning_rate > last))
                return false;
            last = t->of[0].items[u].learning_rate;
        }
        if (!(last > 0.8 * full && last < 1.01 * full))
            return false;
    }
    return true;
}

// True where each epoch of all warm-ups begins at the rate of all workers, or above it.
static bool begins_scaled(const WarmupRuns *all)
{
    for (const WarmupRun *t = all->items; t < all->items + all->count; t++)
        for (int u = 0; u < t->of[0].count && part_of(&t->of[0].items[u]) == WITHIN; u++) {
            const RateOfUpdate *update = &t->of[0].items[u];
            double scaled = t->lr * t->run->ranks;
            if (update->step == 0 &&
                !(update->learning_rate > scaled || same_rate(update->learning_rate, scaled)))
                return false;
        }
    return true;
}

static const Diagnosis *diagnose_line(const WarmupRuns *all)
{
    const Diagnosis *diagnosis = diagnosis_of_taken(known_on_the_line, rates_of(all, WITHIN));
    if (diagnosis == &d_warmup_too_long && explains_taken(&after_it, rates_of(all, BEYOND)))
        return &d_warmup_not_straight_too_flat;
    return diagnosis            ? diagnosis
           : begins_scaled(all) ? &d_warmup_wrong_epochs_begin_scaled
           : rises(all)         ? &d_warmup_not_straight
                                : &d_warmup_wrong;
}

bool only_the_goal_is_wrong(const WarmupRuns *all)
{
    static const Hypothesis to_goal = {line_to_goal, NULL, EPOCHS(0, 0)};
    return !explains_taken(&on_the_line, rates_of(all, WITHIN)) &&
           explains_taken(&to_goal, rates_of(all, WITHIN));
}

const RateRule rates_in_warmup = {LINE, WITHIN, {right_line, NULL, EPOCHS(0, 0)}, diagnose_line};
const RateRule rates_after_warmup = {
    SCALED, BEYOND, {scheduled, NULL, .by_ranks = -1}, diagnose_after};

const Diagnosis *wrong_last_rates(const WarmupRun *t)
{
    static const Hypothesis known[] = {
        {scheduled_by_rank, &d_rate_by_rank, .by_ranks = 0},
        {rank_line, &d_rate_by_rank, EPOCHS(0, 0)},
        {scheduled, &d_rate_by_local_size, .by_local_size = -1},
        {local_line, &d_rate_by_local_size, EPOCHS(0, 0)},
        {0},
    };
    Rows rows = {NULL, 0};
    for (int r = 0; r < t->run->ranks; r++) {
        Row row = warmup_row(t, r, t->of[r].count - 1);
        rows_add(&rows, &row);
    }
    return diagnosis_of_taken(known, rows);
}
