// Step 2: the root prints, and no other rank.

#include "judge.h"

#include <stdlib.h>

#define FIT      "fit() shows its progress on the root alone"
#define EVALUATE "evaluate() does, too"
#define PRINTS   "what else is printed comes from the root alone"
#define ROOT     ((RankSet)1)

// The ranks whose event `name` has a verbose that isn't 0.
static RankSet verbose_ranks(const Run *run, const char *name)
{
    RankSet ranks = 0;
    for (int r = 0; r < RANKS; r++) {
        double verbose = event_number(event_nth(&run->events[r], name, 0), "verbose");
        if (verbose > 0 || verbose < 0) // not NaN: there may be no such event
            ranks |= 1u << r;
    }
    return ranks;
}

static RankSet ranks_with_local_rank_0(const Run *run)
{
    RankSet ranks = 0;
    for (int r = 0; r < RANKS; r++)
        if (event_number(event_nth(&run->events[r], "start", 0), "local_rank") == 0)
            ranks |= 1u << r;
    return ranks;
}

static const Diagnosis *wrong_ranks(const Run *run, RankSet verbose)
{
    static const Diagnosis everywhere = {
        "verbose-everywhere",
        "verbose is 1 on every rank. It is to be 1 where hvd_rank() is 0, "
        "else 0.",
        0};
    static const Diagnosis nowhere = {
        "verbose-nowhere",
        "verbose is 0 on every rank; on the root it is to be 1. If it comes from hvd_rank(): is "
        "that called, with its parentheses, and compared with 0?",
        0};
    static const Diagnosis every_node = {
        "verbose-on-every-node",
        "verbose comes from hvd_local_rank(), which is 0 on each machine "
        "once. One rank of the whole job has hvd_rank() 0.",
        0};
    static const Diagnosis wrong_rank = {
        "verbose-on-wrong-rank",
        "the root, rank 0, is silent, and another rank prints. Is the comparison with "
        "0, and the right way round?",
        0};
    static const Diagnosis several = {"verbose-on-several-ranks",
                                      "verbose is 1 on the root, and on others too.", 0};
    if (verbose == ALL_RANKS)
        return &everywhere;
    if (verbose == 0)
        return &nowhere;
    if (verbose == ranks_with_local_rank_0(run))
        return &every_node;
    return verbose & ROOT ? &several : &wrong_rank;
}

static void judge_verbose(const Run *run, const char *event, const char *property, Report *report)
{
    static const Diagnosis forgotten = {
        "prints-without-verbose",
        "something prints without asking whether this is the root. "
        "callbacks, evaluate() and the last lines all use `verbose`.",
        0};
    RankSet called = ranks_with(run->events, event), verbose = verbose_ranks(run, event);
    RankSet in_fit = verbose_ranks(run, "fit");
    if (verbose == (ROOT & called)) {
        report_ok(report, property);
        return;
    }
    char *evidence = NULL;
    for (int r = 0; r < RANKS; r++)
        text_add(&evidence, "%srank %d: %s", r ? ", " : "", r,
                 !has_rank(called, r)   ? "not called"
                 : has_rank(verbose, r) ? "verbose"
                                        : "silent");
    report_failure(report, property, in_fit == ROOT ? &forgotten : wrong_ranks(run, verbose),
                   evidence);
}

static void judge_lines(const Run *run, Report *report)
{
    static const Diagnosis forgotten = {
        "prints-without-verbose",
        "something prints without asking whether this is the root: add "
        "or print it only if `verbose`.",
        0};
    RankSet printing = 0;
    char *evidence = NULL;
    for (int r = 0; r < RANKS; r++) {
        int count = output_count(&run->output, r);
        if (count > 0)
            printing |= 1u << r;
        text_add(&evidence, "%srank %d: %d line%s", r ? "\n" : "", r, count, count == 1 ? "" : "s");
        if (count > 0)
            text_add(&evidence, ", the first: %.60s", output_first(&run->output, r));
    }
    if (printing != ROOT) {
        bool fit_is_right = verbose_ranks(run, "fit") == ROOT;
        report_failure(report, PRINTS, fit_is_right ? &forgotten : wrong_ranks(run, printing),
                       evidence);
        return;
    }
    free(evidence);
    report_ok(report, PRINTS);
}

void judge_step_2(const Run *run, Report *report)
{
    judge_verbose(run, "fit", FIT, report);
    judge_verbose(run, "evaluate", EVALUATE, report);
    judge_lines(run, report);
}
