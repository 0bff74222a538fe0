// Workers that run out: each trains on all of its images, once an epoch; each makes every update,
// and applies the mean of the gradients that were computed for it, which is judged in uneven.c. How
// the ranks come to know who still works is no matter.

#include "end.h"
#include "passes.h"
#include "uneven.h"
#include "diagnoses/judge_uneven.h"

#include <math.h>
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

// What is read of a run.
typedef struct {
    Passes passes;
    UnevenUpdates updates;
} UnevenRun;

static Fault epochs_fault(const void *item)
{
    const Passes *passes = &((const UnevenRun *)item)->passes;
    int wanted = (int)run_flag(passes->run, "--epochs ");
    for (int r = 0; r < passes->run->ranks; r++)
        if (passes->count[r] != wanted)
            return fault_with(&d_epochs_wrong, "rank %d began its images %d times; right: %d", r,
                              passes->count[r], wanted);
    return NO_FAULT;
}

static Fault again_fault(const UnevenUpdates *updates)
{
    for (int r = 0; r < updates->run->ranks; r++)
        if (updates->again[r] > 0)
            return fault_with(&d_computed_again,
                              "in all epochs together rank %d computed %d gradients without taking "
                              "a new batch for them",
                              r, updates->again[r]);
    return NO_FAULT;
}

static Fault images_fault(const void *item)
{
    const Passes *passes = &((const UnevenRun *)item)->passes;
    for (int p = 0; p < passes->count[0]; p++)
        for (int r = 0; r < passes->run->ranks; r++)
            if (!draws_its_own_once(passes, r, p))
                return (Fault){wrong_images(passes, r, p), images_evidence(passes, p)};
    return again_fault(&((const UnevenRun *)item)->updates);
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

static Fault count_fault(const void *item)
{
    const UnevenUpdates *updates = &((const UnevenRun *)item)->updates;
    int right = right_count(&((const UnevenRun *)item)->passes);
    bool same = true, wrong = false;
    for (int r = 0; r < updates->run->ranks; r++) {
        same = same && updates->count[r] == updates->count[0];
        wrong = wrong || updates->count[r] != right;
    }
    if (!wrong)
        return NO_FAULT;
    char *evidence = format_text("updates, in all epochs together; %d are right:", right);
    for (int r = 0; r < updates->run->ranks; r++)
        text_add(&evidence, "\nrank %d: %d", r, updates->count[r]);
    return (Fault){!same                       ? &d_updates_skipped
                   : updates->count[0] > right ? &d_update_of_nothing
                                               : &d_updates_wrong,
                   evidence};
}

// ---- The weights.

// Whether two ranks computed gradients for this update with different weights.
static bool weights_differ(const UnevenUpdates *updates, int at)
{
    double first = NAN;
    for (int r = 0; r < updates->run->ranks; r++) {
        double weights = updates->of[r][at].weights;
        if (isfinite(weights) && isfinite(first) && weights != first)
            return true;
        first = isfinite(first) ? first : weights;
    }
    return false;
}

static Fault weights_fault_at(const Diagnosis *diagnosis, const UnevenUpdates *updates, int at)
{
    char *evidence = format_text("before update %d, as fingerprints:", at + 1);
    for (int r = 0; r < updates->run->ranks; r++)
        if (updates->of[r][at].works)
            text_add(&evidence, "\nrank %d: %.9g", r, updates->of[r][at].weights);
    return (Fault){diagnosis, evidence};
}

static Fault start_fault(const void *item)
{
    const UnevenUpdates *updates = &((const UnevenRun *)item)->updates;
    return updates->count[0] > 0 && weights_differ(updates, 0)
               ? weights_fault_at(&d_start_differs, updates, 0)
               : NO_FAULT;
}

static Fault weights_fault(const void *item)
{
    const UnevenUpdates *updates = &((const UnevenRun *)item)->updates;
    for (int at = 1; at < updates->count[0]; at++)
        if (weights_differ(updates, at))
            return weights_fault_at(&d_weights_differ, updates, at);
    return NO_FAULT;
}

static Fault uneven_in(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    UnevenRun read = {passes_trained(run), uneven_updates(run)};
    Fault found = (*fault)(&read);
    uneven_updates_free(&read.updates);
    passes_free(&read.passes);
    return found;
}

static const ItemProperty counts[] = {{EPOCHS, epochs_fault, NULL},
                                      {ONCE, images_fault, EPOCHS},
                                      {UPDATES, count_fault, ONCE},
                                      {0}},
                          equal[] = {
                              {START, start_fault, NULL}, {WEIGHTS, weights_fault, START}, {0}};

static void judge(const Runs *runs, Report *report)
{
    if (judge_items(runs, uneven_in, counts, report) && judge_mean_of_working(runs, report))
        judge_items(runs, uneven_in, equal, report);
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
