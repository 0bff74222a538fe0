// Whether every rank applies the mean of all ranks' gradients: which of the known formulas tells
// what they apply (applied.c has read it), and the mistake that it stands for.

#include "applied.h"
#include "drawn.h"
#include "mean.h"
#include "diagnoses/mean.h"

#include <math.h>
#include <stdlib.h>
#include "base/format.h"

static const Hypothesis right = {sum_of_own, NULL, .by_ranks = 1};
static const Hypothesis its_own = {.of = own_number};
static const Hypothesis of_group = {.of = mean_of_those_alike};

// Of some ranks, and neither of all nor each its own.
static bool averaged_in_groups(const Row *row)
{
    return explains_row(&of_group, row) && !explains_row(&right, row) &&
           !explains_row(&its_own, row);
}

// Two ranks are one group, or none.
static bool always_in_groups(const Rows *rows)
{
    EACH_ROW (row, rows)
        if (row->ranks > 2 && !averaged_in_groups(row))
            return false;
    return true;
}

// True where something of the size of a gradient is sent between these events.
static bool exchanged_between(const Events *events, int from, int to)
{
    const double words = 64; // bytes
    for (int i = from; i < to; i++)
        if ((event_is(events->items[i], "collective_begin") ||
             event_is(events->items[i], "message_begin")) &&
            event_number(events->items[i], "bytes") > words)
            return true;
    return false;
}

// True where every rank exchanges something after it has applied its first gradient, up to the end
// of the step (without fit(): up to the next gradient), and nothing between computing and applying
// it.
static bool exchanged_too_late(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        int gradient = event_find(events, "gradient", 0);
        int apply = event_find(events, "apply", gradient);
        int end = event_find(events, event_count(events, "step") ? "step" : "gradient", apply);
        if (end < 0 || exchanged_between(events, gradient, apply) ||
            !exchanged_between(events, apply, end))
            return false;
    }
    return true;
}

// Each rank's own are equal: then the mean can't be told from them, or from one rank's.
static bool own_are_equal(const Row *row)
{
    for (int r = 1; r < row->ranks; r++)
        if (!(fabs(row->own[r] - row->own[0]) <= TOLERANCE * largest_own(row)))
            return false;
    return true;
}

// ---- Diagnoses.

static const Hypothesis known[] = {
    {own_number, &d_gradients_not_averaged, .by_ranks = 0},
    {sum_of_own, &d_gradients_summed, .by_ranks = 0},
    {sum_of_own, &d_averaged_twice, .by_ranks = 2},
    {own_number, &d_divided_but_not_summed, .by_ranks = 1},
    {own_of_number, &d_gradients_of_one_rank, .to = MAX_RANKS - 1},
    {sum_of_machine, &d_averaged_within_machine, .by_local_size = 1},
    {sum_of_own, &d_number_of_workers_fixed, .by_number = 1, .from = 2, .to = MAX_RANKS},
    {sum_of_own, &d_divided_by_local_size, .by_local_size = 1},
    {constant_zero, &d_no_update_zero, .by_ranks = 0},
    {mean_on_the_root, &d_averaged_on_the_root_only, .by_ranks = 0},
    {sum_of_own, &d_twice_the_mean, .by_ranks = 1, .by_number = -1, .from = 2, .to = 2},
    {0},
};

static const Hypothesis mean_or_own[] = {
    {sum_of_own, NULL, .by_ranks = 1}, {own_number, NULL, .by_ranks = 0}, {0}};

static const Diagnosis *wrong_own(const Run *run)
{
    if (ranks_with(&run->traces, "distributed"))
        return &d_wrapped_but_not_used;
    return exchanged_too_late(run) ? &d_averaged_too_late : &d_gradients_not_averaged;
}

static const Diagnosis *wrong_gradient(const Runs *runs, const Rows *rows)
{
    const Run *first = rows->items[0].run;
    const Diagnosis *diagnosis = diagnosis_of_rows(known, rows);
    if (diagnosis == &d_gradients_not_averaged)
        return wrong_own(first);
    if (diagnosis == &d_no_update_zero && !ranks_with(&first->traces, "apply"))
        return &d_no_update_not_applied;
    if (diagnosis)
        return diagnosis;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (run->ranks > 1 && ranks_that_called(run, "hvd_distributed_optimizer_every"))
            return &d_not_in_every_step;
    if (explain_each_row(mean_or_own, rows))
        return &d_averaged_in_some_steps;
    return always_in_groups(rows) ? &d_averaged_within_groups : &d_gradients_wrong;
}

// The place where the update stands in the training.
static char *moment(const Run *run, int update)
{
    const cJSON *step = event_nth(&run->traces.of[0], "step", update);
    if (!step)
        return format_text("in update %d, as fingerprints:", update + 1);
    return format_text("in step %.0f of epoch %.0f, as fingerprints:",
                       event_number(step, "step") + 1, event_number(step, "epoch") + 1);
}

// "the same was applied by: ranks 0 and 1; rank 2".
static void add_groups(const Row *row, char **evidence)
{
    RankSet told = 0;
    text_add(evidence, "\nthe same was applied by:");
    for (int r = 0; r < row->ranks; r++) {
        RankSet group = ranks_alike(row, r);
        if (!has_rank(told, r))
            text_add(evidence, "%s %s", r ? ";" : "", rank_names(group).text);
        told |= group;
    }
}

// The first row that no formula explains; where there is none, the given one.
static const Row *most_telling(const Rows *rows, const Row *wrong)
{
    EACH_ROW (row, rows) {
        Row copy = *row;
        if (!explains_row(&right, row) && !diagnosis_of_rows(known, &(Rows){&copy, 1}))
            return row;
    }
    return wrong;
}

static char *evidence_of(const Row *row)
{
    char *evidence = moment(row->run, row->at);
    for (int r = 0; r < row->ranks; r++)
        text_add(&evidence, "\nrank %d: computed %9.5f, applied %9.5f", r, row->own[r],
                 row->shown[r]);
    text_add(&evidence, "\nmean:            %9.5f", hypothesis_value(&right, row, 0));
    if (averaged_in_groups(row))
        add_groups(row, &evidence);
    return evidence;
}

// Whether all draw images of their own is said once: by step 4 where that is graded, too. Where
// they do and compute the same gradient all the same, the mean can't be told from it.
static bool judge_batches(const Runs *runs, const Rows *rows, Report *report)
{
    if (report->held)
        return true;
    if (!judge_drawn_images(runs, OWN_BATCHES, report))
        return false;
    EACH_ROW (row, rows)
        if (row->at == 0 && own_are_equal(row))
            return report_failure(report, MEAN_APPLIED, &d_gradients_equal,
                                  evidence_in(runs, row->run, evidence_of(row)));
    return true;
}

void judge_mean(const Runs *runs, Report *report)
{
    Rows rows = {NULL, 0};
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (run->ranks > 1) // one rank's mean is its own
            applied_add(&rows, run);
    if (rows.count > 0 && judge_batches(runs, &rows, report)) { // else no ranks can be compared
        const Row *wrong = first_unexplained(&right, &rows);
        const Diagnosis *diagnosis = wrong ? wrong_gradient(runs, &rows) : NULL;
        if (diagnosis == &d_gradients_wrong)
            wrong = most_telling(&rows, wrong);
        report_property(report, MEAN_APPLIED, diagnosis,
                        wrong ? evidence_in(runs, wrong->run, evidence_of(wrong)) : NULL);
    }
    free(rows.items);
}

// ---- A worker alone.

// A collective call of one rank sends nothing, whatever it is given.
static Fault silence_fault(const Run *run)
{
    if (run->ranks == 1)
        EACH_EVENT (event, &run->traces.of[0])
            if (event_is(event, "message_begin") && event_number(event, "bytes") > 0)
                return fault_with(&d_sends_alone, "it calls %s with %.0f bytes",
                                  event_text(event, "function"), event_number(event, "bytes"));
    return NO_FAULT;
}

bool judge_silence(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (run->ranks == 1)
            return judge_property(runs, SILENT, silence_fault, report);
    return true; // no worker was alone
}
