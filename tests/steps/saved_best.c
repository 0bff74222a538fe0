// Which epoch is kept as the best: by which of the known rules, right or wrong, it was chosen, and
// the mistake that a rule stands for.

#include "saved.h"

#include <math.h>
#include <string.h>
#include "base/format.h"

#define BEST "\"best\" is the first epoch with the highest validation accuracy"

#define MAX_EPOCHS 64

typedef struct {
    double loss, accuracy, val_loss, val_accuracy;
} Figures;

typedef struct {
    int epochs;
    Figures own[MAX_EPOCHS];  // the root's
    Figures mean[MAX_EPOCHS]; // of all ranks
    double most[MAX_EPOCHS];  // the highest validation accuracy of a rank
    double seen[MAX_EPOCHS];  // the root's validation accuracies, when all callbacks were called
} Course;

static Figures figures_of(const cJSON *event)
{
    return (Figures){event_number(event, "loss"), event_number(event, "accuracy"),
                     event_number(event, "val_loss"), event_number(event, "val_accuracy")};
}

static Course read_course(const Run *run)
{
    Course course = {.epochs = epochs_saved(run)};
    course.epochs = course.epochs < MAX_EPOCHS - 1 ? course.epochs : MAX_EPOCHS - 1;
    for (int e = 0; e <= course.epochs; e++) {
        course.own[e] = figures_of(event_nth(&run->traces.of[0], "epoch", e));
        course.seen[e] = event_number(event_nth(&run->traces.of[0], "history", e), "val_accuracy");
        for (int r = 0; r < run->ranks; r++) {
            Figures f = figures_of(event_nth(&run->traces.of[r], "epoch", e));
            course.mean[e].loss += f.loss / run->ranks;
            course.mean[e].accuracy += f.accuracy / run->ranks;
            course.mean[e].val_loss += f.val_loss / run->ranks;
            course.mean[e].val_accuracy += f.val_accuracy / run->ranks;
            course.most[e] = r == 0 ? f.val_accuracy : fmax(course.most[e], f.val_accuracy);
        }
    }
    return course;
}

// By which figure, of whom, an epoch is the best.
typedef struct {
    bool own;  // the root's own, not the mean
    int place; // of the metric in Figures
    bool low;  // the lowest one
    bool last; // of several equal ones
    bool any;  // the last epoch, whatever its metrics
    bool once; // the first one
    bool step; // the last one that was better than the epoch before it
    bool most; // the highest one of any rank
} Rule;

static double figure(const Course *course, const Rule *rule, int epoch)
{
    if (rule->most)
        return course->most[epoch];
    const Figures *figures = rule->own ? &course->own[epoch] : &course->mean[epoch];
    double value = ((const double *)figures)[rule->place];
    return rule->low ? -value : value;
}

// Equal up to the rounding of an average.
#define SAME 1e-6

// The best epoch, from 1, of the first `epochs`.
static int best_by(const Course *course, const Rule *rule, int epochs)
{
    int best = 0;
    if (rule->any || rule->once)
        return rule->once ? 1 : epochs;
    for (int e = 1; e < epochs; e++) {
        double lead = figure(course, rule, e) - figure(course, rule, rule->step ? e - 1 : best);
        if (lead > SAME || (rule->last && lead > -SAME))
            best = e;
    }
    return best + 1;
}

// The first one with the highest of the root's averages, to their last bit.
static int best_seen(const Course *course, int epochs)
{
    int best = 0;
    for (int e = 1; e < epochs; e++)
        if (course->seen[e] > course->seen[best])
            best = e;
    return best + 1;
}

static bool seen_are_means(const Course *course)
{
    for (int e = 0; e < course->epochs; e++)
        if (!(fabs(course->seen[e] - course->mean[e].val_accuracy) < SAME))
            return false;
    return true;
}

enum { LOSS, ACCURACY, VAL_LOSS, VAL_ACCURACY };
static const Rule right = {.place = VAL_ACCURACY};

// Where the root was killed it may have been before it saved the best epoch, or after that.
static bool is_right(const Run *run, const Course *course, int epoch)
{
    for (int epochs = course->epochs; epochs <= course->epochs + run->killed; epochs++)
        if (epoch == best_by(course, &right, epochs) ||
            (seen_are_means(course) && epoch == best_seen(course, epochs)))
            return true;
    return false;
}

static bool explains_run(const Run *run, const Rule *rule)
{
    Course course = read_course(run);
    SavedFile file = find_file(run, "best" ENDING);
    double epoch = event_number(file.saved, "epoch");
    for (int epochs = course.epochs; epochs <= course.epochs + run->killed; epochs++)
        if (best_by(&course, rule, epochs) == epoch)
            return true;
    return false;
}

static const struct {
    Rule rule;
    Diagnosis diagnosis;
} known[] = {
    {{.place = VAL_ACCURACY, .own = true},
     {"best-by-own-figures",
      "the best epoch is the best one on the root's own validation images. The callback must be "
      "after hvd_metric_average in the list, and must read training->logs: before it, and in the "
      "history's last entry, it gets the worker's own metrics.",
      NULL}},
    {{.place = VAL_ACCURACY, .last = true},
     {"best-is-the-last-of-equals",
      "an epoch that is as good as the best one takes its place. It is better where its accuracy "
      "is higher (>, not >=).",
      NULL}},
    {{.any = true},
     {"best-is-the-last",
      "\"best\" is always the last epoch: often the highest accuracy so far is never remembered.",
      NULL}},
    {{.place = VAL_ACCURACY, .step = true},
     {"best-of-two",
      "an epoch that is better than the one before it becomes the best, though there was a better "
      "one earlier: the highest accuracy so far changes only where a higher one comes.",
      NULL}},
    {{.most = true},
     {"best-on-any-worker",
      "the best epoch is the best one on some worker's own validation images. The average over all "
      "workers must decide; training->logs has it after hvd_metric_average.",
      NULL}},
    {{.once = true},
     {"best-stays-the-first", "\"best\" is the first epoch, and no later one takes its place.",
      NULL}},
    {{.place = VAL_ACCURACY, .low = true},
     {"best-is-the-worst", "\"best\" is the epoch with the lowest validation accuracy.", NULL}},
    {{.place = ACCURACY},
     {"best-by-training-figures",
      "the best epoch is the best one on the training images. logs.val_accuracy is that of images "
      "that the model has not learned from.",
      NULL}},
    {{.place = VAL_LOSS, .low = true},
     {"best-by-loss", "the best epoch is that with the lowest loss, not the highest accuracy.",
      NULL}},
    {{.place = LOSS, .low = true},
     {"best-by-training-figures",
      "the best epoch is the best one on the training images. logs.val_accuracy is that of images "
      "that the model has not learned from.",
      NULL}},
};

static const Diagnosis *wrong_best(const Runs *runs)
{
    static const Diagnosis wrong = {
        "best-wrong",
        "no single mistake that this check knows explains which epochs are kept as the best. Is "
        "the accuracy the validation's, and the average? Is the highest one so far remembered?",
        NULL};
    const Diagnosis *found = NULL;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        bool all = true;
        for (const Run *run = runs->items; run < runs_end(runs); run++)
            all = all && explains_run(run, &known[k].rule);
        if (all && found && strcmp(found->name, known[k].diagnosis.name) != 0)
            return &wrong; // which one it is can't be told
        found = all ? &known[k].diagnosis : found;
    }
    return found ? found : &wrong;
}

static char *best_evidence(const Run *run, const Course *course, const SavedFile *file)
{
    char *evidence =
        file->there ? format_text("best is epoch %g, where epoch %d is right",
                                  event_number(file->saved, "epoch"),
                                  best_by(course, &right, course->epochs))
                    : format_text("there is no best" ENDING " after %d epochs", course->epochs);
    text_add(&evidence, "\nmean validation accuracies:");
    for (int e = 0; e < course->epochs; e++)
        text_add(&evidence, " %.4f", course->mean[e].val_accuracy);
    if (run->ranks > 1) {
        text_add(&evidence, "\nthe root's own:            ");
        for (int e = 0; e < course->epochs; e++)
            text_add(&evidence, " %.4f", course->own[e].val_accuracy);
    }
    return evidence;
}

bool judge_saved_best(const Runs *runs, Report *report)
{
    static const Diagnosis missing = {
        "best-missing",
        "an epoch is done, and nothing is there under the name \"best\". The first one is better "
        "than none.",
        NULL};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Course course = read_course(run);
        SavedFile file = find_file(run, "best" ENDING);
        if (course.epochs < 1 || is_right(run, &course, event_int(file.saved, "epoch")))
            continue;
        return report_failure(report, BEST, file.there ? wrong_best(runs) : &missing,
                              evidence_in(runs, run, best_evidence(run, &course, &file)));
    }
    return report_ok(report, BEST);
}
