// Which epoch is kept as the best: by which of the known rules, right or wrong, it was chosen, and
// the mistake that a rule stands for.

#include "saved.h"
#include "diagnoses/saved_best.h"

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
    const Diagnosis *diagnosis;
} known[] = {
    {{.place = VAL_ACCURACY, .own = true}, &d_best_by_own_figures},
    {{.place = VAL_ACCURACY, .last = true}, &d_best_is_the_last_of_equals},
    {{.any = true}, &d_best_is_the_last},
    {{.place = VAL_ACCURACY, .step = true}, &d_best_of_two},
    {{.most = true}, &d_best_on_any_worker},
    {{.once = true}, &d_best_stays_the_first},
    {{.place = VAL_ACCURACY, .low = true}, &d_best_is_the_worst},
    {{.place = ACCURACY}, &d_best_by_training_figures},
    {{.place = VAL_LOSS, .low = true}, &d_best_by_loss},
    {{.place = LOSS, .low = true}, &d_best_by_training_figures},
};

static const Diagnosis *wrong_best(const Runs *runs)
{
    const Diagnosis *found = NULL;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        bool all = true;
        for (const Run *run = runs->items; run < runs_end(runs); run++)
            all = all && explains_run(run, &known[k].rule);
        if (all && found && strcmp(found->name, known[k].diagnosis->name) != 0)
            return &d_best_wrong; // which one it is can't be told
        found = all ? known[k].diagnosis : found;
    }
    return found ? found : &d_best_wrong;
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
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Course course = read_course(run);
        SavedFile file = find_file(run, "best" ENDING);
        if (course.epochs < 1 || is_right(run, &course, event_int(file.saved, "epoch")))
            continue;
        return report_failure(report, BEST, file.there ? wrong_best(runs) : &d_best_missing,
                              evidence_in(runs, run, best_evidence(run, &course, &file)));
    }
    return report_ok(report, BEST);
}
