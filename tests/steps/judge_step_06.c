// Step 6: every callback that reads the metrics sees the mean of all ranks' figures, so that all
// ranks come to the same conclusions and stop in the same epoch. Each rank's own figures weigh the
// same here, since all ranks make equally many steps; so a weighted mean and an unweighted one are
// equal.

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HISTORY     "at the end of every epoch all ranks have the mean of their figures"
#define STOP        "the stop rule sees the mean, not the rank's own figures"
#define TENSORBOARD "the TensorBoard callback sees it, too"
#define STOP_ENDS   "where the figures are above the target at once, all come to the end, too"
#define STOPPED     "and stop after the same epoch, the first"
#define TOLERANCE   1e-5 // relative: a float holds seven digits

enum { METRICS = 4 };
static const char *const metrics[METRICS] = {"loss", "accuracy", "val_loss", "val_accuracy"};

// The metrics of one epoch: what each rank measured by itself, and what some event says.
typedef struct {
    double own[RANKS], seen[RANKS];
} Figure;

// The event `name` of an epoch; of the callback `callback` where that isn't NULL.
static const cJSON *event_of(const Events *events, const char *name, int epoch,
                             const char *callback)
{
    for (int at = -1; (at = event_find(events, name, at + 1)) >= 0;)
        if (event_number(events->items[at], "epoch") == epoch &&
            (!callback || strcmp(event_text(events->items[at], "name"), callback) == 0))
            return events->items[at];
    return NULL;
}

static Figure figure(const Run *run, const char *metric, int epoch, const char *event,
                     const char *callback)
{
    Figure figure;
    for (int r = 0; r < RANKS; r++) {
        const Events *events = &run->events[r];
        figure.own[r] = event_number(event_of(events, "epoch", epoch, NULL), metric);
        figure.seen[r] = event_number(event_of(events, event, epoch, callback), metric);
    }
    return figure;
}

static int epoch_count(const Run *run)
{
    int count = event_count(&run->events[0], "history");
    for (int r = 1; r < RANKS; r++) {
        int other = event_count(&run->events[r], "history");
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
    for (int r = 0; r < RANKS; r++)
        sum += figure->own[r];
    return sum;
}

static double mean(const Figure *figure, int rank)
{
    return total(figure, rank) / RANKS;
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

// What is looked at: an event, and of which callback.
typedef struct {
    const char *event, *callback;
} View;

// A callback may have been added on some ranks only, one that writes files, say.
static bool sees(const Run *run, View view, int rank)
{
    return !view.callback || event_of(&run->events[rank], view.event, 0, view.callback);
}

// True where the formula gives what all ranks see of the metric in every epoch.
static bool metric_is(const Run *run, View view, const char *metric, Formula formula)
{
    int epochs = epoch_count(run);
    for (int epoch = 0; epoch < epochs; epoch++) {
        Figure f = figure(run, metric, epoch, view.event, view.callback);
        double allowed = TOLERANCE * fabs(total(&f, 0)) + 1e-12;
        for (int r = 0; r < RANKS; r++)
            if (sees(run, view, r) && !(fabs(f.seen[r] - formula(&f, r)) <= allowed))
                return false;
    }
    return epochs > 0;
}

static bool all_are(const Run *run, View view, Formula formula)
{
    for (int m = 0; m < METRICS; m++)
        if (!metric_is(run, view, metrics[m], formula))
            return false;
    return true;
}

static int metrics_averaged(const Run *run, View view)
{
    int count = 0;
    for (int m = 0; m < METRICS; m++)
        count += metric_is(run, view, metrics[m], mean);
    return count;
}

static char *evidence_of(const Run *run, View view)
{
    char *evidence = format_text("in the first epoch");
    for (int m = 0; m < METRICS; m++) {
        Figure f = figure(run, metrics[m], 0, view.event, view.callback);
        bool right = metric_is(run, view, metrics[m], mean);
        text_add(&evidence, "\n%-12s own ", metrics[m]);
        for (int r = 0; r < RANKS; r++)
            text_add(&evidence, " %.4f", f.own[r]);
        text_add(&evidence, "   mean  %.4f   seen ", mean(&f, 0));
        for (int r = 0; r < RANKS; r++)
            text_add(&evidence, " %.4f", f.seen[r]);
        text_add(&evidence, "%s", right ? "" : "  <-");
    }
    return evidence;
}

// ---- Diagnoses.

static const Diagnosis missing = {
    "average-missing",
    "nothing averages the metrics: every rank keeps its own. The callback that "
    "does it is missing.",
    0};
static const Diagnosis after_stop = {
    "average-after-stop",
    "the metrics are averaged only after the stop rule has read them. Callbacks "
    "run in the order in which they were added.",
    0};
static const Diagnosis after_tensorboard = {
    "average-after-tensorboard",
    "the metrics are averaged only after the TensorBoard callback has "
    "read them, so it logs the root's own figures. Callbacks run in the "
    "order in which they were added.",
    0};
static const Diagnosis some = {
    "some-metrics-not-averaged",
    "some metrics are averaged and others are not. There are four: loss, "
    "accuracy, val_loss, val_accuracy.",
    0};
static const Diagnosis summed = {
    "metrics-summed", "the metrics are added up, but not divided by the number of workers.", 0};
static const Diagnosis of_one_rank = {
    "metrics-of-one-rank",
    "all ranks have the root's figures. They agree, but the images of the "
    "others count for nothing: average them.",
    0};
static const Diagnosis on_root_only = {
    "averaged-on-root-only",
    "only the root gets the mean; the others keep their own figures, and "
    "stop by them. An all-reduce gives the result to all.",
    0};
static const Diagnosis wrong = {"metrics-wrong",
                                "the metrics are neither the ranks' own nor their mean.", 0};

static const Diagnosis *wrong_history(const Run *run, View view)
{
    if (all_are(run, view, its_own))
        return &missing;
    if (all_are(run, view, total))
        return &summed;
    if (all_are(run, view, mean_on_root_only))
        return &on_root_only;
    if (all_are(run, view, of_root))
        return &of_one_rank;
    return metrics_averaged(run, view) > 0 ? &some : &wrong;
}

static bool is_called(const Run *run, const char *callback)
{
    for (int r = 0; r < RANKS; r++)
        if (event_of(&run->events[r], "callback", 0, callback))
            return true;
    return false;
}

// Judges what a callback sees, on the ranks that have it.
static void judge_callback(const Run *run, const char *property, const char *callback,
                           const Diagnosis *diagnosis, Report *report)
{
    View view = {"callback", callback};
    if (!is_called(run, callback))
        return;
    if (metrics_averaged(run, view) == METRICS)
        report_ok(report, property);
    else
        report_failure(report, property, diagnosis, evidence_of(run, view));
}

void judge_step_6(const Run *run, Report *report)
{
    View history = {"history", NULL};
    if (metrics_averaged(run, history) < METRICS) {
        report_failure(report, HISTORY, wrong_history(run, history), evidence_of(run, history));
        return;
    }
    report_ok(report, HISTORY);
    judge_callback(run, STOP, "stop_at_accuracy", &after_stop, report);
    judge_callback(run, TENSORBOARD, "tensorboard", &after_tensorboard, report);
}

// ---- The run that stops early.

void judge_stop(const Run *run, Report *report)
{
    static const Diagnosis wrong_stop = {
        "stop-missing",
        "the validation accuracy is above --target-accuracy and --patience is 1, but "
        "training goes on: the stop rule is missing, or not on every rank.",
        0};
    if (!judge_end(run, STOP_ENDS, report))
        return;
    char *evidence = NULL;
    bool right = true;
    for (int r = 0; r < RANKS; r++) {
        double epochs = event_number(event_last(&run->events[r], "fit_end"), "epochs");
        right = right && epochs == 1;
        text_add(&evidence, "%srank %d trained %.0f epochs", r ? ", " : "", r, epochs);
    }
    if (!right) {
        report_failure(report, STOPPED, &wrong_stop, evidence);
        return;
    }
    free(evidence);
    report_ok(report, STOPPED);
}
