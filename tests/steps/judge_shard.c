// Shards: in every epoch each image is trained on once, by one of the ranks; so are the test images
// looked at. What counts is what the ranks drew: shards.c compares it with shards, and in
// shards_trained.c it is judged what is trained on; here it is the rest.

#include "drawn.h"
#include "end.h"
#include "mean.h"
#include "shards.h"
#include "diagnoses/judge_shard.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"

#define EPOCHS "all ranks train for the command line's number of epochs, and validate after each"
#define SPLITS "training images are trained on, test images validated on"
#define ORDER  "every epoch has an order of its own"
#define VALIDATE                                                                                   \
    "over all ranks, a validation looks at each test image once, but for at most one of each "     \
    "worker's"

// ---- Epochs, and whose images.

static bool judge_epochs(const ShardsDrawn *drawn, Report *report)
{
    for (int i = 0; i < drawn->runs->count; i++) {
        const Run *run = &drawn->runs->items[i];
        int wanted = (int)run_flag(run, "--epochs ");
        for (int r = 0; r < run->ranks; r++) {
            const Passes *passes = &drawn->validated[i];
            int epochs = drawn->trained[i].count[r], validations = 0;
            for (int p = 0; p < passes->count[r]; p++)
                validations += passes->of[r][p].batches > 0;
            if (epochs == wanted && validations == wanted)
                continue;
            return report_failure_in(report, drawn->runs, run, EPOCHS,
                                     epochs == wanted ? &d_not_validated : &d_epochs_wrong,
                                     "rank %d trained for %d epochs and validated %d times; "
                                     "right: %d",
                                     r, epochs, validations, wanted);
        }
    }
    return report_ok(report, EPOCHS);
}

static int foreign(const Passes *passes, int rank)
{
    int count = 0;
    for (int p = 0; p < passes->count[rank]; p++)
        count += passes->of[rank][p].foreign;
    return count;
}

static bool judge_splits(const ShardsDrawn *drawn, Report *report)
{
    for (int i = 0; i < drawn->runs->count; i++) {
        const Run *run = &drawn->runs->items[i];
        for (int r = 0; r < run->ranks; r++) {
            int trained = foreign(&drawn->trained[i], r);
            int validated = foreign(&drawn->validated[i], r);
            if (trained + validated == 0)
                continue;
            return report_failure_in(report, drawn->runs, run, SPLITS, &d_wrong_images,
                                     "rank %d trained on %d images that are none of the "
                                     "training images, and was tested on %d that are none of "
                                     "the test images",
                                     r, trained, validated);
        }
    }
    return report_ok(report, SPLITS);
}

// ---- Order.

// The first epoch, from 1, in which the rank draws in the same order as in the one before; 0: none.
static int same_order(const Passes *passes, int rank)
{
    const int few = 5; // so many may come in the same order by chance
    for (int p = 1; p < passes->count[rank]; p++) {
        const Pass *pass = &passes->of[rank][p], *before = pass - 1;
        bool same = pass->count == before->count && pass->count > few;
        for (int i = 0; same && i < pass->count; i++)
            same = pass->images[i] == before->images[i];
        if (same)
            return p;
    }
    return 0;
}

static char *order_evidence(const Passes *passes, int rank, int pass)
{
    char *evidence = NULL;
    for (int p = pass - 1; p <= pass; p++) {
        const Pass *own = &passes->of[rank][p];
        text_add(&evidence, "%srank %d, epoch %d:", evidence ? "\n" : "", rank, p + 1);
        for (int i = 0; i < own->count && i < 8; i++)
            text_add(&evidence, " %d", own->images[i]);
        text_add(&evidence, " ...");
    }
    return evidence;
}

static bool judge_order(const ShardsDrawn *drawn, Report *report)
{
    for (int i = 0; i < drawn->runs->count; i++) {
        const Passes *passes = &drawn->trained[i];
        for (int r = 0; r < passes->run->ranks; r++) {
            int pass = same_order(passes, r);
            if (pass == 0)
                continue;
            return report_failure(
                report, ORDER, &d_same_order,
                evidence_in(drawn->runs, passes->run, order_evidence(passes, r, pass)));
        }
    }
    return report_ok(report, ORDER);
}

// ---- Validation.

static const Diagnosis *wrong_validation(const Passes *passes, int pass)
{
    if (passes->run->ranks > 1 && on_all_ranks(passes, pass, draws_beyond_a_shard))
        return &d_test_not_sharded;
    if (!on_all_ranks(passes, pass, has_no_repeat))
        return &d_validation_steps_wrong_too_many;
    if (count_images(passes, pass, is_repeated) > 0)
        return &d_test_shards_overlap;
    return on_all_ranks(passes, pass, draws_all_that_it_ever_draws)
               ? &d_test_images_left_out
               : &d_validation_steps_wrong_too_few;
}

static bool judge_validation(const ShardsDrawn *drawn, Report *report)
{
    for (int i = 0; i < drawn->runs->count; i++) {
        const Passes *passes = &drawn->validated[i];
        int size = (int)run_flag(passes->run, "--val-batch-size ");
        for (int p = 0; p < passes->count[0]; p++) {
            if (count_images(passes, p, is_repeated) == 0 && !lacks_images(passes, p, size))
                continue;
            return report_failure(
                report, VALIDATE, wrong_validation(passes, p),
                evidence_in(drawn->runs, passes->run, pass_evidence(passes, p, "validation")));
        }
    }
    return report_ok(report, VALIDATE);
}

// ---- All of it.

static ShardsDrawn read_all(const Runs *runs)
{
    size_t count = (size_t)runs->count;
    ShardsDrawn drawn = {.runs = runs,
                         .trained = allocate(count, sizeof(Passes)),
                         .validated = allocate(count, sizeof(Passes))};
    for (int i = 0; i < runs->count; i++) {
        drawn.trained[i] = passes_trained(&runs->items[i]);
        drawn.validated[i] = passes_validated(&runs->items[i]);
    }
    return drawn;
}

static void judge(const Runs *runs, Report *report)
{
    ShardsDrawn drawn = read_all(runs);
    if (judge_epochs(&drawn, report) && judge_splits(&drawn, report)) {
        judge_shards_trained(&drawn, report);
        judge_labels(runs, report);
        judge_statistics(runs, report);
        judge_shard_batches(&drawn, report);
        judge_order(&drawn, report);
        judge_validation(&drawn, report);
        judge_mean(runs, report);
    }
    for (int i = 0; i < runs->count; i++) {
        passes_free(&drawn.trained[i]);
        passes_free(&drawn.validated[i]);
    }
    free(drawn.trained);
    free(drawn.validated);
}

// ---- Runs that don't come to their end.

// True where ranks have asked fit() for different numbers of training steps.
static bool steps_differ(const Traces *traces)
{
    for (int r = 1; r < traces->ranks; r++) {
        double own = event_number(event_nth(&traces->of[r], "fit", 0), "steps");
        double first = event_number(event_nth(&traces->of[0], "fit", 0), "steps");
        if (isfinite(own) && isfinite(first) && own != first)
            return true;
    }
    return false;
}

static const Diagnosis *mistake(const Traces *traces)
{
    if (!steps_differ(traces))
        return NULL;
    return &d_hung;
}

static const Explanation explanations[] = {
    {"dataset_select: there is no image", &d_crashed_no_such_image},
    {"there are no images to make batches of", &d_crashed_empty_shard},
    {0},
};
static const Ends ends = {.explanations = explanations, .mistake = mistake};

JUDGE("shard", judge)
ENDS("shard", &ends)
