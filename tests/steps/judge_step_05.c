// Step 5: the ranks share the epoch's steps, and validate on three times the test set together.
// Rounded up, down or to nearest, as one likes.

#include "hypotheses.h"

#include <math.h>
#include <stdlib.h>
#include "six_steps.h"
#include "diagnoses/judge_step_05.h"

#define EPOCHS     "the number of epochs is the command line's"
#define TRAINING   "all ranks together make as many steps as one device would"
#define VALIDATION "all ranks together validate on 3 times the test set"
#define MAX_FIXED  8

// What a rank asked fit() for.
static double asked(const Run *run, int rank, const char *field)
{
    return event_number(event_nth(&run->traces.of[rank], "fit", 0), field);
}

static double images_of_all(const Run *run, const char *field)
{
    double images = 0;
    for (int r = 0; r < run->ranks; r++)
        images += asked(run, r, field);
    return images;
}

// Whether the ranks have shared out the images themselves: those of all together are the set, or all but a remainder.
static bool shared_out(const Run *run, const char *field)
{
    double rest = run_flag(run, "--images ") - images_of_all(run, field);
    return run->ranks > 1 && rest >= 0 && rest < run->ranks;
}

// The fields of event fit on a set.
typedef struct {
    const char *images, *length, *batch;
} Set;

static const Set train = {"train_images", "train_len", "train_batch"},
                 validated = {"validation_images", "validation_len", "validation_batch"};

// The batches of the whole set, which may be shared out.
static double batches_of_set(const Run *run, int rank, const Set *set)
{
    return shared_out(run, set->images)
               ? ceil(run_flag(run, "--images ") / asked(run, rank, set->batch))
               : asked(run, rank, set->length);
}

// ---- Numbers of steps. A row for each run: what a rank has of its own are the batches of the set, times
// 3 where it is validated on.

typedef struct {
    const char *property, *field, *name;
    const Set *set, *other_set;
    int times;
} Steps;

static const Steps training = {TRAINING, "steps", "steps_per_epoch", &train, &validated, 1},
                   validation = {
                       VALIDATION, "validation_steps", "validation_steps", &validated, &train, 3};

// A rank rounds what a formula gives down, up or to nearest, all ranks alike: so the formula gives
// something between the number and the next one, or the last one, or half of each.
enum { DOWN, UP, NEAREST, ROUNDINGS };
static const double middle[ROUNDINGS] = {0.5 - 1e-6, -0.5 + 1e-6, -1e-6};

static Rows rows_of(const Runs *runs, const Steps *steps, int rounding)
{
    Rows rows = {NULL, 0};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Row row = {.run = run, .of = steps, .ranks = run->ranks, .allowed = 0.5};
        for (int r = 0; r < run->ranks; r++) {
            row.own[r] = steps->times * batches_of_set(run, r, steps->set);
            row.shown[r] = asked(run, r, steps->field) + middle[rounding];
        }
        rows_add(&rows, &row);
    }
    return rows;
}

static double of_other_set(Cell cell)
{
    const Steps *steps = cell.row->of;
    return steps->times * batches_of_set(cell.row->run, cell.rank, steps->other_set);
}

FORMULA(images, run_flag(cell.row->run, "--images "))

static double rounded_first(Cell cell)
{
    double share = own_number(cell) / 3 / cell.row->ranks;
    return 3 * (cell.number == DOWN ? floor(share)
                : cell.number == UP ? ceil(share)
                                    : round(share));
}

static const Hypothesis known_of_training[] = {
    {own_number, &d_steps_not_divided, .by_ranks = 0},
    {own_number, &d_divided_by_local_size, .by_local_size = 1},
    {own_number, &d_number_of_workers_fixed, .by_number = 1, .from = 2, .to = MAX_FIXED},
    {images, &d_steps_wrong_from_images, .by_ranks = 1},
    {of_other_set, &d_steps_wrong_other_set, .by_ranks = 1},
    {0},
};

static const Hypothesis known_of_validation[] = {
    {own_number, &d_validation_not_divided, .by_number = 1, .from = 3, .to = 3},
    {own_number, &d_validation_not_divided, .by_ranks = 0},
    {own_number, &d_validation_not_tripled, .by_ranks = 1, .by_number = 1, .from = 3, .to = 3},
    {rounded_first, &d_divided_before_multiplying, .to = NEAREST},
    {own_number, &d_divided_by_local_size, .by_local_size = 1},
    {own_number, &d_number_of_workers_fixed, .by_number = 1, .from = 2, .to = MAX_FIXED},
    {of_other_set, &d_validation_wrong_other_set, .by_ranks = 1},
    {0},
};

static const Diagnosis *diagnosis_of(const Runs *runs, const Steps *steps, const Hypothesis table[],
                                     const Diagnosis *other)
{
    for (; table->of; table++)
        for (int i = 0; i < ROUNDINGS; i++)
            if (explains_taken(table, rows_of(runs, steps, i)))
                return table->diagnosis;
    return other;
}

static bool batch_is_changed(const Runs *runs)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (run->ranks > 1 && asked(run, 0, "train_batch") == run_flag(run, "--batch-size "))
            return false;
    return true;
}

// ---- Properties.

static const Diagnosis *wrong_epochs(const Run *run, double epochs, double wanted)
{
    return epochs < wanted && fabs(epochs - wanted / run->ranks) < 1 ? &d_epochs_divided
                                                                     : &d_epochs_wrong;
}

static char *asked_by_all(const Run *run, const char *what, const char *field)
{
    char *text = format_text("%s: ", what);
    for (int r = 0; r < run->ranks; r++)
        text_add(&text, "%srank %d: %.0f", r ? ", " : "", r, asked(run, r, field));
    return text;
}

static Fault epochs_fault(const Run *run)
{
    double wanted = run_flag(run, "--epochs ");
    for (int r = 0; r < run->ranks; r++) {
        double epochs = asked(run, r, "epochs");
        if (epochs == wanted)
            continue;
        char *evidence = asked_by_all(run, "epochs", "epochs");
        text_add(&evidence, "\nright: %.0f", wanted);
        return (Fault){wrong_epochs(run, epochs, wanted), evidence};
    }
    return NO_FAULT;
}

// "3 or 4, since 20 batches / 6 workers = 3.33".
static char *right_number(const Run *run, const char *what, double batches, double exact)
{
    if (exact == floor(exact))
        return format_text("%.0f, since %s%.0f batches / %d workers = %.0f", exact, what, batches,
                           run->ranks, exact);
    return format_text("%.0f or %.0f, since %s%.0f batches / %d workers = %.2f", floor(exact),
                       ceil(exact), what, batches, run->ranks, exact);
}

// Whether a rank asked for what is right, rounded as it likes, or for all of its own images, where they
// are shared out.
static bool is_right(const Run *run, const Steps *steps, int rank)
{
    const Set *set = steps->set;
    double number = asked(run, rank, steps->field);
    return (shared_out(run, set->images) &&
            number == steps->times * asked(run, rank, set->length)) ||
           fabs(number - steps->times * batches_of_set(run, rank, set) / run->ranks) < 1;
}

// The first run in which a rank asked for another number; NULL: none did.
static const Run *wrong_run(const Runs *runs, const Steps *steps)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++)
            if (!is_right(run, steps, r))
                return run;
    return NULL;
}

// Whether the ranks have parts of the set, which together are not the set.
static bool shared_out_wrongly(const Run *run, const Steps *steps)
{
    return asked(run, 0, steps->set->images) < run_flag(run, "--images ") &&
           !shared_out(run, steps->set->images);
}

static char *steps_evidence(const Run *run, const Steps *steps)
{
    if (shared_out_wrongly(run, steps)) {
        char *evidence = asked_by_all(run, "images", steps->set->images);
        text_add(&evidence, "\ntogether %.0f, and the set has %.0f",
                 images_of_all(run, steps->set->images), run_flag(run, "--images "));
        return evidence;
    }
    double batches = batches_of_set(run, 0, steps->set);
    char *evidence = asked_by_all(run, steps->name, steps->field);
    char *right = right_number(run, steps->times == 1 ? "" : "3 * ", batches,
                               steps->times * batches / run->ranks);
    text_add(&evidence, "\nright: %s", right);
    free(right);
    return evidence;
}

static void judge_steps(const Runs *runs, const Steps *steps, const Hypothesis table[],
                        const Diagnosis *other, Report *report)
{
    const Run *run = wrong_run(runs, steps);
    if (!run)
        report_ok(report, steps->property);
    else
        report_failure(report, steps->property,
                       shared_out_wrongly(run, steps) ? &d_steps_wrong_shards
                       : steps == &training && batch_is_changed(runs)
                           ? &d_batch_size_changed
                           : diagnosis_of(runs, steps, table, other),
                       evidence_in(runs, run, steps_evidence(run, steps)));
}

static void judge(const Runs *runs, Report *report)
{
    judge_property(runs, EPOCHS, epochs_fault, report);
    judge_steps(runs, &training, known_of_training, &d_steps_wrong, report);
    judge_steps(runs, &validation, known_of_validation, &d_validation_wrong, report);
}

JUDGE("step_05", judge)
ENDS("step_05", &six_steps)
