// Step 5: the ranks share the epoch's steps, and validate on three times the test set together.
// Rounded up, down or to nearest, as one likes.

#include "judge.h"

#include <math.h>
#include <stdlib.h>

#define EPOCHS     "the number of epochs is the command line's"
#define TRAINING   "all ranks together make as many steps as one device would"
#define ANY_SIZE   "both hold on 2 ranks, too"
#define SIZE_ENDS  "on 2 ranks, too, all come to the end of the program"
#define VALIDATION "all ranks together validate on 3 times the test set"

// What a rank asked fit() for.
static double asked(const Run *run, int rank, const char *field)
{
    return event_number(event_nth(&run->events[rank], "fit", 0), field);
}

// A wrong way to get a number of steps from the length of a permutation.
typedef struct {
    double value;
    const Diagnosis *diagnosis;
} Explanation;

// The first of `ranks` ranks that asked for anything but `exact`, rounded; -1: none did.
static int wrong_rank(const Run *run, int ranks, const char *field, double exact)
{
    for (int r = 0; r < ranks; r++)
        if (!(fabs(asked(run, r, field) - exact) < 1))
            return r;
    return -1;
}

static const Diagnosis *explain(double value, const Explanation *explanations, int count,
                                const Diagnosis *otherwise)
{
    for (int i = 0; i < count; i++)
        if (value == explanations[i].value)
            return explanations[i].diagnosis;
    return otherwise;
}

static char *evidence_of(const Run *run, int ranks, const char *field, const char *right)
{
    char *evidence = NULL;
    for (int r = 0; r < ranks; r++)
        text_add(&evidence, "%srank %d: %.0f", r ? ", " : "", r, asked(run, r, field));
    text_add(&evidence, "\nright are %s", right);
    return evidence;
}

static const Diagnosis by_local_size = {
    "divided-by-local-size",
    "the division is by hvd_local_size(), the workers of one machine. All "
    "workers of the job share the steps: hvd_size().",
    0};

static const Diagnosis *wrong_training(double steps, int length, int local_size)
{
    static const Diagnosis not_divided = {
        "steps-not-divided",
        "every rank makes all steps of an epoch. The workers share them: divide "
        "by hvd_size().",
        0};
    static const Diagnosis wrong = {
        "steps-wrong",
        "steps_per_epoch is the number of batches, divided by the number of "
        "workers.",
        0};
    const Explanation explanations[] = {{length, &not_divided},
                                        {length / local_size, &by_local_size}};
    return explain(steps, explanations, 2, &wrong);
}

static const Diagnosis *wrong_validation(double steps, int length, int local_size)
{
    static const Diagnosis not_divided = {
        "validation-not-divided", "validation_steps is not divided by the number of workers.", 0};
    static const Diagnosis not_tripled = {
        "validation-not-tripled",
        "validation_steps is divided, but not multiplied by 3. Each rank "
        "draws its images by itself; 3 times as many miss few.",
        0};
    static const Diagnosis order = {"divided-before-multiplying",
                                    "the division is rounded, and 3 multiplies the error: "
                                    "multiply first, 3 * length / size.",
                                    0};
    static const Diagnosis wrong = {
        "validation-wrong",
        "validation_steps is 3 times the number of batches, divided by the "
        "number of workers.",
        0};
    const Explanation explanations[] = {
        {length, &not_divided},
        {3 * length, &not_divided},
        {length / RANKS, &not_tripled},
        {length / RANKS + 1, &not_tripled},
        {3 * (length / RANKS), &order},
        {3 * (length / RANKS + 1), &order},
        {3 * length / local_size, &by_local_size},
    };
    return explain(steps, explanations, 7, &wrong);
}

static const Diagnosis *wrong_epochs(double epochs, double wanted)
{
    static const Diagnosis divided = {
        "epochs-divided",
        "epochs are divided instead of steps. Then every worker still makes all "
        "steps of an epoch, validation and learning rate come at other times, and "
        "few epochs may become none.",
        0};
    static const Diagnosis wrong = {
        "epochs-wrong", "the number of epochs is the command line's, on any number of workers.", 0};
    return epochs == floor(wanted / RANKS) ? &divided : &wrong;
}

static void judge_epochs(const Run *run, Report *report)
{
    const double wanted = 2; // of every run
    for (int r = 0; r < RANKS; r++)
        if (asked(run, r, "epochs") != wanted) {
            report_failure(report, EPOCHS, wrong_epochs(asked(run, r, "epochs"), wanted),
                           evidence_of(run, RANKS, "epochs", "2"));
            return;
        }
    report_ok(report, EPOCHS);
}

static void judge_training(const Run *run, Report *report)
{
    int length = (int)asked(run, 0, "train_len");
    double exact = (double)length / RANKS;
    int wrong = wrong_rank(run, RANKS, "steps", exact);
    if (wrong < 0) {
        report_ok(report, TRAINING);
        return;
    }
    int local_size = (int)event_number(event_nth(&run->events[wrong], "start", 0), "local_size");
    char *right = format_text("%.0f or %.0f, since %d batches / %d workers = %.2f", floor(exact),
                              ceil(exact), length, RANKS, exact);
    report_failure(report, TRAINING, wrong_training(asked(run, wrong, "steps"), length, local_size),
                   evidence_of(run, RANKS, "steps", right));
    free(right);
}

static void judge_validation(const Run *run, Report *report)
{
    int length = (int)asked(run, 0, "validation_len");
    double exact = 3.0 * length / RANKS;
    int wrong = wrong_rank(run, RANKS, "validation_steps", exact);
    if (wrong < 0) {
        report_ok(report, VALIDATION);
        return;
    }
    int local_size = (int)event_number(event_nth(&run->events[wrong], "start", 0), "local_size");
    char *right = format_text("%.0f or %.0f, since 3 * %d batches / %d workers = %.2f",
                              floor(exact), ceil(exact), length, RANKS, exact);
    report_failure(report, VALIDATION,
                   wrong_validation(asked(run, wrong, "validation_steps"), length, local_size),
                   evidence_of(run, RANKS, "validation_steps", right));
    free(right);
}

void judge_step_5(const Run *run, Report *report)
{
    judge_epochs(run, report);
    judge_training(run, report);
    judge_validation(run, report);
}

void judge_step_5_again(const Run *run, Report *report)
{
    static const Diagnosis fixed = {
        "number-of-workers-fixed",
        "it is right on 4 workers only: the program divides by a number that stands in it. "
        "hvd_size() is right on any number of workers.",
        0};
    if (!judge_end(run, SIZE_ENDS, report))
        return;
    double steps = asked(run, 0, "train_len") / SOME_RANKS;
    double validation_steps = 3 * asked(run, 0, "validation_len") / SOME_RANKS;
    if (wrong_rank(run, SOME_RANKS, "steps", steps) < 0 &&
        wrong_rank(run, SOME_RANKS, "validation_steps", validation_steps) < 0) {
        report_ok(report, ANY_SIZE);
        return;
    }
    char *right = format_text("%.1f, rounded", steps);
    char *evidence = evidence_of(run, SOME_RANKS, "steps", right);
    char *right_too = format_text("%.1f, rounded", validation_steps);
    char *validation = evidence_of(run, SOME_RANKS, "validation_steps", right_too);
    text_add(&evidence, "\nvalidation: %s", validation);
    report_failure(report, ANY_SIZE, &fixed, evidence);
    free(right);
    free(right_too);
    free(validation);
}
