// Profile: the answer sheet names, for each training, the rank and the span in which it loses time,
// how much, and the remedy. The library traces the flaws that it made and the sheet's findings.

#include "answer_sheet.h"
#include "judge.h"
#include "diagnoses/judge_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lessons/flaws.h"

// A training as it is, and as the sheet describes it.
typedef struct {
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
                  event_has(event, "name", "gradients") &&
                  !event_has(event, "function", "hvd_distributed_optimizer");
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
        .flaw = finding_of(events->items[at - 1]),
        .finding = finding_of(found < 0 ? NULL : events->items[found]),
        .step = event_number(trained < 0 ? NULL : events->items[trained], "milliseconds"),
    };
    c.flaw.pieces = count_pieces(events, at);
    return c;
}

static bool of_all(const Case *c)
{
    return c->flaw.rank == EVERY_RANK;
}

// ---- The faults of a finding.

static Fault not_answered(const Case *c)
{
    const Finding *f = &c->finding;
    const char *field = !*f->span                            ? ".span"
                        : !of_all(c) && f->milliseconds == 0 ? ".milliseconds"
                        : of_all(c) && f->pieces == 0        ? ".pieces"
                        : f->remedy == NO_REMEDY             ? ".remedy"
                                                             : NULL;
    return field ? fault_with(&d_not_answered, "%s is still to be filled in", field) : NO_FAULT;
}

// Of the rank it depends which fields the sheet needs.
static Fault wrong_rank(const Case *c)
{
    int rank = c->finding.rank;
    if (rank == c->flaw.rank)
        return NO_FAULT;
    if (rank == NO_RANK)
        return fault_with(&d_not_answered, ".rank is still to be filled in");
    if (rank == EVERY_RANK)
        return fault_with(&d_wrong_rank_one_rank, ".rank = EVERY_RANK");
    return fault_with(of_all(c) ? &d_wrong_rank_every_rank : &d_wrong_rank_waits, ".rank = %d",
                      rank);
}

static Fault wrong_span(const Case *c)
{
    static const char *const outer[] = {"step", "epoch", NULL};
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
    // A slow device delays the end of the backward pass.
    static const char *const compute[] = {
        "backward", "backward (queued)", "forward and backward (queued)", "wait for the GPU", NULL};
    static const char *const reader[] = {"wait for a batch", "load a batch", NULL};
    const char *span = c->finding.span;
    // All that belongs to the exchange, which happens in the backward pass.
    bool right = c->flaw.remedy == LARGER_PIECES
                     ? is_one_of(span, exchange) || is_one_of(span, compute)
                 : c->flaw.remedy == REPLACE_DEVICE ? is_one_of(span, compute)
                                                    : is_one_of(span, reader);
    if (right)
        return NO_FAULT;
    bool encloses = is_one_of(span, outer) || strncmp(span, "training ", 9) == 0;
    return fault_with(encloses                    ? &d_wrong_span_encloses
                      : is_one_of(span, exchange) ? &d_wrong_span_waits
                                                  : &d_wrong_span,
                      ".span = \"%s\"", span);
}

static Fault wrong_milliseconds(const Case *c)
{
    // A busy machine makes steps longer; and what a step computes, beside it the reader reads on, so
    // that the rank waits for the rest alone.
    double part = c->flaw.remedy == CACHE_IMAGES ? 0.2 : 0.6;
    double milliseconds = c->finding.milliseconds, low = part * c->flaw.milliseconds,
           high = 1.3 * fmax(c->flaw.milliseconds, c->step);
    if (of_all(c) || (low <= milliseconds && milliseconds <= high))
        return NO_FAULT;
    double thousandth = milliseconds / 1000;
    return fault_with(low <= thousandth && thousandth <= high ? &d_wrong_milliseconds_unit
                                                              : &d_wrong_milliseconds,
                      ".milliseconds = %d", c->finding.milliseconds);
}

static Fault wrong_pieces(const Case *c)
{
    if (!of_all(c) || c->finding.pieces == c->flaw.pieces)
        return NO_FAULT;
    return fault_with(&d_wrong_pieces, ".pieces = %d", c->finding.pieces);
}

static Fault wrong_remedy(const Case *c)
{
    static const char *const names[] = {"NO_REMEDY", "REPLACE_DEVICE", "CACHE_IMAGES",
                                        "LARGER_PIECES"};
    Remedy remedy = c->finding.remedy;
    if (remedy == c->flaw.remedy)
        return NO_FAULT;
    return remedy < sizeof names / sizeof *names
               ? fault_with(&d_wrong_remedy, ".remedy = %s", names[remedy])
               : fault_with(&d_wrong_remedy, ".remedy = %d", (int)remedy);
}

static Fault case_fault(const Run *run, int training)
{
    const Case c = case_of(run, training);
    Fault (*const faults[])(const Case *) = {wrong_rank,         not_answered, wrong_span,
                                             wrong_milliseconds, wrong_pieces, wrong_remedy};
    Fault fault = NO_FAULT;
    for (size_t i = 0; i < sizeof faults / sizeof *faults && !fault.diagnosis; i++)
        fault = faults[i](&c);
    return fault;
}

static void judge(const Runs *runs, Report *report)
{
    judge_sheet(runs, "flaw", TRAININGS, "training", case_fault, report);
}

JUDGE("profile", judge)
