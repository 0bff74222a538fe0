// Step 6: every callback that reads the metrics sees the mean of all ranks' metrics, so that all
// ranks decide alike and stop in the same epoch. Each rank's own metrics weigh the same here, since
// all ranks make equally many steps; so a weighted mean and an unweighted one are equal.

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "six_steps.h"
#include "diagnoses/judge_step_06.h"

#define HISTORY     "at the end of every epoch all ranks have the mean of their figures"
#define STOP        "the stop rule sees the mean, not the rank's own figures"
#define TENSORBOARD "the TensorBoard callback sees it, too"
#define STOPPED     "where the figures are above the target at once, all stop after the first epoch"
#define TOLERANCE   1e-5 // relative: a float holds seven digits

enum { METRICS = 4 };
static const char *const metrics[METRICS] = {"loss", "accuracy", "val_loss", "val_accuracy"};

#define ALL_METRICS "loss, accuracy, val_loss, val_accuracy"

// The metrics of one epoch: what each rank measured by itself, and what some event says.
typedef struct {
    const Run *run;
    double own[MAX_RANKS], seen[MAX_RANKS];
} Figure;

// The event `name` of an epoch; of the callback `callback` where that isn't NULL.
static const cJSON *event_of(const Events *events, const char *name, int epoch,
                             const char *callback)
{
    EACH (at, events, name)
        if (event_number(events->items[at], "epoch") == epoch &&
            (!callback || strcmp(event_text(events->items[at], "name"), callback) == 0))
            return events->items[at];
    return NULL;
}

static Figure figure(const Run *run, const char *metric, int epoch, const char *event,
                     const char *callback)
{
    Figure figure = {.run = run};
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        figure.own[r] = event_number(event_of(events, "epoch", epoch, NULL), metric);
        figure.seen[r] = event_number(event_of(events, event, epoch, callback), metric);
    }
    return figure;
}

static int epoch_count(const Run *run)
{
    int count = event_count(&run->traces.of[0], "history");
    for (int r = 1; r < run->ranks; r++) {
        int other = event_count(&run->traces.of[r], "history");
        count = other < count ? other : count;
    }
    return count;
}

// ---- What a rank may see.

typedef double (*Formula)(const Figure *figure, int rank);

static double total(const Figure *figure, int rank)
{
    (void)rank;
    double sum = 0;
    for (int r = 0; r < figure->run->ranks; r++)
        sum += figure->own[r];
    return sum;
}

static double mean(const Figure *figure, int rank)
{
    return total(figure, rank) / figure->run->ranks;
}

static double its_own(const Figure *figure, int rank)
{
    return figure->own[rank];
}

static double of_root(const Figure *figure, int rank)
{
    (void)rank;
    return figure->own[0];
}

static double mean_on_root_only(const Figure *figure, int rank)
{
    return rank == 0 ? mean(figure, rank) : figure->own[rank];
}

static double total_over_local_size(const Figure *figure, int rank)
{
    return total(figure, rank) / run_local_size(figure->run, rank);
}

static double mean_of_machine(const Figure *figure, int rank)
{
    const Run *run = figure->run;
    double sum = 0;
    for (int r = 0; r < run->ranks; r++)
        sum += run_node(run, r) == run_node(run, rank) ? figure->own[r] : 0;
    return sum / run_local_size(run, rank);
}

static double tolerance_of(const Figure *figure)
{
    return TOLERANCE * fabs(total(figure, 0)) + 1e-12;
}

// Groups that happen to have the same mean look like one, whose mean is the same.
static double mean_of_those_who_see_it(const Figure *figure, int rank)
{
    double sum = 0;
    int count = 0;
    for (int r = 0; r < figure->run->ranks; r++)
        if (fabs(figure->seen[r] - figure->seen[rank]) <= tolerance_of(figure)) {
            sum += figure->own[r];
            count++;
        }
    return sum / count;
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

// True where the formula gives what all ranks see of the metric in that epoch.
static bool epoch_is(const Run *run, View view, const char *metric, int epoch, Formula formula)
{
    Figure f = figure(run, metric, epoch, view.event, view.callback);
    for (int r = 0; r < run->ranks; r++)
        if (sees(run, view, r) && !(fabs(f.seen[r] - formula(&f, r)) <= tolerance_of(&f)))
            return false;
    return true;
}

// The first epoch in which the formula does not give what all ranks see of the metric; -1: none.
static int first_other_epoch(const Run *run, View view, const char *metric, Formula formula)
{
    int epochs = epoch_count(run);
    for (int epoch = 0; epoch < epochs; epoch++)
        if (!epoch_is(run, view, metric, epoch, formula))
            return epoch;
    return -1;
}

static bool metric_is(const Run *run, View view, const char *metric, Formula formula)
{
    return first_other_epoch(run, view, metric, formula) < 0;
}

static bool metric_is_in_all(const Runs *runs, View view, const char *metric, Formula formula)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (!metric_is(run, view, metric, formula))
            return false;
    return true;
}

static bool all_are(const Runs *runs, View view, Formula formula)
{
    for (int m = 0; m < METRICS; m++)
        if (!metric_is_in_all(runs, view, metrics[m], formula))
            return false;
    return true;
}

// The metrics that the formula explains, where each of the others is the mean, or each rank's own:
// "val_loss, val_accuracy", which the caller frees. NULL where there are none, or it is not so.
static char *explained_metrics(const Runs *runs, View view, Formula formula)
{
    char *names = NULL;
    for (int m = 0; m < METRICS; m++) {
        if (metric_is_in_all(runs, view, metrics[m], mean) ||
            metric_is_in_all(runs, view, metrics[m], its_own))
            continue;
        if (!metric_is_in_all(runs, view, metrics[m], formula)) {
            free(names);
            return NULL;
        }
        text_add(&names, "%s%s", names ? ", " : "", metrics[m]);
    }
    return names;
}

static int metrics_averaged(const Run *run, View view)
{
    int count = 0;
    for (int m = 0; m < METRICS; m++)
        count += metric_is(run, view, metrics[m], mean);
    return count;
}

// Of the first epoch in which a metric is not the mean.
static char *evidence_of(const Run *run, View view)
{
    int first = epoch_count(run);
    for (int m = 0; m < METRICS; m++) {
        int epoch = first_other_epoch(run, view, metrics[m], mean);
        first = epoch >= 0 && epoch < first ? epoch : first;
    }
    char *evidence = format_text(
        "in epoch %d; own: metrics of each rank alone, seen: those in its logs", first + 1);
    for (int m = 0; m < METRICS; m++) {
        Figure f = figure(run, metrics[m], first, view.event, view.callback);
        bool right = epoch_is(run, view, metrics[m], first, mean);
        text_add(&evidence, "\n%-12s own ", metrics[m]);
        for (int r = 0; r < run->ranks; r++)
            text_add(&evidence, " %.4f", f.own[r]);
        text_add(&evidence, "\n%-12s seen", "");
        for (int r = 0; r < run->ranks; r++)
            text_add(&evidence, " %.4f", f.seen[r]);
        text_add(&evidence, "   %s %.4f", right ? "the mean" : "and not the mean,", mean(&f, 0));
    }
    return evidence;
}

// ---- Diagnoses.

// What may have become of metrics that are neither the mean nor each rank's own.
static const struct {
    Formula formula;
    const Diagnosis *diagnosis;
} rules[] = {
    {total, &d_metrics_summed},
    {mean_on_root_only, &d_averaged_on_root_only},
    {of_root, &d_metrics_of_one_rank},
    {total_over_local_size, &d_divided_by_local_size},
    {mean_of_machine, &d_averaged_within_machine},
    {mean_of_those_who_see_it, &d_averaged_within_groups},
};

static bool all_in_run_are(const Run *run, View view, Formula formula)
{
    for (int m = 0; m < METRICS; m++)
        if (!metric_is(run, view, metrics[m], formula))
            return false;
    return true;
}

// In some runs of several ranks everything is averaged, and in the others nothing.
static bool averaged_in_some_runs(const Runs *runs, View view)
{
    int averaged = 0, own = 0;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        bool here = all_in_run_are(run, view, mean);
        if (!here && !all_in_run_are(run, view, its_own))
            return false;
        averaged += run->ranks > 1 && here;
        own += !here;
    }
    return averaged > 0 && own > 0;
}

// What became of the metrics, where there is a rule that tells; false where there is none. Says
// which metrics it is about, where these are not all.
static bool report_rule(const Runs *runs, View view, char *evidence, Report *report)
{
    if (averaged_in_some_runs(runs, view)) {
        report_failure(report, HISTORY, &d_average_missing_in_some_runs, evidence);
        return true;
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char *names = explained_metrics(runs, view, rules[i].formula);
        if (!names)
            continue;
        const Diagnosis *diagnosis = rules[i].diagnosis;
        bool all = strcmp(names, ALL_METRICS) == 0;
        char *mistake = format_text("%s%s%s%s", diagnosis->mistake, all ? "" : " (This is about ",
                                    all ? "" : names, all ? "" : ".)");
        report_failure(report, HISTORY, &(Diagnosis){diagnosis->name, mistake, NULL}, evidence);
        free(mistake);
        free(names);
        return true;
    }
    return false;
}

static const Diagnosis *wrong_history(const Runs *runs, const Run *run, View view)
{
    if (all_are(runs, view, its_own))
        return &d_average_missing;
    if (metrics_averaged(run, view) == 0)
        return &d_metrics_wrong;
    return metric_is(run, view, "val_accuracy", mean) ? &d_some_metrics_not_averaged
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
        if (metrics_averaged(run, view) == METRICS)
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
        if (metrics_averaged(run, view) == METRICS)
            continue;
        char *evidence = evidence_in(runs, run, evidence_of(run, view));
        if (!report_rule(runs, view, evidence, report))
            report_failure(report, HISTORY, wrong_history(runs, run, view), evidence);
        return false; // one run shows it, and what the callbacks read follows from it
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
