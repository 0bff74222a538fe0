// Profile: the answer sheet names, for each training, the rank and the span in which it loses time,
// how much, and the remedy. The library traces the flaws that it made and the sheet's findings.

#include "judge.h"
#include "waiting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lessons/flaws.h"

#define HAS_SEED "the sheet has a seed, and the trainings run"
#define OWN_SEED "the seed is the one that is set for you"

// A training as it is, and as the sheet describes it.
typedef struct {
    const Run *run;
    int number;
    Finding flaw, finding; // of the flaw: no span
    double step;           // milliseconds of a step in this run
} Case;

static Finding finding_of(const cJSON *event)
{
    return (Finding){
        .rank = event_int(event, "rank"),
        .span = event_text(event, "span"),
        .milliseconds = event_int(event, "milliseconds"),
        .pieces = event_int(event, "pieces"),
        .remedy = (Remedy)event_int(event, "remedy"),
    };
}

// The pieces of gradients of the second step after event `at`: rank 0's all-reduces, each of which
// hvd makes by a call of MPI's or in two levels.
static int count_pieces(const Events *events, int at)
{
    int pieces = 0, steps = 0;
    for (int i = at; i < events->count && steps < 2; i++) {
        const cJSON *event = events->items[i];
        steps += event_is(event, "step");
        pieces += steps == 1 && event_is(event, "collective_begin") &&
                  strcmp(event_text(event, "name"), "gradients") == 0 &&
                  strcmp(event_text(event, "function"), "hvd_distributed_optimizer") != 0;
    }
    return pieces;
}

static Case case_of(const Run *run, int training)
{
    const Events *events = &run->traces.of[0];
    int at = 0;
    for (int t = 0; t < training; t++)
        at = event_find(events, "flaw", at) + 1;
    int found = event_find(events, "finding", at), trained = event_find(events, "flaw_trained", at);
    Case c = {
        .run = run,
        .number = training,
        .flaw = finding_of(events->items[at - 1]),
        .finding = finding_of(events->items[found]),
        .step = event_number(trained < 0 ? NULL : events->items[trained], "milliseconds"),
    };
    c.flaw.pieces = count_pieces(events, at);
    return c;
}

static bool of_all(const Case *c)
{
    return c->flaw.rank == EVERY_RANK;
}

// ---- The faults of a finding: the evidence, with the diagnosis, or NULL.

static const Diagnosis missing = {
    "not-answered",
    "the sheet does not describe this training whole. Open the timeline (HVD_TIMELINE), and "
    "compare the ranks in a step of it.",
    NULL};

static char *not_answered(const Case *c, const Diagnosis **diagnosis)
{
    *diagnosis = &missing;
    const Finding *f = &c->finding;
    const char *field = !*f->span                            ? ".span"
                        : !of_all(c) && f->milliseconds == 0 ? ".milliseconds"
                        : of_all(c) && f->pieces == 0        ? ".pieces"
                        : f->remedy == NO_REMEDY             ? ".remedy"
                                                             : NULL;
    return field ? format_text("%s is still to be filled in", field) : NULL;
}

// Of the rank it depends which fields the sheet needs.
static char *wrong_rank(const Case *c, const Diagnosis **diagnosis)
{
    static const Diagnosis waits = {"wrong-rank",
                                    "another rank loses the time. A rank that waits has a long "
                                    "span, too, \"agree on the call\". "
                                    "Look for the rank that does not wait.",
                                    NULL};
    static const Diagnosis one = {
        "wrong-rank",
        "all ranks need the same time for a step, since they wait for each other; but one of them "
        "waits for none. Look for the rank without a long span \"agree on the call\".",
        NULL};
    static const Diagnosis all = {
        "wrong-rank",
        "no rank waits long for another one here: all of them lose the same time, in the same "
        "way (EVERY_RANK).",
        NULL};
    int rank = c->finding.rank;
    if (rank == c->flaw.rank)
        return NULL;
    if (rank == NO_RANK) {
        *diagnosis = &missing;
        return format_text(".rank is still to be filled in");
    }
    *diagnosis = of_all(c) ? &all : rank == EVERY_RANK ? &one : &waits;
    return rank == EVERY_RANK ? format_text(".rank = EVERY_RANK") : format_text(".rank = %d", rank);
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

static char *wrong_span(const Case *c, const Diagnosis **diagnosis)
{
    static const char *const outer[] = {"step",
                                        "epoch",
                                        "training 1",
                                        "training 2",
                                        "training 3",
                                        "training 1 again",
                                        "training 2 again",
                                        "training 3 again",
                                        NULL};
    static const char *const exchange[] = {"piece",
                                           "MPI_Allreduce",
                                           "MPI_Iallreduce",
                                           "MPI_Waitall",
                                           "ncclAllReduce",
                                           "two_levels",
                                           "hvd_distributed_optimizer",
                                           "agree on the call",
                                           "wait for the gradients",
                                           NULL};
    static const char *const compute[] = {"forward",
                                          "backward",
                                          "forward (queued)",
                                          "backward (queued)",
                                          "forward and backward (queued)",
                                          "wait for the GPU",
                                          NULL};
    static const char *const reader[] = {"wait for a batch", "load a batch", NULL};
    static const Diagnosis outside = {
        "wrong-span",
        "that span encloses everything that happens in a step. Look at the spans within it.", NULL};
    static const Diagnosis waits = {
        "wrong-span",
        "other ranks spend their time there, waiting for this one. What does this rank itself do "
        "meanwhile? Look at its own longest span in a step.",
        NULL};
    static const Diagnosis other = {
        "wrong-span",
        "the time is not lost in that span. Look for the longest span of a step on that rank that "
        "has no other long span within it; the sheet has its name as the timeline writes it.",
        NULL};
    const char *span = c->finding.span;
    // All that belongs to the exchange, which happens in the backward pass.
    bool right = c->flaw.remedy == LARGER_PIECES
                     ? is_one_of(span, exchange) || is_one_of(span, compute + 1)
                 : c->flaw.remedy == REPLACE_DEVICE ? is_one_of(span, compute)
                                                    : is_one_of(span, reader);
    *diagnosis = is_one_of(span, outer) ? &outside : is_one_of(span, exchange) ? &waits : &other;
    return right ? NULL : format_text(".span = \"%s\"", span);
}

static char *wrong_milliseconds(const Case *c, const Diagnosis **diagnosis)
{
    static const Diagnosis unit = {
        "wrong-milliseconds",
        "the sheet has milliseconds: 1000 microseconds are one, and a second is 1000.", NULL};
    static const Diagnosis other = {
        "wrong-milliseconds",
        "the span takes another time in most steps of this training. The first two steps differ "
        "from the others: measure a later one, on the rank of the sheet.",
        NULL};
    // A busy machine makes steps longer; and what a step computes, beside it the reader reads on, so
    // that the rank waits for the rest alone.
    double part = c->flaw.remedy == CACHE_IMAGES ? 0.2 : 0.6;
    double milliseconds = c->finding.milliseconds, low = part * c->flaw.milliseconds,
           high = 1.3 * fmax(c->flaw.milliseconds, c->step);
    if (of_all(c) || (low <= milliseconds && milliseconds <= high))
        return NULL;
    double thousandth = milliseconds / 1000;
    *diagnosis = low <= thousandth && thousandth <= high ? &unit : &other;
    return format_text(".milliseconds = %d", c->finding.milliseconds);
}

static char *wrong_pieces(const Case *c, const Diagnosis **diagnosis)
{
    static const Diagnosis other = {"wrong-pieces",
                                    "the gradients travel in another number of pieces in a step: "
                                    "those on the row \"gradients\" "
                                    "of one rank.",
                                    NULL};
    *diagnosis = &other;
    if (!of_all(c) || c->finding.pieces == c->flaw.pieces)
        return NULL;
    return format_text(".pieces = %d", c->finding.pieces);
}

static char *wrong_remedy(const Case *c, const Diagnosis **diagnosis)
{
    static const Diagnosis wrong = {
        "wrong-remedy",
        "the remedy does not shorten that span, and the training takes as long as before. A longer "
        "cache shortens \"wait for a batch\", a device that computes faster shortens \"forward\" "
        "and \"backward\", and fewer pieces need fewer all-reduces.",
        NULL};
    static const char *const names[] = {"NO_REMEDY", "REPLACE_DEVICE", "CACHE_IMAGES",
                                        "LARGER_PIECES"};
    *diagnosis = &wrong;
    Remedy remedy = c->finding.remedy;
    if (remedy == c->flaw.remedy)
        return NULL;
    return remedy < sizeof names / sizeof *names ? format_text(".remedy = %s", names[remedy])
                                                 : format_text(".remedy = %d", (int)remedy);
}

static char *fault_of(const Case *c, const Diagnosis **diagnosis)
{
    char *(*const faults[])(const Case *, const Diagnosis **) = {
        wrong_rank, not_answered, wrong_span, wrong_milliseconds, wrong_pieces, wrong_remedy};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char *evidence = faults[i](c, diagnosis);
        if (evidence)
            return evidence;
    }
    return NULL;
}

static void judge_training(const Runs *runs, int training, Report *report)
{
    char *property = format_text("training %d is as the sheet describes it", training);
    const Diagnosis *diagnosis = NULL;
    char *evidence = NULL;
    for (const Run *run = runs->items; run < runs_end(runs) && !evidence; run++) {
        Case c = case_of(run, training);
        evidence = fault_of(&c, &diagnosis);
    }
    report_property(report, property, diagnosis, evidence);
    free(property);
}

// In a course each student has a seed, which stands in stamp.txt.
static bool has_own_seed(const Runs *runs, Report *report)
{
    static const Diagnosis another = {
        "another-seed",
        "the sheet is about other trainings than yours. In your course the seed is set: it stands "
        "in stamp.txt, in the kit's folder. Set SEED to it, make the timeline again, and describe "
        "what it shows.",
        NULL};
    if (runs->profile_seed == 0)
        return true;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        double seed = event_number(event_nth(&run->traces.of[0], "flaws", 0), "seed");
        if (seed != (double)runs->profile_seed)
            return report_failure_in(report, runs, run, OWN_SEED, &another,
                                     "the seed of the sheet is %.0f, yours is %.0f", seed,
                                     (double)runs->profile_seed);
    }
    return report_ok(report, OWN_SEED);
}

static void judge(const Runs *runs, Report *report)
{
    static const Diagnosis none = {
        "no-seed", "SEED is 0. Choose a number from 1 to 999999: the trainings follow from it.",
        NULL};
    static const Diagnosis other = {"not-trained",
                                    "train_with_flaws has not run its three trainings.", NULL};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        const Events *events = &run->traces.of[0];
        const cJSON *flaws = event_nth(events, "flaws", 0);
        if (flaws && event_number(flaws, "seed") == 0) {
            report_failure_in(report, runs, run, HAS_SEED, &none, "the seed is 0");
            return;
        }
        if (event_count(events, "flaw") != TRAININGS) {
            report_failure_in(report, runs, run, HAS_SEED, &other, "train_with_flaws was %s",
                              flaws ? "called several times" : "not called");
            return;
        }
    }
    report_ok(report, HAS_SEED);
    if (!has_own_seed(runs, report))
        return;
    for (int training = 1; training <= TRAININGS; training++)
        judge_training(runs, training, report);
}

JUDGE("profile", judge)
