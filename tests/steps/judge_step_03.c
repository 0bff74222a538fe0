// Step 3: every rank applies the mean of all ranks' gradients. Who computes it, the kit's optimizer
// or one of the student's own, is no matter: what counts are the fingerprints of the gradient that
// each rank computed and of the one that it applied.

#include "judge.h"

#include <math.h>
#include <stdlib.h>

#define OWN_BATCHES "every rank computes a gradient of its own, from batches of its own"
#define MEAN        "every rank applies the mean of all ranks' gradients"
#define ANY_SIZE    "on 2 ranks it is the mean, too"
#define SIZE_ENDS   "on 2 ranks, too, all come to the end of the program"
#define TOLERANCE   1e-4 // of the largest gradient of the step

// Fingerprints of the updates that all ranks have made.
typedef struct {
    int count;
    double (*own)[RANKS], (*applied)[RANKS];
} Updates;

static Updates read_updates(const Run *run)
{
    Updates updates = {.count = event_count(&run->events[0], "gradient")};
    for (int r = 0; r < RANKS; r++) {
        int gradients = event_count(&run->events[r], "gradient");
        int applied = event_count(&run->events[r], "apply");
        int both = gradients < applied ? gradients : applied;
        updates.count = both < updates.count ? both : updates.count;
    }
    updates.own = allocate((size_t)updates.count, sizeof *updates.own);
    updates.applied = allocate((size_t)updates.count, sizeof *updates.applied);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0, own = -1, applied = -1; i < updates.count; i++) {
            own = event_find(&run->events[r], "gradient", own + 1);
            applied = event_find(&run->events[r], "apply", applied + 1);
            updates.own[i][r] = event_number(run->events[r].items[own], "value");
            updates.applied[i][r] = event_number(run->events[r].items[applied], "value");
        }
    return updates;
}

static double sum(const double values[RANKS])
{
    double result = 0;
    for (int r = 0; r < RANKS; r++)
        result += values[r];
    return result;
}

static double largest(const double values[RANKS])
{
    double most = 0;
    for (int r = 0; r < RANKS; r++)
        most = fmax(most, fabs(values[r]));
    return most;
}

// What a rank may have applied, given what all computed.
typedef double (*Formula)(const double own[RANKS], int rank);

static double mean(const double own[RANKS], int rank)
{
    (void)rank;
    return sum(own) / RANKS;
}

static double total(const double own[RANKS], int rank)
{
    (void)rank;
    return sum(own);
}

static double mean_of_mean(const double own[RANKS], int rank)
{
    (void)rank;
    return sum(own) / RANKS / RANKS;
}

static double its_own(const double own[RANKS], int rank)
{
    return own[rank];
}

static double its_own_divided(const double own[RANKS], int rank)
{
    return own[rank] / RANKS;
}

// True where it explains every update as long as the numbers are finite, and the first in any case.
static bool explains(const Updates *updates, Formula formula)
{
    for (int i = 0; i < updates->count; i++) {
        if (i > 0 && !isfinite(sum(updates->own[i]) + sum(updates->applied[i])))
            return true;
        double allowed = TOLERANCE * largest(updates->own[i]);
        for (int r = 0; r < RANKS; r++)
            if (!(fabs(updates->applied[i][r] - formula(updates->own[i], r)) <= allowed))
                return false;
    }
    return updates->count > 0;
}

// True where every rank applied what one of them computed.
static bool explained_by_one_rank(const Updates *updates)
{
    for (int chosen = 0; chosen < RANKS; chosen++) {
        bool all = updates->count > 0;
        for (int i = 0; i < updates->count; i++)
            for (int r = 0; r < RANKS; r++)
                all = all && fabs(updates->applied[i][r] - updates->own[i][chosen]) <=
                                 TOLERANCE * largest(updates->own[i]);
        if (all)
            return true;
    }
    return false;
}

// In the first step: later ones carry differences on, as those of ranks with other numbers of
// cores.
static bool own_gradients_are_equal(const Updates *updates)
{
    for (int r = 1; updates->count > 0 && r < RANKS; r++)
        if (!(fabs(updates->own[0][r] - updates->own[0][0]) <=
              TOLERANCE * largest(updates->own[0])))
            return false;
    return updates->count > 0;
}

static char *evidence_of(const Updates *updates)
{
    char *evidence = NULL;
    if (updates->count == 0)
        return format_text("no rank applied a gradient");
    text_add(&evidence, "in the first step, as fingerprints:");
    for (int r = 0; r < RANKS; r++)
        text_add(&evidence, "\nrank %d: computed %9.5f, applied %9.5f", r, updates->own[0][r],
                 updates->applied[0][r]);
    text_add(&evidence, "\nmean:            %9.5f", mean(updates->own[0], 0));
    return evidence;
}

// ---- Diagnoses.

static const Diagnosis summed = {
    "gradients-summed",
    "the gradients are added up, but not divided by the number of workers: the "
    "same as a learning rate 4 times as high.",
    0};
static const Diagnosis averaged_twice = {
    "averaged-twice",
    "the gradients are divided by the number of workers twice: an average is "
    "already divided.",
    0};
static const Diagnosis divided_only = {
    "divided-but-not-summed",
    "every rank divides its own gradient by the number of workers; nothing "
    "is exchanged between them.",
    0};
static const Diagnosis of_one_rank = {
    "gradients-of-one-rank",
    "all ranks apply the gradient that one of them computed, and the work "
    "of the others is lost. Averaging needs an all-reduce, not a broadcast.",
    0};
static const Diagnosis unused = {
    "wrapped-but-not-used",
    "a distributed optimizer was made, but the model trains with the plain "
    "one. hvd_distributed_optimizer() returns the optimizer that compile() "
    "must get: opt = hvd_distributed_optimizer(opt), before compile().",
    0};
static const Diagnosis not_averaged = {"gradients-not-averaged",
                                       "every rank applies its own gradient: the optimizer is not "
                                       "distributed.",
                                       0};
static const Diagnosis wrong = {
    "gradients-wrong",
    "what the ranks apply is neither their own gradient nor the mean. Is every "
    "layer's gradient averaged, once?",
    0};

static const Diagnosis *wrong_gradient(const Run *run, const Updates *updates)
{
    if (explains(updates, its_own))
        return ranks_with(run->events, "distributed") ? &unused : &not_averaged;
    if (explains(updates, total))
        return &summed;
    if (explains(updates, mean_of_mean))
        return &averaged_twice;
    if (explains(updates, its_own_divided))
        return &divided_only;
    return explained_by_one_rank(updates) ? &of_one_rank : &wrong;
}

// Where all compute the same, the mean can't be told from a rank's own.
static void report_equal_gradients(const Updates *updates, Report *report)
{
    static const Diagnosis seeds_equal = {
        "seeds-equal",
        "all ranks have the same seed, so they see the same images and compute the "
        "same gradient: 4 times the work for the result of one. Without "
        "set_seed() each rank draws its own.",
        0};
    char *evidence = format_text("in the first step all ranks computed %.5f", updates->own[0][0]);
    report_failure(report, OWN_BATCHES, &seeds_equal, evidence);
}

void judge_step_3(const Run *run, Report *report)
{
    Updates updates = read_updates(run);
    CHECK(updates.count > 0); // fit makes no epoch of no step
    if (own_gradients_are_equal(&updates)) {
        report_equal_gradients(&updates, report);
    } else {
        report_ok(report, OWN_BATCHES);
        if (explains(&updates, mean))
            report_ok(report, MEAN);
        else
            report_failure(report, MEAN, wrong_gradient(run, &updates), evidence_of(&updates));
    }
    free(updates.own);
    free(updates.applied);
}

// On fewer ranks the first step is enough.
void judge_step_3_again(const Run *run, Report *report)
{
    static const Diagnosis fixed = {
        "number-of-workers-fixed",
        "it is the mean on 4 workers only: the program divides by a number that stands in it. "
        "hvd_size() is right on any number of workers.",
        0};
    if (!judge_end(run, SIZE_ENDS, report))
        return;
    double own[SOME_RANKS], applied[SOME_RANKS], sum_of_own = 0, most = 0;
    char *evidence = format_text("in the first step, as fingerprints:");
    for (int r = 0; r < SOME_RANKS; r++) {
        own[r] = event_number(event_nth(&run->events[r], "gradient", 0), "value");
        applied[r] = event_number(event_nth(&run->events[r], "apply", 0), "value");
        sum_of_own += own[r];
        most = fmax(most, fabs(own[r]));
        text_add(&evidence, "\nrank %d: computed %9.5f, applied %9.5f", r, own[r], applied[r]);
    }
    text_add(&evidence, "\nmean:            %9.5f", sum_of_own / SOME_RANKS);
    bool right = true;
    for (int r = 0; r < SOME_RANKS; r++)
        right = right && fabs(applied[r] - sum_of_own / SOME_RANKS) <= TOLERANCE * most;
    if (!right) {
        report_failure(report, ANY_SIZE, &fixed, evidence);
        return;
    }
    report_ok(report, ANY_SIZE);
    free(evidence);
}

void note_learning_rate(const Run *run, Report *report)
{
    const double asked = 0.01; // of every run
    double rate = event_number(event_nth(&run->events[0], "apply", 0), "learning_rate");
    if (fabs(rate - RANKS * asked) < 1e-6)
        report_note(report,
                    "the learning rate is %g, %d times --base-lr: many do that with "
                    "distributed training, these six steps don't",
                    rate, RANKS);
    else if (fabs(rate - asked) > 1e-6)
        report_note(report, "the learning rate of the first step is %g, not --base-lr's %g", rate,
                    asked);
}
