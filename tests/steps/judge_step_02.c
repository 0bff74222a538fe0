// Step 2: the root prints, and no other rank.

#include "judge.h"
#include "six_steps.h"
#include "diagnoses/judge_step_02.h"

#include <stdlib.h>
#include <string.h>

#define ROOT ((RankSet)1)

// The ranks whose event `name` has a verbose that isn't 0.
static RankSet verbose_ranks(const Run *run, const char *name)
{
    RankSet ranks = 0;
    for (int r = 0; r < run->ranks; r++) {
        double verbose = event_number(event_nth(&run->traces.of[r], name, 0), "verbose");
        if (verbose > 0 || verbose < 0) // not NaN: there may be no such event
            ranks |= 1u << r;
    }
    return ranks;
}

static RankSet ranks_with_local_rank_0(const Run *run)
{
    RankSet ranks = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run_local_rank(run, r) == 0)
            ranks |= 1u << r;
    return ranks;
}

static const Diagnosis *wrong_ranks(const Run *run, RankSet verbose)
{
    if (verbose == all_ranks(run->ranks))
        return verbose_ranks(run, "evaluate") == ROOT ? &d_verbose_everywhere_in_fit
                                                      : &d_verbose_everywhere;
    if (verbose == 0)
        return &d_verbose_nowhere;
    if (verbose == ranks_with_local_rank_0(run))
        return &d_verbose_on_every_node;
    return verbose & ROOT ? &d_verbose_on_several_ranks : &d_verbose_on_wrong_rank;
}

static char *verbose_evidence(const Run *run, const char *event)
{
    RankSet called = ranks_with(&run->traces, event), verbose = verbose_ranks(run, event);
    char *evidence = NULL;
    for (int r = 0; r < run->ranks; r++)
        text_add(&evidence, "%srank %d: %s", r ? ", " : "", r,
                 !has_rank(called, r)   ? "not called"
                 : has_rank(verbose, r) ? "verbose"
                                        : "silent");
    return evidence;
}

static Fault verbose_fault(const Run *run, const char *event)
{
    RankSet verbose = verbose_ranks(run, event);
    if (verbose == (ROOT & ranks_with(&run->traces, event)))
        return NO_FAULT;
    bool fit_is_right = verbose_ranks(run, "fit") == ROOT;
    return (Fault){fit_is_right ? &d_prints_without_verbose_in_evaluate : wrong_ranks(run, verbose),
                   verbose_evidence(run, event)};
}

static Fault fit_fault(const Run *run)
{
    return verbose_fault(run, "fit");
}

static Fault evaluate_fault(const Run *run)
{
    return verbose_fault(run, "evaluate");
}

static char *lines_evidence(const Run *run)
{
    char *evidence = NULL;
    for (int r = 0; r < run->ranks; r++) {
        int count = output_count(&run->output, r);
        text_add(&evidence, "%srank %d: %d line%s", r ? "\n" : "", r, count, count == 1 ? "" : "s");
        if (count > 0)
            text_add(&evidence, ", the first: %.60s", output_first(&run->output, r));
    }
    return evidence;
}

static Fault lines_fault(const Run *run)
{
    RankSet printing = 0;
    for (int r = 0; r < run->ranks; r++)
        printing |= output_count(&run->output, r) > 0 ? 1u << r : 0;
    if (printing == ROOT)
        return NO_FAULT;
    bool fit_is_right = verbose_ranks(run, "fit") == ROOT;
    return (Fault){!printing      ? &d_verbose_nowhere_silent
                   : fit_is_right ? &d_prints_without_verbose_lines
                                  : wrong_ranks(run, printing),
                   lines_evidence(run)};
}

// Only what prints stands inside `if (verbose)`: the stop rule is every rank's, or some train on without the root. (Once
// they average gradients those hang: another diagnosis.)
static Fault stop_fault(const Run *run)
{
    RankSet stopping = 0;
    char *evidence = NULL;
    for (int r = 0; r < run->ranks; r++) {
        const char *callbacks = event_text(event_nth(&run->traces.of[r], "fit", 0), "callbacks");
        bool stops = strstr(callbacks, "stop_at_accuracy") != NULL;
        stopping |= stops ? 1u << r : 0;
        text_add(&evidence, "%srank %d: %s", r ? ", " : "", r,
                 stops ? "stop_at_accuracy" : "no stop_at_accuracy");
    }
    if (stopping && stopping != ranks_with(&run->traces, "fit") &&
        !ranks_with(&run->traces, "distributed"))
        return (Fault){&d_stops_on_some_ranks, evidence};
    free(evidence);
    return NO_FAULT;
}

PROPERTIES("step_02", {"fit() shows its progress on the root alone", fit_fault},
           {"evaluate() does, too", evaluate_fault},
           {"what else is printed comes from the root alone", lines_fault},
           {"no rank lacks a stop rule that another has", stop_fault})
ENDS("step_02", &six_steps)
