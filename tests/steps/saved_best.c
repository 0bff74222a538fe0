// Which epoch is kept as the best: by which of the known rules, right or wrong, it was chosen, and
// the mistake that a rule stands for.

#include "saved.h"
#include "diagnoses/saved_best.h"

#include <math.h>
#include <string.h>
#include "base/format.h"

#define BEST "\"best\" is the first epoch with the highest validation accuracy"

#define MAX_EPOCHS 64

// By what an epoch may be the best, the higher the better.
typedef enum {
    VAL_ACCURACY, // this and the next ones: means over all ranks
    WORST,        // the negative one
    ACCURACY,
    VAL_LOSS, // negative
    LOSS,
    OWN,               // the root's validation accuracy
    SEEN,              // the same, when all callbacks were called
    HIGHEST_OF_A_RANK, // validation accuracy
    NUMBER,            // of the epoch
    NOTHING,
    SERIES
} Series;

typedef struct {
    int epochs;
    double of[SERIES][MAX_EPOCHS];
} Course;

static void read_rank(const Run *run, int rank, int e, Course *course)
{
    const cJSON *epoch = event_nth(&run->traces.of[rank], "epoch", e);
    double accuracy = event_number(epoch, "val_accuracy"),
           *most = &course->of[HIGHEST_OF_A_RANK][e];
    course->of[VAL_ACCURACY][e] += accuracy / run->ranks;
    course->of[WORST][e] -= accuracy / run->ranks;
    course->of[ACCURACY][e] += event_number(epoch, "accuracy") / run->ranks;
    course->of[VAL_LOSS][e] -= event_number(epoch, "val_loss") / run->ranks;
    course->of[LOSS][e] -= event_number(epoch, "loss") / run->ranks;
    *most = rank == 0 ? accuracy : fmax(*most, accuracy);
    if (rank == 0)
        course->of[OWN][e] = accuracy;
}

static Course read_course(const Run *run)
{
    Course course = {.epochs = epochs_saved(run)};
    course.epochs = course.epochs < MAX_EPOCHS - 1 ? course.epochs : MAX_EPOCHS - 1;
    for (int e = 0; e <= course.epochs; e++) {
        for (int r = 0; r < run->ranks; r++)
            read_rank(run, r, e, &course);
        course.of[NUMBER][e] = e;
        course.of[SEEN][e] =
            event_number(event_nth(&run->traces.of[0], "history", e), "val_accuracy");
    }
    return course;
}

// Equal up to the rounding of an average.
#define SAME 1e-6

// Which epoch of a series is the best one.
typedef enum { FIRST_HIGHEST, LAST_HIGHEST, LAST_RISE, TO_THE_LAST_BIT } Pick;
typedef struct {
    Series series;
    Pick pick;
} Rule;

// From 1, of the first `epochs`.
static int best_by(const Course *course, Rule rule, int epochs)
{
    const double *series = course->of[rule.series];
    double least = rule.pick == LAST_HIGHEST ? -SAME : rule.pick == TO_THE_LAST_BIT ? 0 : SAME;
    int best = 0;
    for (int e = 1; e < epochs; e++)
        if (series[e] - series[rule.pick == LAST_RISE ? e - 1 : best] > least)
            best = e;
    return best + 1;
}

static const Rule right = {VAL_ACCURACY, FIRST_HIGHEST}, seen = {SEEN, TO_THE_LAST_BIT};

// Where the root was killed it may have been before it saved the best epoch, or after that.
static bool explains(const Run *run, const Course *course, Rule rule, double epoch)
{
    for (int epochs = course->epochs; epochs <= course->epochs + run->killed; epochs++)
        if (best_by(course, rule, epochs) == epoch)
            return true;
    return false;
}

static bool seen_are_means(const Course *course)
{
    for (int e = 0; e < course->epochs; e++)
        if (!(fabs(course->of[SEEN][e] - course->of[VAL_ACCURACY][e]) < SAME))
            return false;
    return true;
}

static const struct {
    Rule rule;
    const Diagnosis *diagnosis;
} known[] = {
    {{OWN, FIRST_HIGHEST}, &d_best_by_own_figures},
    {{VAL_ACCURACY, LAST_HIGHEST}, &d_best_is_the_last_of_equals},
    {{NUMBER, FIRST_HIGHEST}, &d_best_is_the_last},
    {{VAL_ACCURACY, LAST_RISE}, &d_best_of_two},
    {{HIGHEST_OF_A_RANK, FIRST_HIGHEST}, &d_best_on_any_worker},
    {{NOTHING, FIRST_HIGHEST}, &d_best_stays_the_first},
    {{WORST, FIRST_HIGHEST}, &d_best_is_the_worst},
    {{ACCURACY, FIRST_HIGHEST}, &d_best_by_training_figures},
    {{VAL_LOSS, FIRST_HIGHEST}, &d_best_by_loss},
    {{LOSS, FIRST_HIGHEST}, &d_best_by_training_figures},
};

static bool explains_all(const Runs *runs, Rule rule)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Course course = read_course(run);
        SavedFile file = find_file(run, "best" ENDING);
        if (!explains(run, &course, rule, event_number(file.saved, "epoch")))
            return false;
    }
    return true;
}

static const Diagnosis *wrong_best(const Runs *runs)
{
    const Diagnosis *found = NULL;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (!explains_all(runs, known[k].rule))
            continue;
        if (found && strcmp(found->name, known[k].diagnosis->name) != 0)
            return &d_best_wrong; // which one it is can't be told
        found = known[k].diagnosis;
    }
    return found ? found : &d_best_wrong;
}

static void add_series(const Course *course, Series series, const char *what, char **text)
{
    text_add(text, "\n%s", what);
    for (int e = 0; e < course->epochs; e++)
        text_add(text, " %.4f", course->of[series][e]);
}

static Fault best_fault(const Runs *runs, const Run *run)
{
    Course course = read_course(run);
    SavedFile file = find_file(run, "best" ENDING);
    double epoch = event_int(file.saved, "epoch");
    if (course.epochs < 1 || explains(run, &course, right, epoch) ||
        (seen_are_means(&course) && explains(run, &course, seen, epoch)))
        return NO_FAULT;
    Fault fault =
        file.there
            ? fault_with(wrong_best(runs), "best is epoch %g, where epoch %d is right",
                         event_number(file.saved, "epoch"), best_by(&course, right, course.epochs))
            : fault_with(&d_best_missing, "there is no best" ENDING " after %d epochs",
                         course.epochs);
    add_series(&course, VAL_ACCURACY, "mean validation accuracies:", &fault.evidence);
    if (run->ranks > 1)
        add_series(&course, OWN, "the root's own:            ", &fault.evidence);
    return fault;
}

void judge_saved_best(const Runs *runs, Report *report)
{
    judge_each(runs, BEST, best_fault, report);
}
