// Step 6: every callback that reads the metrics sees the mean of all ranks' metrics, so that all
// ranks decide alike and stop in the same epoch. Each rank's own metrics weigh the same here, since
// all ranks make equally many steps; so a weighted mean and an unweighted one are equal.

#include "hypotheses.h"

#include <math.h>
#include <stdlib.h>
#include "six_steps.h"
#include "diagnoses/judge_step_06.h"

#define HISTORY     "at the end of every epoch all ranks have the mean of their figures"
#define STOP        "the stop rule sees the mean, not the rank's own figures"
#define TENSORBOARD "the TensorBoard callback sees it, too"
#define STOPPED     "where the figures are above the target at once, all stop after the first epoch"
#define TOLERANCE   1e-5 // relative: a float holds seven digits

enum { METRICS = 4 };
static const char *const metrics[METRICS] = {"loss", "accuracy", "val_loss", "val_accuracy"};

// The event `name` of an epoch; of the callback `callback` where that isn't NULL.
static const cJSON *event_of(const Events *events, const char *name, int epoch,
                             const char *callback)
{
    EACH (at, events, name)
        if (event_number(events->items[at], "epoch") == epoch &&
            (!callback || event_has(events->items[at], "name", callback)))
            return events->items[at];
    return NULL;
}

// What is looked at: an event, and of which callback.
typedef struct {
    const char *event, *callback;
} View;

// A callback may have been added on some ranks only, one that writes files, say.
static bool sees(const Run *run, View view, int rank)
{
    return !view.callback || event_of(&run->traces.of[rank], view.event, 0, view.callback);
}

// Of a metric, in these runs: a row for each epoch. What a rank has of its own it has measured.
static Rows metric_rows(const Run *run, int count, View view, const char *metric)
{
    Rows rows = {NULL, 0};
    for (const Run *end = run + count; run < end; run++)
        for (int epoch = 0, epochs = run_min_events(run, "history"); epoch < epochs; epoch++) {
            Row row = {.run = run, .at = epoch, .ranks = run->ranks};
            for (int r = 0; r < run->ranks; r++) {
                const Events *events = &run->traces.of[r];
                const cJSON *own = event_of(events, "epoch", epoch, NULL),
                            *seen = event_of(events, view.event, epoch, view.callback);
                row.own[r] = event_number(own, metric);
                row.shown[r] = event_number(seen, metric);
                row.unknown |= sees(run, view, r) ? 0 : 1u << r;
            }
            row.allowed = TOLERANCE * fabs(sum_of_own((Cell){&row, 0, 0})) + 1e-12;
            rows_add(&rows, &row);
        }
    return rows;
}

// The lowest or the highest of all ranks' own, whichever is shown; infinite where ranks show different ones.
static double extreme_of_own(Cell cell)
{
    const Row *row = cell.row;
    double low = row->own[0], high = row->own[0];
    for (int r = 1; r < row->ranks; r++) {
        low = fmin(low, row->own[r]);
        high = fmax(high, row->own[r]);
    }
    bool alike = ranks_alike(row, 0) == all_ranks(row->ranks);
    return !alike ? INFINITY : row->shown[0] < (low + high) / 2 ? low : high;
}

static const Hypothesis mean = {sum_of_own, NULL, .by_ranks = 1};
static const Hypothesis its_own = {.of = own_number};

static bool metric_is(const Run *run, int count, View view, const char *metric,
                      const Hypothesis *hypothesis)
{
    return explains_taken(hypothesis, metric_rows(run, count, view, metric));
}

static int metrics_that_are(const Run *run, int count, View view, const Hypothesis *hypothesis)
{
    int result = 0;
    for (int m = 0; m < METRICS; m++)
        result += metric_is(run, count, view, metrics[m], hypothesis);
    return result;
}

// Whether there are metrics that are neither the mean nor each rank's own, and the hypothesis explains all these.
static bool explains_the_rest(const Runs *runs, View view, const Hypothesis *hypothesis)
{
    const Run *first = runs->items;
    int rest = 0;
    for (int m = 0; m < METRICS; m++) {
        if (metric_is(first, runs->count, view, metrics[m], &mean) ||
            metric_is(first, runs->count, view, metrics[m], &its_own))
            continue;
        if (!metric_is(first, runs->count, view, metrics[m], hypothesis))
            return false;
        rest++;
    }
    return rest > 0;
}

static void add_numbers(char **evidence, const double numbers[], int count)
{
    for (int i = 0; i < count; i++)
        text_add(evidence, " %.4f", numbers[i]);
}

// Of the first epoch in which a metric is not the mean.
static char *evidence_of(const Run *run, View view)
{
    Rows rows[METRICS];
    int first = run_min_events(run, "history");
    for (int m = 0; m < METRICS; m++) {
        rows[m] = metric_rows(run, 1, view, metrics[m]);
        const Row *wrong = first_unexplained(&mean, &rows[m]);
        first = wrong && wrong->at < first ? wrong->at : first;
    }
    char *evidence = format_text(
        "in epoch %d; own: metrics of each rank alone, seen: those in its logs", first + 1);
    for (int m = 0; m < METRICS; m++) {
        const Row *row = &rows[m].items[first];
        text_add(&evidence, "\n%-12s own ", metrics[m]);
        add_numbers(&evidence, row->own, row->ranks);
        text_add(&evidence, "\n%-12s seen", "");
        add_numbers(&evidence, row->shown, row->ranks);
        text_add(&evidence, "   %s %.4f",
                 explains_row(&mean, row) ? "the mean" : "and not the mean,",
                 hypothesis_value(&mean, row, 0));
        free(rows[m].items);
    }
    return evidence;
}

// ---- Diagnoses.

// What may have become of metrics that are neither the mean nor each rank's own.
static const Hypothesis rules[] = {
    {sum_of_own, &d_metrics_summed, .by_ranks = 0},
    {mean_on_the_root, &d_averaged_on_root_only, .by_ranks = 0},
    {own_of_number, &d_metrics_of_one_rank, .by_ranks = 0},
    {sum_of_own, &d_divided_by_local_size, .by_local_size = 1},
    {mean_of_those_alike, &d_averaged_within_groups, .by_ranks = 0},
    {extreme_of_own, &d_metrics_wrong_extremes, .by_ranks = 0},
    {0},
};

// In some runs of several ranks everything is averaged, and in the others nothing.
static bool averaged_in_some_runs(const Runs *runs, View view)
{
    int averaged = 0, own = 0;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        bool here = metrics_that_are(run, 1, view, &mean) == METRICS;
        if (!here && metrics_that_are(run, 1, view, &its_own) < METRICS)
            return false;
        averaged += run->ranks > 1 && here;
        own += !here;
    }
    return averaged > 0 && own > 0;
}

static const Hypothesis mean_or_own[] = {
    {sum_of_own, NULL, .by_ranks = 1}, {.of = own_number}, {0}};

// In each epoch a metric is the mean or each rank's own, and one run has both.
static bool averaged_in_some_epochs(const Runs *runs, View view)
{
    bool both = false;
    for (int m = 0; m < METRICS * runs->count; m++) {
        Rows rows = metric_rows(&runs->items[m / METRICS], 1, view, metrics[m % METRICS]);
        bool explained = explain_each_row(mean_or_own, &rows);
        both |= !explains_rows(&mean, &rows) && !explains_rows(&its_own, &rows);
        free(rows.items);
        if (!explained)
            return false;
    }
    return both;
}

static const Diagnosis *wrong_history(const Runs *runs, const Run *run, View view)
{
    if (averaged_in_some_runs(runs, view))
        return &d_average_missing_in_some_runs;
    if (averaged_in_some_epochs(runs, view))
        return &d_averaged_in_some_epochs;
    for (const Hypothesis *rule = rules; rule->of; rule++)
        if (explains_the_rest(runs, view, rule))
            return rule->diagnosis;
    if (metrics_that_are(runs->items, runs->count, view, &its_own) == METRICS)
        return &d_average_missing;
    if (metrics_that_are(run, 1, view, &mean) == 0)
        return &d_metrics_wrong;
    return metric_is(run, 1, view, "val_accuracy", &mean)
               ? &d_some_metrics_not_averaged
               : &d_some_metrics_not_averaged_not_the_last;
}

static bool is_called(const Run *run, const char *callback)
{
    for (int r = 0; r < run->ranks; r++)
        if (event_of(&run->traces.of[r], "figures_read", 0, callback))
            return true;
    return false;
}

// Judges what a callback reads, on the ranks that have it.
static void judge_callback(const Runs *runs, const char *property, const char *callback,
                           const Diagnosis *diagnosis, Report *report)
{
    View view = {"figures_read", callback};
    bool any = false;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        if (!is_called(run, callback))
            continue;
        any = true;
        if (metrics_that_are(run, 1, view, &mean) == METRICS)
            continue;
        report_failure(report, property, diagnosis, evidence_in(runs, run, evidence_of(run, view)));
        return;
    }
    if (any)
        report_ok(report, property);
}

static bool judge_history(const Runs *runs, Report *report)
{
    View view = {"history", NULL};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        if (metrics_that_are(run, 1, view, &mean) == METRICS)
            continue;
        return report_failure(report, HISTORY, wrong_history(runs, run, view),
                              evidence_in(runs, run, evidence_of(run, view)));
    }
    return report_ok(report, HISTORY);
}

// The run in which every rank is above the target at once.
static void judge_stop(const Runs *runs, Report *report)
{
    const Run *run = run_named(runs, "stop");
    if (!run)
        return;
    char *evidence = NULL;
    bool right = true;
    for (int r = 0; r < run->ranks; r++) {
        double epochs = event_number(event_last(&run->traces.of[r], "fit_end"), "epochs");
        right = right && epochs == 1;
        text_add(&evidence, "%srank %d trained %.0f epochs", r ? ", " : "", r, epochs);
    }
    report_property(report, STOPPED, &d_stop_missing, right ? NULL : evidence);
    if (right)
        free(evidence);
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, HISTORY, report) || !judge_history(runs, report))
        return;
    judge_callback(runs, STOP, "stop_at_accuracy", &d_average_after_stop, report);
    judge_callback(runs, TENSORBOARD, "tensorboard", &d_average_after_tensorboard, report);
    judge_stop(runs, report);
}

JUDGE("step_06", judge)
ENDS("step_06", &six_steps)
