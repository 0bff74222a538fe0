// Workers that run out: each trains on all of its images, once an epoch; each makes every update,
// and applies the mean of the gradients that were computed for it. How the ranks come to know who
// still works is no matter.

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "end.h"
#include "judge.h"
#include "passes.h"

#define EPOCHS  "all ranks train for the command line's number of epochs"
#define ONCE    "every rank trains on each of its own images once an epoch"
#define UPDATES "all ranks make every update, as long as some rank still has a batch"
#define START   "all ranks start from the same weights"
#define MEAN    "what is applied is the mean of the gradients of those ranks that still work"
#define WEIGHTS "the weights stay equal on all ranks"

// Of the largest gradient of the update.
#define TOLERANCE 1e-4

// ---- Whose an image is: what the program's own_images() gives each worker.

static int parts_before(int rank)
{
    int parts = 0;
    for (int r = 0; r < rank; r++)
        parts += 1 + r % 3;
    return parts;
}

static int first_image(const Passes *passes, int rank)
{
    return passes->total * parts_before(rank) / parts_before(passes->run->ranks);
}

static bool is_own(const Passes *passes, int rank, int image)
{
    return image >= first_image(passes, rank) && image < first_image(passes, rank + 1);
}

static int own_count(const Passes *passes, int rank)
{
    return first_image(passes, rank + 1) - first_image(passes, rank);
}

// ---- The images.

static int count_others(const Passes *passes, int rank, int pass)
{
    int others = 0;
    for (int i = 0; i < passes->of[rank][pass].count; i++)
        others += !is_own(passes, rank, passes->of[rank][pass].images[i]);
    return others;
}

static bool draws_its_own_once(const Passes *passes, int rank, int pass)
{
    const Pass *own = &passes->of[rank][pass];
    return count_others(passes, rank, pass) == 0 && own->strangers == 0 &&
           own->count == own_count(passes, rank) && pass_distinct(own, passes->total) == own->count;
}

static bool all_make_the_same_steps(const Passes *passes, int pass)
{
    for (int r = 1; r < passes->run->ranks; r++)
        if (passes->of[r][pass].batches != passes->of[0][pass].batches)
            return false;
    return passes->run->ranks > 1;
}

static const Diagnosis *wrong_images(const Passes *passes, int rank, int pass)
{
    static const Diagnosis others = {
        "images-of-others",
        "a rank trains on images that are not its own: own_images() says whose they are, and stays "
        "as it is.",
        NULL};
    static const Diagnosis stops = {
        "stops-with-the-first",
        "all ranks stop when the first of them has no batch left, and the others' images are lost.",
        NULL};
    static const Diagnosis again = {
        "begins-again",
        "a rank that has run out begins its images again, to keep up with the others. It has "
        "nothing to bring any more: zeros.",
        NULL};
    static const Diagnosis left_out = {
        "images-left-out", "a rank does not train on all of its images in an epoch.", NULL};
    const Pass *own = &passes->of[rank][pass];
    if (count_others(passes, rank, pass) + own->strangers > 0)
        return &others;
    if (pass_distinct(own, passes->total) < own->count)
        return &again;
    return all_make_the_same_steps(passes, pass) ? &stops : &left_out;
}

static char *images_evidence(const Passes *passes, int pass)
{
    char *evidence = format_text("epoch %d:", pass + 1);
    for (int r = 0; r < passes->run->ranks; r++) {
        const Pass *own = &passes->of[r][pass];
        text_add(&evidence, "\nrank %d: %d images in %d batches, %d different ones; it has %d", r,
                 own->count + own->strangers, own->batches, pass_distinct(own, passes->total),
                 own_count(passes, r));
    }
    return evidence;
}

static bool judge_images(const Runs *runs, const Passes all[], Report *report)
{
    for (int i = 0; i < runs->count; i++)
        for (int p = 0; p < all[i].count[0]; p++)
            for (int r = 0; r < runs->items[i].ranks; r++) {
                if (draws_its_own_once(&all[i], r, p))
                    continue;
                report_failure(report, ONCE, wrong_images(&all[i], r, p),
                               evidence_in(runs, &runs->items[i], images_evidence(&all[i], p)));
                return false;
            }
    report_ok(report, ONCE);
    return true;
}

static bool judge_epochs(const Runs *runs, const Passes all[], Report *report)
{
    static const Diagnosis wrong = {
        "epochs-wrong",
        "every rank goes through its batches in each epoch of the command line, and calls "
        "batches_begin() once for each.",
        NULL};
    for (int i = 0; i < runs->count; i++)
        for (int r = 0; r < runs->items[i].ranks; r++) {
            int epochs = all[i].count[r], wanted = (int)run_flag(&runs->items[i], "--epochs ");
            if (epochs == wanted)
                continue;
            report_failure(report, EPOCHS, &wrong,
                           evidence_in(runs, &runs->items[i],
                                       format_text("rank %d began its images %d times; right: %d",
                                                   r, epochs, wanted)));
            return false;
        }
    report_ok(report, EPOCHS);
    return true;
}

// ---- The updates.

// One update on one rank, as fingerprints.
typedef struct {
    bool works;     // it has computed a gradient from a batch that it had not used yet
    double own;     // that gradient; before the rank works for the first time, 0
    double applied; // what reached the optimizer
    double weights; // that the gradient was computed with; not a number: there is none
} Update;

typedef struct {
    const Run *run;
    Update *of[MAX_RANKS];
    int count[MAX_RANKS];
} Updates;

static void read_updates_of(Updates *updates, int rank)
{
    const Events *events = &updates->run->traces.of[rank];
    bool fresh = false; // a batch was taken, and no gradient computed from it
    Update next = {.weights = NAN};
    for (int i = 0; i < events->count; i++) {
        const cJSON *event = events->items[i];
        const char *name = event_text(event, "event");
        if (strcmp(name, "images") == 0)
            fresh = true;
        if (strcmp(name, "gradient") == 0 && fresh) {
            next.works = true;
            next.own = event_number(event, "value");
            next.weights = event_number(event, "arena");
            fresh = false;
        }
        if (strcmp(name, "apply") != 0)
            continue;
        next.applied = event_number(event, "value");
        int count = updates->count[rank]++;
        updates->of[rank] = enlarge(updates->of[rank], (size_t)count + 1, sizeof(Update));
        updates->of[rank][count] = next;
        next.works = false; // own stays: what a rank would send that sends its last one again
        next.weights = NAN;
    }
}

static Updates read_updates(const Run *run)
{
    Updates updates = {.run = run};
    for (int r = 0; r < run->ranks; r++)
        read_updates_of(&updates, r);
    return updates;
}

static int working(const Updates *updates, int at)
{
    int count = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        count += updates->of[r][at].works;
    return count;
}

static RankSet who_works(const Updates *updates, int at)
{
    RankSet set = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        set |= updates->of[r][at].works ? 1u << r : 0;
    return set;
}

// The number of updates with work in them: each epoch has as many as the longest rank has batches.
static int right_count(const Passes *passes)
{
    int count = 0;
    for (int p = 0; p < passes->count[0]; p++) {
        int most = 0;
        for (int r = 0; r < passes->run->ranks; r++)
            most = passes->of[r][p].batches > most ? passes->of[r][p].batches : most;
        count += most;
    }
    return count;
}

static char *count_evidence(const Updates *updates, int right)
{
    char *evidence = format_text("updates, in all epochs together; %d are right:", right);
    for (int r = 0; r < updates->run->ranks; r++)
        text_add(&evidence, "\nrank %d: %d", r, updates->count[r]);
    return evidence;
}

static const Diagnosis *wrong_count(const Updates *updates, int right)
{
    static const Diagnosis skipped = {
        "updates-skipped",
        "some ranks make fewer updates than others. A rank that has run out applies what the "
        "others computed, or its weights stay behind.",
        NULL};
    static const Diagnosis empty = {
        "update-of-nothing",
        "there are updates for which no rank had a batch. Where nobody works any more the epoch is "
        "over, before anything is applied.",
        NULL};
    static const Diagnosis wrong = {
        "updates-wrong",
        "in each epoch there is one update for each batch of the rank that has most of them.",
        NULL};
    bool same = true;
    for (int r = 1; r < updates->run->ranks; r++)
        same = same && updates->count[r] == updates->count[0];
    if (!same)
        return &skipped;
    return updates->count[0] > right ? &empty : &wrong;
}

static bool judge_counts(const Runs *runs, const Passes passes[], const Updates all[],
                         Report *report)
{
    for (int i = 0; i < runs->count; i++)
        for (int r = 0; r < runs->items[i].ranks; r++) {
            int right = right_count(&passes[i]);
            if (all[i].count[r] == right)
                continue;
            report_failure(report, UPDATES, wrong_count(&all[i], right),
                           evidence_in(runs, &runs->items[i], count_evidence(&all[i], right)));
            return false;
        }
    report_ok(report, UPDATES);
    return true;
}

// ---- What is applied.

// What a rank may have applied, given what all computed. (`rank` is of use to some.)
typedef double (*Formula)(const Updates *updates, int at, int rank);

static double total(const Updates *updates, int at, int rank)
{
    (void)rank;
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][at].works ? updates->of[r][at].own : 0;
    return sum;
}

static double total_with_old(const Updates *updates, int at, int rank)
{
    (void)rank;
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][at].own;
    return sum;
}

static double mean(const Updates *updates, int at, int rank)
{
    return total(updates, at, rank) / working(updates, at);
}

static double over_all(const Updates *updates, int at, int rank)
{
    return total(updates, at, rank) / updates->run->ranks;
}

static double old_over_all(const Updates *updates, int at, int rank)
{
    return total_with_old(updates, at, rank) / updates->run->ranks;
}

static double old_over_working(const Updates *updates, int at, int rank)
{
    return total_with_old(updates, at, rank) / working(updates, at);
}

// Who has run out brings what it applied last.
static double total_with_applied(const Updates *updates, int at, int rank)
{
    double sum = total(updates, at, rank);
    for (int r = 0; at > 0 && r < updates->run->ranks; r++)
        sum += updates->of[r][at].works ? 0 : updates->of[r][at - 1].applied;
    return sum;
}

static double applied_over_all(const Updates *updates, int at, int rank)
{
    return total_with_applied(updates, at, rank) / updates->run->ranks;
}

static double applied_over_working(const Updates *updates, int at, int rank)
{
    return total_with_applied(updates, at, rank) / working(updates, at);
}

static double averaged_twice(const Updates *updates, int at, int rank)
{
    return mean(updates, at, rank) / updates->run->ranks;
}

static double its_own(const Updates *updates, int at, int rank)
{
    const Update *own = &updates->of[rank][at];
    return own->works ? own->own : 0;
}

static bool explains_update(const Updates *updates, int at, Formula formula)
{
    double largest = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        largest = fmax(largest, fabs(updates->of[r][at].own));
    for (int r = 0; r < updates->run->ranks; r++) {
        double off = updates->of[r][at].applied - formula(updates, at, r);
        if (!(fabs(off) <= TOLERANCE * largest))
            return false;
    }
    return true;
}

// The first update that the formula does not explain, or -1.
static int first_unexplained(const Updates *updates, Formula formula)
{
    for (int at = 0; at < updates->count[0]; at++)
        if (!explains_update(updates, at, formula))
            return at;
    return -1;
}

static bool explains(const Runs *runs, const Updates all[], Formula formula)
{
    for (int i = 0; i < runs->count; i++)
        if (first_unexplained(&all[i], formula) >= 0)
            return false;
    return true;
}

static const Diagnosis *wrong_mean(const Runs *runs, const Updates all[])
{
    static const Diagnosis by_size = {
        "divided-by-size",
        "the sum is divided by the number of all workers, those included that have run out: the "
        "fewer still work, the shorter the step. (HVD_AVERAGE divides by hvd_size(), too.)",
        NULL};
    static const Diagnosis summed = {"gradients-summed",
                                     "the gradients are added up, and not divided.", NULL};
    static const Diagnosis old = {
        "old-gradients",
        "who has run out brings a gradient of an earlier update again: its own, or what came out "
        "of "
        "the sum. What was added already must not count once more: bring zeros.",
        NULL};
    static const Diagnosis twice = {"averaged-twice",
                                    "the mean is divided once more, by the number of all workers: "
                                    "HVD_AVERAGE has divided by it "
                                    "already.",
                                    NULL};
    static const Diagnosis alone = {"gradients-not-averaged",
                                    "every rank applies its own gradient.", NULL};
    static const Diagnosis wrong = {
        "gradients-wrong",
        "this is not the sum of what was computed, divided by the number of ranks that computed "
        "it; nor anything else that this check knows.",
        NULL};
    static const struct {
        Formula formula;
        const Diagnosis *diagnosis;
    } known[] = {{its_own, &alone},        {over_all, &by_size},         {total, &summed},
                 {old_over_all, &old},     {old_over_working, &old},     {total_with_old, &old},
                 {applied_over_all, &old}, {applied_over_working, &old}, {averaged_twice, &twice}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(runs, all, known[i].formula))
            return known[i].diagnosis;
    return &wrong;
}

static char *mean_evidence(const Updates *updates, int at)
{
    char *evidence = format_text("update %d, as fingerprints; %s still %s", at + 1,
                                 rank_names(who_works(updates, at)).text,
                                 working(updates, at) == 1 ? "works" : "work");
    for (int r = 0; r < updates->run->ranks; r++) {
        const Update *own = &updates->of[r][at];
        if (own->works)
            text_add(&evidence, "\nrank %d: computed %9.5f, applied %9.5f", r, own->own,
                     own->applied);
        else
            text_add(&evidence, "\nrank %d: has run out,      applied %9.5f", r, own->applied);
    }
    text_add(&evidence, "\nmean of those that work:    %9.5f", mean(updates, at, 0));
    return evidence;
}

static bool judge_mean_of_working(const Runs *runs, const Updates all[], Report *report)
{
    for (int i = 0; i < runs->count; i++) {
        int at = first_unexplained(&all[i], mean);
        if (at < 0)
            continue;
        report_failure(report, MEAN, wrong_mean(runs, all),
                       evidence_in(runs, &runs->items[i], mean_evidence(&all[i], at)));
        return false;
    }
    report_ok(report, MEAN);
    return true;
}

// ---- The weights.

// The first update for which two ranks computed gradients with different weights, or -1.
static int first_different_weights(const Updates *updates)
{
    for (int at = 0; at < updates->count[0]; at++) {
        double first = NAN;
        for (int r = 0; r < updates->run->ranks; r++) {
            double weights = updates->of[r][at].weights;
            if (isfinite(weights) && isfinite(first) && weights != first)
                return at;
            first = isfinite(first) ? first : weights;
        }
    }
    return -1;
}

static char *weights_evidence(const Updates *updates, int at)
{
    char *evidence = format_text("before update %d, as fingerprints:", at + 1);
    for (int r = 0; r < updates->run->ranks; r++)
        if (updates->of[r][at].works)
            text_add(&evidence, "\nrank %d: %.9g", r, updates->of[r][at].weights);
    return evidence;
}

static void judge_weights(const Runs *runs, const Updates all[], Report *report)
{
    static const Diagnosis start = {
        "start-differs",
        "the workers start from different weights: hvd_broadcast_model() stays where it is.", NULL};
    static const Diagnosis later = {
        "weights-differ",
        "all ranks applied the same gradients, and yet their weights are not equal any more. Often "
        "something is written over on some of them.",
        NULL};
    for (int i = 0; i < runs->count; i++) {
        int at = first_different_weights(&all[i]);
        if (at < 0)
            continue;
        report_failure(report, at == 0 ? START : WEIGHTS, at == 0 ? &start : &later,
                       evidence_in(runs, &runs->items[i], weights_evidence(&all[i], at)));
        return;
    }
    report_ok(report, START);
    report_ok(report, WEIGHTS);
}

static void judge(const Runs *runs, Report *report)
{
    Passes *passes = allocate((size_t)runs->count, sizeof *passes);
    Updates *updates = allocate((size_t)runs->count, sizeof *updates);
    for (int i = 0; i < runs->count; i++) {
        passes[i] = passes_trained(&runs->items[i]);
        updates[i] = read_updates(&runs->items[i]);
    }
    if (judge_epochs(runs, passes, report) && judge_images(runs, passes, report) &&
        judge_counts(runs, passes, updates, report) && judge_mean_of_working(runs, updates, report))
        judge_weights(runs, updates, report);
    for (int i = 0; i < runs->count; i++) {
        for (int r = 0; r < runs->items[i].ranks; r++)
            free(updates[i].of[r]);
        passes_free(&passes[i]);
    }
    free(updates);
    free(passes);
}

// ---- Runs that don't come to their end.

static Diagnosis mistake(const Traces *traces)
{
    bool same = true;
    for (int r = 1; r < traces->ranks; r++)
        same =
            same && event_count(&traces->of[r], "images") == event_count(&traces->of[0], "images");
    if (same)
        return (Diagnosis){0};
    return (Diagnosis){
        "hung",
        "by then some ranks had taken more batches than others. Often a rank that has run out "
        "leaves the loop, or an epoch, in which others still train: it must go on making the same "
        "calls as they do, until none has a batch left.",
        NULL};
}

static const Explanation explanations[] = {
    {"batches_next: batches_begin has been asked for",
     {"crashed", "a rank takes more batches than it has: who has run out must not ask for one.",
      NULL}},
    {0},
};
static const Ends ends = {
    .explanations = explanations, .mistake = mistake, .counts_tell_calls = true};

JUDGE("uneven", judge)
ENDS("uneven", &ends)
