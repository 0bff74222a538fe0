// Step 5: the ranks share the epoch's steps, and validate on three times the test set together.
// Rounded up, down or to nearest, as one likes.

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
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

// Whether the ranks have shared out the images themselves: those of all together are the set.
static bool shared_out(const Run *run, const char *field)
{
    double images = 0;
    for (int r = 0; r < run->ranks; r++)
        images += asked(run, r, field);
    return run->ranks > 1 && images == run_flag(run, "--images ");
}

// The batches of the whole set, which may be shared out.
static double batches_of_set(const Run *run, int rank, const char *set)
{
    char *images = format_text("%s_images", set), *length = format_text("%s_len", set),
         *batch = format_text("%s_batch", set);
    double batches = shared_out(run, images)
                         ? ceil(run_flag(run, "--images ") / asked(run, rank, batch))
                         : asked(run, rank, length);
    free(images);
    free(length);
    free(batch);
    return batches;
}

// ---- Ways to get a number of steps from the lengths of a permutation. `number` is of use to some.

typedef double (*Formula)(const Run *run, int rank, int number);

static double length(const Run *run, int rank, int number)
{
    (void)number;
    return batches_of_set(run, rank, "train");
}

static double validation_length(const Run *run, int rank, int number)
{
    (void)number;
    return batches_of_set(run, rank, "validation");
}

static double steps(const Run *run, int rank, int number)
{
    return length(run, rank, number) / run->ranks;
}

static double validation_steps(const Run *run, int rank, int number)
{
    return 3 * validation_length(run, rank, number) / run->ranks;
}

static double not_tripled(const Run *run, int rank, int number)
{
    return validation_length(run, rank, number) / run->ranks;
}

static double tripled_length(const Run *run, int rank, int number)
{
    return 3 * validation_length(run, rank, number);
}

static double rounded_down_first(const Run *run, int rank, int number)
{
    return 3 * floor(validation_length(run, rank, number) / run->ranks);
}

static double rounded_up_first(const Run *run, int rank, int number)
{
    return 3 * ceil(validation_length(run, rank, number) / run->ranks);
}

static double rounded_first(const Run *run, int rank, int number)
{
    return 3 * round(validation_length(run, rank, number) / run->ranks);
}

static double over_local_size(const Run *run, int rank, int number)
{
    return length(run, rank, number) / run_local_size(run, rank);
}

static double validation_over_local_size(const Run *run, int rank, int number)
{
    return tripled_length(run, rank, number) / run_local_size(run, rank);
}

static double over_number(const Run *run, int rank, int number)
{
    return length(run, rank, number) / number;
}

static double validation_over_number(const Run *run, int rank, int number)
{
    return tripled_length(run, rank, number) / number;
}

static double of_the_test_set(const Run *run, int rank, int number)
{
    return validation_length(run, rank, number) / run->ranks;
}

static double of_the_training_set(const Run *run, int rank, int number)
{
    return 3 * length(run, rank, number) / run->ranks;
}

static double images(const Run *run, int rank, int number)
{
    (void)rank;
    (void)number;
    return run_flag(run, "--images ") / run->ranks;
}

static double tripled_images(const Run *run, int rank, int number)
{
    return 3 * images(run, rank, number);
}

// True where all ranks of all runs asked for what the formula gives, rounded in one way.
static bool explains(const Runs *runs, const char *field, Formula formula, int number)
{
    bool down = true, up = true, nearest = true;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++) {
            double value = asked(run, r, field);
            double exact = formula(run, r, number);
            down = down && value == floor(exact);
            up = up && value == ceil(exact);
            nearest = nearest && value == round(exact);
        }
    return down || up || nearest;
}

// The same, with a number that stands in the program. With a single run any number is explained.
static bool some_number_explains(const Runs *runs, const char *field, Formula formula)
{
    for (int number = 2; runs->count > 1 && number <= MAX_FIXED; number++)
        if (explains(runs, field, formula, number))
            return true;
    return false;
}

// All of a rank's own images, where they are shared out.
static double own_pass(const Run *run, int rank, const char *field)
{
    bool training = strcmp(field, "steps") == 0;
    if (!shared_out(run, training ? "train_images" : "validation_images"))
        return NAN;
    return training ? asked(run, rank, "train_len") : 3 * asked(run, rank, "validation_len");
}

// True where all ranks asked for what is right, each rounded as it likes.
static bool is_right(const Run *run, const char *field, Formula right)
{
    for (int r = 0; r < run->ranks; r++)
        if (!(fabs(asked(run, r, field) - right(run, r, 0)) < 1) &&
            asked(run, r, field) != own_pass(run, r, field))
            return false;
    return true;
}

static bool batch_is_changed(const Runs *runs)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (run->ranks > 1 && asked(run, 0, "train_batch") == run_flag(run, "--batch-size "))
            return false;
    return true;
}

// ---- Diagnoses.

static const Diagnosis *wrong_training(const Runs *runs)
{
    const char *field = "steps";
    if (batch_is_changed(runs))
        return &d_batch_size_changed;
    if (explains(runs, field, length, 0))
        return &d_steps_not_divided;
    if (explains(runs, field, over_local_size, 0))
        return &d_divided_by_local_size;
    if (some_number_explains(runs, field, over_number))
        return &d_number_of_workers_fixed;
    if (explains(runs, field, images, 0))
        return &d_steps_wrong_from_images;
    return explains(runs, field, of_the_test_set, 0) ? &d_steps_wrong_other_set : &d_steps_wrong;
}

static const Diagnosis *wrong_validation(const Runs *runs)
{
    const char *field = "validation_steps";
    if (explains(runs, field, validation_length, 0) || explains(runs, field, tripled_length, 0))
        return &d_validation_not_divided;
    if (explains(runs, field, not_tripled, 0))
        return &d_validation_not_tripled;
    if (explains(runs, field, rounded_down_first, 0) ||
        explains(runs, field, rounded_up_first, 0) || explains(runs, field, rounded_first, 0))
        return &d_divided_before_multiplying;
    if (explains(runs, field, validation_over_local_size, 0))
        return &d_divided_by_local_size;
    if (some_number_explains(runs, field, validation_over_number))
        return &d_number_of_workers_fixed;
    if (explains(runs, field, tripled_images, 0))
        return &d_validation_wrong_from_images;
    return explains(runs, field, of_the_training_set, 0) ? &d_validation_wrong_other_set
                                                         : &d_validation_wrong;
}

static const Diagnosis *wrong_epochs(const Run *run, double epochs, double wanted)
{
    return epochs < wanted && fabs(epochs - wanted / run->ranks) < 1 ? &d_epochs_divided
                                                                     : &d_epochs_wrong;
}

// ---- Properties.

static char *asked_by_all(const Run *run, const char *what, const char *field)
{
    char *text = format_text("%s: ", what);
    for (int r = 0; r < run->ranks; r++)
        text_add(&text, "%srank %d: %.0f", r ? ", " : "", r, asked(run, r, field));
    return text;
}

static bool judge_epochs(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        double wanted = run_flag(run, "--epochs ");
        for (int r = 0; r < run->ranks; r++) {
            double epochs = asked(run, r, "epochs");
            if (epochs == wanted)
                continue;
            char *evidence = asked_by_all(run, "epochs", "epochs");
            text_add(&evidence, "\nright: %.0f", wanted);
            return report_failure(report, EPOCHS, wrong_epochs(run, epochs, wanted),
                                  evidence_in(runs, run, evidence));
        }
    }
    return report_ok(report, EPOCHS);
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

// The first run in which a rank asked for another number; NULL: none did.
static const Run *wrong_run(const Runs *runs, const char *field, Formula right)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (!is_right(run, field, right))
            return run;
    return NULL;
}

static bool judge_steps(const Runs *runs, Report *report)
{
    const Run *run = wrong_run(runs, "steps", steps);
    if (!run)
        return report_ok(report, TRAINING);
    char *evidence = asked_by_all(run, "steps_per_epoch", "steps");
    char *right = right_number(run, "", length(run, 0, 0), steps(run, 0, 0));
    text_add(&evidence, "\nright: %s", right);
    free(right);
    return report_failure(report, TRAINING, wrong_training(runs), evidence_in(runs, run, evidence));
}

static bool judge_validation(const Runs *runs, Report *report)
{
    const Run *run = wrong_run(runs, "validation_steps", validation_steps);
    if (!run)
        return report_ok(report, VALIDATION);
    char *evidence = asked_by_all(run, "validation_steps", "validation_steps");
    char *right =
        right_number(run, "3 * ", validation_length(run, 0, 0), validation_steps(run, 0, 0));
    text_add(&evidence, "\nright: %s", right);
    free(right);
    return report_failure(report, VALIDATION, wrong_validation(runs),
                          evidence_in(runs, run, evidence));
}

static void judge(const Runs *runs, Report *report)
{
    judge_epochs(runs, report);
    judge_steps(runs, report);
    judge_validation(runs, report);
}

JUDGE("step_05", judge)
ENDS("step_05", &six_steps)
