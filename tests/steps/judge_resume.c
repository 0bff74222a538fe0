// Resume: a training that was killed and gone on with makes the same steps as one that nobody has
// stopped: the run of as many ranks that neither is killed nor comes after another.

#include "end.h"
#include "judge.h"
#include "rates.h"
#include "waiting.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOUND "all ranks restore the latest checkpoint, the same one; where there is none, nothing"
#define PLACE "the training goes on where it was saved"
#define SAME  "every later step is that of a training that nobody has stopped, bit for bit"
#define FALLS "the learning rate falls with every batch of a training"
#define SAID  "the root says what it begins with, and nobody else does"

#define FALL 0.005 // as the program has it

// What holds in the runs that came to their end is no more than that where another one did not: it
// may be just what that one ended by.
static void report_held(const Runs *runs, Report *report, const char *property)
{
    if (runs->all)
        report_ok(report, property);
}

// ---- Checkpoints.

// How far a training was: epochs that are done, and steps of the next.
typedef struct {
    int epoch, step;
} Reached;

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Of the file "ckpt-1-6.safetensors", "ckpt-2.safetensors"; false for any other.
static bool read_place(const char *file, Reached *place)
{
    int length = 0;
    *place = (Reached){0};
    if (sscanf(file, "ckpt-%d-%d.safetensors%n", &place->epoch, &place->step, &length) == 2 &&
        length > 0)
        return file[length] == '\0';
    *place = (Reached){0};
    length = 0;
    return sscanf(file, "ckpt-%d.safetensors%n", &place->epoch, &length) == 1 && length > 0 &&
           file[length] == '\0';
}

static bool is_before(Reached a, Reached b)
{
    return a.epoch < b.epoch || (a.epoch == b.epoch && a.step < b.step);
}

static char *name_of(Reached place)
{
    return place.step > 0 ? format_text("ckpt-%d-%d", place.epoch, place.step)
                          : format_text("ckpt-%d", place.epoch);
}

static char *folder_of(const Run *run)
{
    static const char flag[] = "--checkpoint-dir ";
    const char *name = strstr(run->plan.flags, flag);
    CHECK(name);
    name += strlen(flag);
    return format_text("%s/%.*s", run->work, (int)strcspn(name, " "), name);
}

// The furthest checkpoint that a run has left; false: there is none.
static bool latest_of(const Run *run, Reached *latest)
{
    char *folder = folder_of(run);
    DIR *names = opendir(folder);
    bool found = false;
    for (const struct dirent *entry; names && (entry = readdir(names));) {
        Reached place;
        if (!read_place(entry->d_name, &place) || (found && is_before(place, *latest)))
            continue;
        *latest = place;
        found = true;
    }
    if (names)
        closedir(names);
    free(folder);
    return found;
}

// What the run finds where it begins.
static bool finds(const Runs *runs, const Run *run, Reached *place)
{
    return run->plan.after && latest_of(run_named(runs, run->plan.after), place);
}

// ---- What is restored.

// The rank's last restored checkpoint before fit; NULL: none.
static const cJSON *restored_by(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int fit = event_find(events, "fit", 0);
    const cJSON *restored = NULL;
    for (int at = -1; (at = event_find(events, "restored", at + 1)) >= 0 && (fit < 0 || at < fit);)
        restored = events->items[at];
    return restored;
}

static RankSet ranks_that_restored(const Run *run)
{
    RankSet ranks = 0;
    for (int r = 0; r < run->ranks; r++)
        ranks |= restored_by(run, r) ? 1u << r : 0;
    return ranks;
}

// What a rank restored, or "nothing".
static const char *name_restored(const Run *run, int rank)
{
    const cJSON *restored = restored_by(run, rank);
    return restored ? last_part(event_text(restored, "path")) : "nothing";
}

static bool all_restored_the_same(const Run *run)
{
    for (int r = 1; r < run->ranks; r++)
        if (strcmp(name_restored(run, r), name_restored(run, 0)) != 0)
            return false;
    return true;
}

static char *restored_evidence(const Run *run, const char *there)
{
    char *evidence = format_text("the latest checkpoint there is %s", there ? there : "none");
    for (int r = 0; r < run->ranks; r++)
        text_add(&evidence, "\nrank %d restored %s", r, name_restored(run, r));
    return evidence;
}

static const Diagnosis nothing_restored = {
    "not-restored",
    "there is a checkpoint, and no rank restores it before fit: the training begins anew.", NULL};
static const Diagnosis some_restored = {
    "restored-by-some",
    "some ranks restore the checkpoint and others don't. Each worker has a state of its own beside "
    "the weights, and a plan of its own that has to say where the training goes on.",
    NULL};
static const Diagnosis different = {
    "different-checkpoints",
    "ranks restore different checkpoints. What a worker sees of a folder on another machine may be "
    "older than what another one sees (the check has the second machine see the last one late): "
    "one looks, and all go by its answer.",
    NULL};

static const Diagnosis *wrong_restored(const Run *run)
{
    static const Diagnosis older = {"older-checkpoint",
                                    "there is a later checkpoint than the one that is restored: "
                                    "what was trained since is lost.",
                                    NULL};
    RankSet ranks = ranks_that_restored(run);
    if (!ranks)
        return &nothing_restored;
    if (ranks != all_ranks(run->ranks))
        return &some_restored;
    return all_restored_the_same(run) ? &older : &different;
}

// Something is restored when fit has begun, or is over.
static bool restored_late(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        int fit = event_find(events, "fit", 0);
        if (fit >= 0 && event_find(events, "restored", fit) >= 0)
            return true;
    }
    return false;
}

static bool judge_restored(const Runs *runs, Report *report)
{
    static const Diagnosis late = {
        "restored-too-late",
        "the training is restored when fit has begun already, or is over: it comes before fit, "
        "when the plan is complete.",
        NULL};
    static const Diagnosis unasked = {
        "restored-unasked", "there is no checkpoint, and yet something is restored.", NULL};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        Reached place;
        bool there = finds(runs, run, &place);
        char *name = there ? name_of(place) : NULL;
        char *file = there ? format_text("%s.safetensors", name) : format_text("nothing");
        bool too_late = restored_late(run);
        bool right =
            !too_late && all_restored_the_same(run) && strcmp(name_restored(run, 0), file) == 0;
        if (!right)
            report_failure(report, FOUND,
                           too_late ? &late
                           : there  ? wrong_restored(run)
                                    : &unasked,
                           evidence_in(runs, run, restored_evidence(run, name)));
        free(name);
        free(file);
        if (!right)
            return false;
    }
    report_held(runs, report, FOUND);
    return true;
}

// ---- Where it goes on.

static const cJSON *first_step(const Run *run, int rank)
{
    return event_nth(&run->traces.of[rank], "step", 0);
}

static bool judge_places(const Runs *runs, Report *report)
{
    static const Diagnosis elsewhere = {
        "begins-elsewhere",
        "the training begins at another step than the one after the checkpoint. "
        "restore_checkpoint has said in the plan where: what is changed there afterwards, or in a "
        "copy of it, leads elsewhere.",
        NULL};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        Reached place = {0};
        bool done = finds(runs, run, &place) && place.epoch >= run_flag(run, "--epochs ");
        for (int r = 0; r < run->ranks && !done; r++) {
            const cJSON *step = first_step(run, r);
            double epoch = event_number(step, "epoch"), number = event_number(step, "step");
            if (epoch == place.epoch && number == place.step)
                continue;
            char *evidence =
                format_text("%d epochs and %d steps were done\n", place.epoch, place.step);
            if (step)
                text_add(&evidence, "rank %d begins with step %g of epoch %g", r, number + 1,
                         epoch + 1);
            else
                text_add(&evidence, "rank %d makes no step", r);
            report_failure(report, PLACE, &elsewhere, evidence_in(runs, run, evidence));
            return false;
        }
    }
    report_held(runs, report, PLACE);
    return true;
}

// ---- The steps.

// The run with as many ranks that nobody has stopped.
static const Run *whole_run(const Runs *runs, const Run *run)
{
    for (int i = 0; i < runs->count; i++) {
        const Run *other = &runs->items[i];
        if (other->ranks == run->ranks && !other->plan.after && !other->plan.kill)
            return other;
    }
    return NULL;
}

// The place of the event in which that step ends, or -1.
static int find_step(const Events *events, double epoch, double step)
{
    for (int at = -1; (at = event_find(events, "step", at + 1)) >= 0;)
        if (event_number(events->items[at], "epoch") == epoch &&
            event_number(events->items[at], "step") == step)
            return at;
    return -1;
}

// The last event of that name before a place; NULL: there is none.
static const cJSON *event_before(const Events *events, const char *name, int place)
{
    while (--place >= 0)
        if (event_is(events->items[place], name))
            return events->items[place];
    return NULL;
}

// A step that is not the same in both runs.
typedef struct {
    const Run *run, *whole;
    int rank;
    const Events *events, *other; // of the rank in both
    int at, there;                // the step in these
} Difference;

static bool same_state(const cJSON *a, const cJSON *b)
{
    return event_number(a, "weights") == event_number(b, "weights") &&
           event_number(a, "statistics") == event_number(b, "statistics");
}

// The rank's first step that differs; false: none does.
static bool find_difference(const Run *run, const Run *whole, int rank, Difference *d)
{
    *d = (Difference){run, whole, rank, &run->traces.of[rank], &whole->traces.of[rank], -1, -1};
    while ((d->at = event_find(d->events, "step", d->at + 1)) >= 0) {
        const cJSON *step = d->events->items[d->at];
        d->there = find_step(d->other, event_number(step, "epoch"), event_number(step, "step"));
        if (d->there < 0 || !same_state(step, d->other->items[d->there]))
            return true;
    }
    return false;
}

// What the step was made from, in this run and in the whole one.
static const cJSON *own(const Difference *d, const char *event)
{
    return event_before(d->events, event, d->at);
}

static const cJSON *others(const Difference *d, const char *event)
{
    return event_before(d->other, event, d->there);
}

static bool same_images(const Difference *d)
{
    return strcmp(event_text(own(d, "images"), "drawn"),
                  event_text(others(d, "images"), "drawn")) == 0;
}

static double rate_of(const cJSON *apply)
{
    return event_number(apply, "learning_rate");
}

// The rate is the one that the whole training had as many batches after its beginning as this one
// is after its own.
static bool rate_begins_anew(const Difference *d)
{
    int steps = 0;
    for (int at = -1; (at = event_find(d->events, "step", at + 1)) >= 0 && at < d->at;)
        steps++;
    return same_rate(rate_of(own(d, "apply")), rate_of(event_nth(d->other, "apply", steps)));
}

// The weights, when the training goes on, are those of the step before.
static bool begins_with_the_weights(const Difference *d)
{
    const cJSON *first = event_nth(d->events, "first_batch", 0);
    const cJSON *before = event_before(d->other, "step", d->there);
    return event_number(first, "weights") == event_number(before, "weights");
}

static bool is_first(const Difference *d)
{
    return d->events->items[d->at] == first_step(d->run, d->rank);
}

static const Diagnosis *why(const Difference *d)
{
    static const Diagnosis more = {
        "steps-beyond", "there are more steps than in a training that nobody has stopped.", NULL};
    static const Diagnosis batches = {
        "other-batches",
        "the images are not those that come next. Where its batches are, and its random numbers, "
        "restore_checkpoint gives each worker by way of the plan: one that is not NULL, and that "
        "fit gets as it is.",
        NULL};
    static const Diagnosis weights = {
        "other-weights",
        "the training does not go on with the weights that were saved: often they are set once "
        "more after restore_checkpoint, or something is done before it that it undoes.",
        NULL};
    static const Diagnosis count = {
        "count-lost",
        "the learning rate is that of a training that has just begun: the count of the callback "
        "is 0 again. A checkpoint keeps what the callback names in `kept`, as many numbers as "
        "`kept_count` says.",
        NULL};
    static const Diagnosis rate = {
        "other-rate",
        "the learning rate is not the one that comes next: the count of the callback is not what "
        "it was.",
        NULL};
    static const Diagnosis otherwise = {
        "goes-on-otherwise",
        "something that the steps depend on is not what it was: each worker restores all of its "
        "own state, before fit.",
        NULL};
    if (d->there < 0)
        return &more;
    if (!same_images(d))
        return &batches;
    if (!same_rate(rate_of(own(d, "apply")), rate_of(others(d, "apply"))))
        return rate_begins_anew(d) ? &count : &rate;
    return is_first(d) && !begins_with_the_weights(d) ? &weights : &otherwise;
}

static char *difference_evidence(const Difference *d)
{
    const cJSON *step = d->events->items[d->at];
    char *evidence = format_text("rank %d: step %g of epoch %g is another one", d->rank,
                                 event_number(step, "step") + 1, event_number(step, "epoch") + 1);
    if (d->there < 0)
        return evidence;
    text_add(&evidence, "\nimages: %s, where %s come next", event_text(own(d, "images"), "drawn"),
             event_text(others(d, "images"), "drawn"));
    text_add(&evidence, "\nlearning rate: %.6g, where %.6g is next", rate_of(own(d, "apply")),
             rate_of(others(d, "apply")));
    text_add(&evidence, "\nweights after it, as a fingerprint: %.9g, where %.9g is right",
             event_number(step, "weights"), event_number(d->other->items[d->there], "weights"));
    return evidence;
}

// Steps of a run that came to its end, up to the last one of the whole training.
static bool ends_too_early(const Run *run, const Run *whole, int rank)
{
    const cJSON *last = event_last(&run->traces.of[rank], "step");
    const cJSON *other = event_last(&whole->traces.of[rank], "step");
    return last && !run->killed &&
           (event_number(last, "epoch") != event_number(other, "epoch") ||
            event_number(last, "step") != event_number(other, "step"));
}

// False where something is reported.
static bool judge_rank(const Runs *runs, const Run *run, int rank, Report *report)
{
    static const Diagnosis early = {"steps-missing",
                                    "the training ends before its last epoch is done.", NULL};
    const Run *whole = whole_run(runs, run);
    Difference d;
    if (!whole || whole == run)
        return true;
    if (find_difference(run, whole, rank, &d)) {
        report_failure(report, SAME, why(&d), evidence_in(runs, run, difference_evidence(&d)));
        return false;
    }
    if (ends_too_early(run, whole, rank)) {
        const cJSON *last = event_last(&run->traces.of[rank], "step");
        report_failure(report, SAME, &early,
                       evidence_in(runs, run,
                                   format_text("rank %d ends after step %g of epoch %g", rank,
                                               event_number(last, "step") + 1,
                                               event_number(last, "epoch") + 1)));
        return false;
    }
    return true;
}

static void judge_steps(const Runs *runs, Report *report)
{
    for (int i = 0; i < runs->count; i++)
        for (int r = 0; r < runs->items[i].ranks; r++)
            if (!judge_rank(runs, &runs->items[i], r, report))
                return;
    report_held(runs, report, SAME);
}

// ---- The rate of a training that nobody has stopped.

// The first update whose rate is not that of its batch, from 0; -1: there is none.
static int other_rate(const Run *run, int rank, double *right)
{
    const Events *events = &run->traces.of[rank];
    double lr = run_flag(run, "--base-lr ");
    int batch = 0;
    for (int at = -1; (at = event_find(events, "apply", at + 1)) >= 0; batch++) {
        *right = lr / (1 + FALL * batch);
        if (!same_rate(rate_of(events->items[at]), *right))
            return batch;
    }
    return -1;
}

static void judge_rates(const Runs *runs, Report *report)
{
    static const Diagnosis changed = {
        "rate-changed",
        "the rate depends on how many batches the training has had, over all of its epochs: the "
        "callback is to count as it did, and to have its count kept.",
        NULL};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        for (int r = 0; r < run->ranks && !run->plan.after; r++) {
            double right = 0;
            int batch = other_rate(run, r, &right);
            if (batch < 0)
                continue;
            double rate = rate_of(event_nth(&run->traces.of[r], "apply", batch));
            report_failure(report, FALLS, &changed,
                           evidence_in(runs, run,
                                       format_text("rank %d, batch %d of the training: learning "
                                                   "rate %.6g, where %.6g is right",
                                                   r, batch + 1, rate, right)));
            return;
        }
    }
    report_held(runs, report, FALLS);
}

// ---- What is said.

#define OLD_MODEL "Restoring from"
#define NEW_MODEL "Creating a new model"

// The rank's first line with these words; NULL: there is none.
static const char *line_with(const Run *run, int rank, const char *words)
{
    for (int i = 0; i < run->output.count; i++) {
        const Line *line = &run->output.lines[i];
        if (line->rank == rank && strcasestr(line->text, words))
            return line->text;
    }
    return NULL;
}

static const Diagnosis *wrong_words(const Run *run, const char *right, const char *wrong,
                                    const char *name)
{
    static const Diagnosis unsaid = {
        "not-said",
        "the root says \"" OLD_MODEL " NAME\", or \"" NEW_MODEL "\", as the TODO has it.", NULL};
    static const Diagnosis others_say = {"said-by-others",
                                         "one line is enough: it is the root's, rank 0's.", NULL};
    static const Diagnosis untrue = {"said-wrong", "what the root says is not what it does.", NULL};
    for (int r = 1; r < run->ranks; r++)
        if (line_with(run, r, right) || line_with(run, r, wrong))
            return &others_say;
    const char *line = line_with(run, 0, right);
    if (line_with(run, 0, wrong) || (line && name && !strstr(line, name)))
        return &untrue;
    return line ? NULL : &unsaid;
}

static char *words_evidence(const Run *run, const char *words, const char *name)
{
    char *evidence =
        format_text("the root is to say: %s%s%s", words, name ? " ... " : "", name ? name : "");
    for (int r = 0; r < run->ranks; r++) {
        const char *line = line_with(run, r, OLD_MODEL);
        line = line ? line : line_with(run, r, NEW_MODEL);
        text_add(&evidence, "\nrank %d says %.200s", r, line ? line : "nothing of it");
    }
    return evidence;
}

static void judge_words(const Runs *runs, Report *report)
{
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        Reached place;
        bool there = finds(runs, run, &place);
        char *name = there ? name_of(place) : NULL;
        const char *right = there ? OLD_MODEL : NEW_MODEL, *other = there ? NEW_MODEL : OLD_MODEL;
        const Diagnosis *wrong = wrong_words(run, right, other, name);
        if (wrong)
            report_failure(report, SAID, wrong,
                           evidence_in(runs, run, words_evidence(run, right, name)));
        free(name);
        if (wrong)
            return;
    }
    report_held(runs, report, SAID);
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(&(Runs){.items = runs->items, .count = 1}, FOUND, report))
        return;
    judge_rates(runs, report);
    if (judge_restored(runs, report) && judge_places(runs, report))
        judge_steps(runs, report);
    if (runs->all || !report_passed(report))
        judge_words(runs, report);
}

// ---- The library ends a training that would overwrite the one that is there, and ranks that set
// out for different ones.

#define REFUSED "holds checkpoints of another training"

static bool begins_differently(const Output *output)
{
    static const char *const words[] = {"begin with epoch", "begins with epoch", "begin after ",
                                        "begins after "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (output_says(output, words[i]))
            return true;
    return false;
}

// All ranks have come to fit, so that what they have not restored by then they never will.
static bool all_began(const Run *run)
{
    return ranks_with(&run->traces, "fit") == all_ranks(run->ranks);
}

static bool ended_by_signal(const Run *run)
{
    return run->status > 128 || strstr(output_failed_rank(&run->output, -1).how, "signal");
}

// What it hands to the call is at fault then.
static bool ends_in_collective(const Events *events)
{
    return events->count > 0 && event_is(events->items[events->count - 1], "collective_begin");
}

// Before fit, where there is no checkpoint: what is not proven is said as a guess.
static void crashed_before_fit(const Run *run, Report *report)
{
    static const Diagnosis null = {
        "crashed",
        "there is no checkpoint here, and something before fit goes to a place in memory that is "
        "none: often it is the answer of latest_checkpoint, which is NULL then.",
        NULL};
    int rank = output_failed_rank(&run->output, -1).rank;
    bool in_call = rank >= 0 && rank < run->ranks && ends_in_collective(&run->traces.of[rank]);
    if (!run->plan.after && !ranks_with(&run->traces, "fit") && ended_by_signal(run) && !in_call)
        report_failure(report, FOUND, &null,
                       evidence_of_run(run, format_text("no rank has come to fit")));
}

static void crashed(const Run *run, Report *report)
{
    static const Diagnosis untold = {
        "plan-not-told",
        "the checkpoint is restored, and fit begins with the first epoch all the same: often "
        "restore_checkpoint got no plan (NULL), or another one than fit.",
        NULL};
    RankSet ranks = ranks_that_restored(run);
    bool refused = output_says(&run->output, REFUSED);
    if (!refused && !begins_differently(&run->output) && !all_began(run)) {
        crashed_before_fit(run, report);
        return;
    }
    const Diagnosis *diagnosis = !ranks                           ? &nothing_restored
                                 : ranks != all_ranks(run->ranks) ? &some_restored
                                 : !all_restored_the_same(run)    ? &different
                                 : refused                        ? &untold
                                                                  : NULL;
    if (!diagnosis || !run->plan.after)
        return;
    char *evidence = format_text("%s restored a checkpoint", rank_names(ranks).text);
    for (int r = 0; r < run->ranks; r++)
        text_add(&evidence, "\nrank %d restored %s", r, name_restored(run, r));
    report_failure(report, diagnosis == &untold ? PLACE : FOUND, diagnosis,
                   evidence_of_run(run, evidence));
}

#define ANOTHER_PLACE                                                                              \
    {                                                                                              \
        "begins-elsewhere",                                                                        \
            "the ranks' plans say different places where the training goes on. "                   \
            "restore_checkpoint has said in each where it does.",                                  \
            NULL                                                                                   \
    }
#define RATES_DIFFER                                                                               \
    {                                                                                              \
        "rates-differ",                                                                            \
            "ranks come to an update with different learning rates: each worker restores what "    \
            "its "                                                                                 \
            "own callback kept, and so each one's says what that is, in `kept` and `kept_count`.", \
            NULL                                                                                   \
    }
#define NO_NAME                                                                                    \
    {                                                                                              \
        "restores-no-name",                                                                        \
            "a checkpoint without a name is to be restored: where there is none, nothing is "      \
            "restored.",                                                                           \
            NULL                                                                                   \
    }
static const Explanation explanations[] = {
    {REFUSED,
     {"begins-anew",
      "there are checkpoints of a training, and fit begins another one, which would overwrite "
      "them: "
      "fit's plan has to say where it goes on.",
      NULL}},
    {"begin with epoch", ANOTHER_PLACE},
    {"begins with epoch", ANOTHER_PLACE},
    {"begin after ", ANOTHER_PLACE},
    {"begins after ", ANOTHER_PLACE},
    {"uses learning rate", RATES_DIFFER},
    {"use learning rate", RATES_DIFFER},
    {"/.safetensors", NO_NAME},
    {"/(null).safetensors", NO_NAME},
    {".safetensors: No such file",
     {"no-such-checkpoint",
      "a checkpoint is to be restored that is not there: often its name was cut on the way from "
      "the "
      "root (by the size of a pointer, say, and not of the array), or was never set.",
      NULL}},
    {"MPI_ERR_TRUNCATE",
     {"name-cut",
      "a message is longer than the room that a worker has for it: the root sends as many "
      "characters as all expect, sizeof name, say, and not as many as its name has.",
      NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations, .crashed = crashed};

JUDGE("resume", judge)
ENDS("resume", &ends)
