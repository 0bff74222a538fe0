// Workers that run out: each trains on all of its images, once an epoch; each makes every update,
// and applies the mean of the gradients that were computed for it, which is judged in uneven.c. How
// the ranks come to know who still works is no matter.

#include "end.h"
#include "passes.h"
#include "uneven.h"
#include "diagnoses/judge_uneven.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"

#define EPOCHS  "all ranks train for the command line's number of epochs"
#define ONCE    "every rank trains on each of its own images once an epoch"
#define UPDATES "all ranks make every update, as long as some rank still has a batch"
#define START   "all ranks start from the same weights"
#define WEIGHTS "the weights stay equal on all ranks"

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
    return count_others(passes, rank, pass) == 0 && own->foreign == 0 &&
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
    const Pass *own = &passes->of[rank][pass];
    if (count_others(passes, rank, pass) + own->foreign > 0)
        return &d_images_of_others;
    if (pass_distinct(own, passes->total) < own->count)
        return &d_begins_again;
    return all_make_the_same_steps(passes, pass) ? &d_stops_with_the_first : &d_images_left_out;
}

static char *images_evidence(const Passes *passes, int pass)
{
    char *evidence = format_text("epoch %d:", pass + 1);
    for (int r = 0; r < passes->run->ranks; r++) {
        const Pass *own = &passes->of[r][pass];
        text_add(&evidence, "\nrank %d: %d images in %d batches, %d different ones; it has %d", r,
                 own->count + own->foreign, own->batches, pass_distinct(own, passes->total),
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
                return report_failure(
                    report, ONCE, wrong_images(&all[i], r, p),
                    evidence_in(runs, &runs->items[i], images_evidence(&all[i], p)));
            }
    return report_ok(report, ONCE);
}

static bool judge_epochs(const Runs *runs, const Passes all[], Report *report)
{
    for (int i = 0; i < runs->count; i++)
        for (int r = 0; r < runs->items[i].ranks; r++) {
            int epochs = all[i].count[r], wanted = (int)run_flag(&runs->items[i], "--epochs ");
            if (epochs == wanted)
                continue;
            return report_failure_in(report, runs, &runs->items[i], EPOCHS, &d_epochs_wrong,
                                     "rank %d began its images %d times; right: %d", r, epochs,
                                     wanted);
        }
    return report_ok(report, EPOCHS);
}

// ---- The updates.

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

static char *count_evidence(const UnevenUpdates *updates, int right)
{
    char *evidence = format_text("updates, in all epochs together; %d are right:", right);
    for (int r = 0; r < updates->run->ranks; r++)
        text_add(&evidence, "\nrank %d: %d", r, updates->count[r]);
    return evidence;
}

static const Diagnosis *wrong_count(const UnevenUpdates *updates, int right)
{
    bool same = true;
    for (int r = 1; r < updates->run->ranks; r++)
        same = same && updates->count[r] == updates->count[0];
    if (!same)
        return &d_updates_skipped;
    return updates->count[0] > right ? &d_update_of_nothing : &d_updates_wrong;
}

static bool judge_counts(const Runs *runs, const Passes passes[], const UnevenUpdates all[],
                         Report *report)
{
    for (int i = 0; i < runs->count; i++)
        for (int r = 0; r < runs->items[i].ranks; r++) {
            int right = right_count(&passes[i]);
            if (all[i].count[r] == right)
                continue;
            return report_failure(
                report, UPDATES, wrong_count(&all[i], right),
                evidence_in(runs, &runs->items[i], count_evidence(&all[i], right)));
        }
    return report_ok(report, UPDATES);
}

// ---- The weights.

// The first update for which two ranks computed gradients with different weights, or -1.
static int first_different_weights(const UnevenUpdates *updates)
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

static char *weights_evidence(const UnevenUpdates *updates, int at)
{
    char *evidence = format_text("before update %d, as fingerprints:", at + 1);
    for (int r = 0; r < updates->run->ranks; r++)
        if (updates->of[r][at].works)
            text_add(&evidence, "\nrank %d: %.9g", r, updates->of[r][at].weights);
    return evidence;
}

static void judge_weights(const Runs *runs, const UnevenUpdates all[], Report *report)
{
    for (int i = 0; i < runs->count; i++) {
        int at = first_different_weights(&all[i]);
        if (at < 0)
            continue;
        report_failure(report, at == 0 ? START : WEIGHTS,
                       at == 0 ? &d_start_differs : &d_weights_differ,
                       evidence_in(runs, &runs->items[i], weights_evidence(&all[i], at)));
        return;
    }
    report_ok(report, START);
    report_ok(report, WEIGHTS);
}

static void judge(const Runs *runs, Report *report)
{
    Passes *passes = allocate((size_t)runs->count, sizeof *passes);
    UnevenUpdates *updates = allocate((size_t)runs->count, sizeof *updates);
    for (int i = 0; i < runs->count; i++) {
        passes[i] = passes_trained(&runs->items[i]);
        updates[i] = uneven_updates(&runs->items[i]);
    }
    if (judge_epochs(runs, passes, report) && judge_images(runs, passes, report) &&
        judge_counts(runs, passes, updates, report) && judge_mean_of_working(runs, updates, report))
        judge_weights(runs, updates, report);
    for (int i = 0; i < runs->count; i++) {
        uneven_updates_free(&updates[i]);
        passes_free(&passes[i]);
    }
    free(updates);
    free(passes);
}

// ---- Runs that don't come to their end.

static const Diagnosis *mistake(const Traces *traces)
{
    bool same = true;
    for (int r = 1; r < traces->ranks; r++)
        same =
            same && event_count(&traces->of[r], "images") == event_count(&traces->of[0], "images");
    if (same)
        return NULL;
    if (ranks_with(traces, "disagreement"))
        return &d_hung_zeros;
    return &d_hung_leaves_the_loop;
}

JUDGE("uneven", judge)
OWN_ENDS("uneven", .mistake = mistake, .counts_tell_calls = true,
         EXPLAINED({"batches_next: batches_begin has been asked for", &d_crashed}))
