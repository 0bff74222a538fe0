// Step 2: the root prints, and no other rank.

#include "judge.h"
#include "six_steps.h"

#define FIT      "fit() shows its progress on the root alone"
#define EVALUATE "evaluate() does, too"
#define PRINTS   "what else is printed comes from the root alone"
#define ROOT     ((RankSet)1)

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
    static const Diagnosis everywhere = {
        "verbose-everywhere",
        "verbose is 1 on every rank. It is to be 1 where hvd_rank() is 0, "
        "else 0.",
        NULL};
    static const Diagnosis nowhere = {
        "verbose-nowhere",
        "verbose is 0 on every rank; on the root it is to be 1. If it comes from hvd_rank(): is "
        "that called, with its parentheses, and compared with 0?",
        NULL};
    static const Diagnosis every_node = {
        "verbose-on-every-node",
        "verbose is 1 once on each machine (often this means that it comes from hvd_local_rank()). "
        "One rank of the whole job has hvd_rank() 0.",
        NULL};
    static const Diagnosis wrong_rank = {
        "verbose-on-wrong-rank",
        "the root, rank 0, is silent, and another rank prints. Is the comparison with "
        "0, and the right way round?",
        NULL};
    static const Diagnosis in_fit = {
        "verbose-everywhere",
        "fit() is told to be verbose on every rank, and evaluate() is not: what .verbose gets is "
        "not the variable that is 1 on the root alone.",
        NULL};
    static const Diagnosis several = {"verbose-on-several-ranks",
                                      "verbose is 1 on the root, and on others too.", NULL};
    if (verbose == all_ranks(run->ranks))
        return verbose_ranks(run, "evaluate") == ROOT ? &in_fit : &everywhere;
    if (verbose == 0)
        return &nowhere;
    if (verbose == ranks_with_local_rank_0(run))
        return &every_node;
    return verbose & ROOT ? &several : &wrong_rank;
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

static bool judge_verbose(const Runs *runs, const char *event, const char *property, Report *report)
{
    static const Diagnosis forgotten = {
        "prints-without-verbose",
        "something prints without asking whether this is the root. "
        "callbacks, evaluate() and the last lines all use `verbose`.",
        NULL};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        RankSet verbose = verbose_ranks(run, event);
        if (verbose == (ROOT & ranks_with(&run->traces, event)))
            continue;
        bool fit_is_right = verbose_ranks(run, "fit") == ROOT;
        return report_failure(report, property,
                              fit_is_right ? &forgotten : wrong_ranks(run, verbose),
                              evidence_in(runs, run, verbose_evidence(run, event)));
    }
    return report_ok(report, property);
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

static bool judge_lines(const Runs *runs, Report *report)
{
    static const Diagnosis forgotten = {
        "prints-without-verbose",
        "something prints without asking whether this is the root: add "
        "or print it only if `verbose`.",
        NULL};
    static const Diagnosis silent = {"verbose-nowhere",
                                     "the root prints nothing: it has to be heard.", NULL};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        RankSet printing = 0;
        for (int r = 0; r < run->ranks; r++)
            printing |= output_count(&run->output, r) > 0 ? 1u << r : 0;
        if (printing == ROOT)
            continue;
        bool fit_is_right = verbose_ranks(run, "fit") == ROOT;
        return report_failure(report, PRINTS,
                              !printing      ? &silent
                              : fit_is_right ? &forgotten
                                             : wrong_ranks(run, printing),
                              evidence_in(runs, run, lines_evidence(run)));
    }
    return report_ok(report, PRINTS);
}

static void judge(const Runs *runs, Report *report)
{
    judge_verbose(runs, "fit", FIT, report);
    judge_verbose(runs, "evaluate", EVALUATE, report);
    judge_lines(runs, report);
}

JUDGE("step_02", judge)
ENDS("step_02", &six_steps)
