// Shards: in every epoch each image is trained on once, by one of the ranks; so are the test images
// looked at. How they are shared out is no matter, nor whether a share stays the same from epoch to
// epoch; what counts is what the ranks drew.

#include <math.h>
#include <stdlib.h>
#include "drawn.h"
#include "end.h"
#include "mean.h"
#include "passes.h"

#define EPOCHS   "all ranks train for the command line's number of epochs, and validate after each"
#define SPLITS   "training images are trained on, test images validated on"
#define BATCH    "a worker's batch has the command line's number of images"
#define ONCE     "no image is trained on twice in an epoch"
#define ALL      "in an epoch all images are trained on, but for at most one of each worker's"
#define SIZES    "the sizes of the shares differ by one image at most"
#define ORDER    "every epoch has an order of its own"
#define VALIDATE "a validation looks at each test image once, over all ranks"

// ---- What a share is.

static int smallest_share(const Passes *passes)
{
    return passes->total / passes->run->ranks;
}

static int largest_share(const Passes *passes)
{
    return (passes->total + passes->run->ranks - 1) / passes->run->ranks;
}

static int batch_size(const Run *run)
{
    return (int)run_flag(run, "--batch-size ");
}

static int batches_of(int images, int size)
{
    return (images + size - 1) / size;
}

static bool is_repeated(const Passes *passes, int pass, int image)
{
    return times_drawn(passes, pass, image) > 1;
}

static bool is_missing(const Passes *passes, int pass, int image)
{
    return times_drawn(passes, pass, image) == 0;
}

static bool is_nobodys(const Passes *passes, int pass, int image)
{
    (void)pass;
    for (int r = 0; r < passes->run->ranks; r++)
        if (ever_drawn(passes, r, image))
            return false;
    return true;
}

static int count_of(const Passes *passes, int pass, ImageTest is_meant)
{
    int count = 0;
    for (int image = 0; image < passes->total; image++)
        count += is_meant(passes, pass, image);
    return count;
}

// True where more is missing than one image of each rank's share; or where some are missing always,
// though no share has a batch more than another, so that nothing has to be left out.
static bool lacks_images(const Passes *passes, int pass, int size)
{
    bool even = batches_of(smallest_share(passes), size) == batches_of(largest_share(passes), size);
    if (even && count_of(passes, pass, is_nobodys) > 0)
        return true;
    for (int r = 0; r < passes->run->ranks; r++)
        if (passes->of[r][pass].count < smallest_share(passes) - 1)
            return true;
    return count_of(passes, pass, is_missing) > passes->run->ranks;
}

// ---- What may explain that images were drawn twice.

// True where the property of a rank's pass holds on all ranks.
typedef bool (*RankTest)(const Passes *passes, int pass, int rank);

static bool on_all(const Passes *passes, int pass, RankTest holds)
{
    for (int r = 0; r < passes->run->ranks; r++)
        if (!holds(passes, pass, r))
            return false;
    return true;
}

static bool has_no_repeat(const Passes *passes, int pass, int rank)
{
    const Pass *own = &passes->of[rank][pass];
    return pass_distinct(own, passes->total) == own->count;
}

static bool draws_beyond_a_share(const Passes *passes, int pass, int rank)
{
    (void)pass;
    return distinct_ever(passes, rank) > largest_share(passes);
}

static bool draws_all_that_it_ever_draws(const Passes *passes, int pass, int rank)
{
    return pass_distinct(&passes->of[rank][pass], passes->total) == distinct_ever(passes, rank);
}

// True where the rank draws from more than a share, others in each epoch.
static bool draws_from_many(const Passes *passes, int pass, int rank)
{
    return draws_beyond_a_share(passes, pass, rank) &&
           !draws_all_that_it_ever_draws(passes, pass, rank);
}

static bool draws_a_whole_set(const Passes *passes, int pass, int rank)
{
    int all = batches_of(passes->total, batch_size(passes->run));
    return passes->of[rank][pass].batches >= all && !draws_beyond_a_share(passes, pass, rank);
}

static bool begins_with_batch_of_all(const Passes *passes, int pass, int rank)
{
    return passes->run->ranks > 1 &&
           passes->of[rank][pass].first == batch_size(passes->run) * passes->run->ranks;
}

static bool makes_steps_of_largest(const Passes *passes, int pass, int rank)
{
    int largest = batches_of(largest_share(passes), batch_size(passes->run));
    return passes->of[rank][pass].batches == largest && !draws_beyond_a_share(passes, pass, rank);
}

// True where two ranks draw some image both, in whatever epochs.
static bool share_images(const Passes *passes, int a, int b)
{
    for (int image = 0; image < passes->total; image++)
        if (ever_drawn(passes, a, image) && ever_drawn(passes, b, image))
            return true;
    return false;
}

static bool draw_the_same(const Passes *passes, int a, int b)
{
    for (int image = 0; image < passes->total; image++)
        if (ever_drawn(passes, a, image) != ever_drawn(passes, b, image))
            return false;
    return true;
}

static bool same_local_rank(const Run *run, int a, int b)
{
    return run_local_rank(run, a) == run_local_rank(run, b);
}

static bool on_different_nodes(const Run *run, int a, int b)
{
    return run_node(run, a) != run_node(run, b);
}

// True where some ranks have images in common, and these are only such pairs; with `all_of_them`
// all such pairs have.
static bool overlap_only(const Passes *passes, bool (*pair)(const Run *run, int a, int b),
                         bool all_of_them)
{
    const Run *run = passes->run;
    bool some = false;
    for (int a = 0; a < run->ranks; a++)
        for (int b = a + 1; b < run->ranks; b++) {
            bool share = share_images(passes, a, b);
            if ((share && !pair(run, a, b)) || (all_of_them && pair(run, a, b) && !share))
                return false;
            some = some || share;
        }
    return some;
}

// True where the rank draws more than where its machine had one worker more, and shared all images
// out among its own.
static bool has_share_of_machine(const Passes *passes, int pass, int rank)
{
    int more = run_local_size(passes->run, rank) + 1;
    return draws_beyond_a_share(passes, pass, rank) &&
           distinct_ever(passes, rank) * more > passes->total;
}

static bool all_have_one_share(const Passes *passes)
{
    for (int r = 1; r < passes->run->ranks; r++)
        if (!draw_the_same(passes, 0, r))
            return false;
    return passes->run->ranks > 1 && distinct_ever(passes, 0) <= largest_share(passes);
}

// ---- Diagnoses of training.

static const Diagnosis not_sharded = {
    "not-sharded",
    "each worker draws from more images than a share has, and several draw the same ones in one "
    "epoch. Often nothing is shared out; or each worker shares out by an order of its own: what "
    "all of them cut into shares must be the same list.",
    NULL};
static const Diagnosis same_share = {
    "same-share",
    "all workers have the same share, and the other images are seen by nobody. Which share is a "
    "worker's own says its rank.",
    NULL};
static const Diagnosis by_local_rank = {
    "sharded-by-local-rank",
    "workers with the same local rank have images in common, and only they: hvd_local_rank() "
    "counts the workers of one machine, hvd_rank() those of the job.",
    NULL};
static const Diagnosis within_machine = {
    "sharded-within-machine",
    "the workers of one machine share the images out among themselves, and so do those of the "
    "next one. All workers of the job take a part: hvd_rank(), hvd_size().",
    NULL};
static const Diagnosis whole_set = {
    "steps-of-the-whole-set",
    "each worker has a share, and makes as many steps as the whole set has batches: so it goes "
    "through its share again and again.",
    NULL};
static const Diagnosis batch_of_all = {
    "batch-times-size",
    "each worker's batch has --batch-size times hvd_size() images. --batch-size is a worker's own: "
    "all workers together train on hvd_size() times as many in a step as it is.",
    NULL};
static const Diagnosis of_largest = {
    "steps-of-the-largest-share",
    "all ranks make the steps of the largest share. Who has a batch less begins its share again, "
    "and sees images twice.",
    NULL};
static const Diagnosis repeats = {
    "images-twice",
    "a rank draws images twice in an epoch: it makes more steps than its images fill, or has the "
    "same image twice.",
    NULL};
static const Diagnosis overlap = {
    "shares-overlap",
    "several ranks train on the same image in one epoch. Shares have no image in common: where one "
    "ends another begins, and what is cut into shares is the same list on all ranks.",
    NULL};

static const Diagnosis *wrong_overlap(const Passes *passes, int pass)
{
    if (all_have_one_share(passes))
        return &same_share;
    if (overlap_only(passes, same_local_rank, true))
        return &by_local_rank;
    if (overlap_only(passes, on_different_nodes, false) &&
        on_all(passes, pass, has_share_of_machine))
        return &within_machine;
    return on_all(passes, pass, draws_from_many) ? &not_sharded : &overlap;
}

static const Diagnosis *wrong_repeat(const Passes *passes, int pass)
{
    if (on_all(passes, pass, has_no_repeat))
        return wrong_overlap(passes, pass);
    if (on_all(passes, pass, begins_with_batch_of_all))
        return &batch_of_all;
    if (on_all(passes, pass, draws_a_whole_set))
        return &whole_set;
    if (on_all(passes, pass, makes_steps_of_largest))
        return &of_largest;
    bool beyond = on_all(passes, pass, draws_from_many);
    return beyond && passes->run->ranks > 1 ? &not_sharded : &repeats;
}

// Of an epoch in which each image is drawn once at most.
static bool makes_divided_steps(const Passes *passes, int pass, int rank)
{
    double share = batches_of(largest_share(passes), batch_size(passes->run));
    double few = share / passes->run->ranks;
    return passes->run->ranks > 1 && fabs(passes->of[rank][pass].batches - few) < 1;
}

static bool drops_last_batch(const Passes *passes, int pass, int rank)
{
    int size = batch_size(passes->run);
    return passes->of[rank][pass].batches == smallest_share(passes) / size;
}

// True where the images that nobody ever draws are those that the division leaves over.
static bool are_the_last(const Passes *passes, int never)
{
    bool last = never == passes->total % passes->run->ranks;
    for (int i = 1; last && i <= never; i++)
        last = is_nobodys(passes, 0, passes->total - i);
    return last;
}

static const Diagnosis *wrong_absence(const Passes *passes, int pass)
{
    static const Diagnosis divided = {
        "steps-divided-twice",
        "the steps are divided by the number of workers, and so are the images: a worker's batches "
        "are its own already.",
        NULL};
    static const Diagnosis dropped = {
        "short-batch-dropped",
        "the last batch of a share, which has fewer images than the others, is left out on all "
        "ranks. A share of 10 has 4 batches of 3: round up.",
        NULL};
    static const Diagnosis nobodys = {"images-left-out",
                                      "there are images that nobody draws, in any epoch. All "
                                      "shares together are the whole set, on "
                                      "any number of workers.",
                                      NULL};
    static const Diagnosis remainder = {
        "remainder-left-out",
        "the last images, those that the division by the number of workers leaves over, are drawn "
        "by "
        "nobody, in any epoch. They belong to some shares, too, which are then longer by one.",
        NULL};
    static const Diagnosis missed = {
        "images-missed",
        "in this epoch more images are left out than one of each worker's: somebody makes fewer "
        "steps than its share has batches, or has too small a share.",
        NULL};
    if (on_all(passes, pass, makes_divided_steps))
        return &divided;
    if (on_all(passes, pass, drops_last_batch))
        return &dropped;
    int never = count_of(passes, pass, is_nobodys);
    if (never == 0 || !on_all(passes, pass, draws_all_that_it_ever_draws))
        return &missed;
    return are_the_last(passes, never) ? &remainder : &nobodys;
}

// ---- Properties of training.

static char *pass_evidence(const Passes *passes, int pass, const char *what)
{
    int twice, missing;
    char *repeated = images_text(passes, pass, is_repeated, &twice);
    char *absent = images_text(passes, pass, is_missing, &missing);
    char *evidence = format_text("%s %d, of %d images\ndrawn more than once: %s", what, pass + 1,
                                 passes->total, repeated);
    if (twice > 0)
        text_add(&evidence, " (%d of them)", twice);
    text_add(&evidence, "\nnot drawn: %s", absent);
    if (missing > 0)
        text_add(&evidence, " (%d of them)", missing);
    add_passes(&evidence, passes, pass);
    free(repeated);
    free(absent);
    return evidence;
}

// All runs, each read once.
typedef struct {
    const Runs *runs;
    Passes *trained, *validated; // of each run
} Reading;

static bool judge_repeats(const Reading *reading, Report *report)
{
    for (int i = 0; i < reading->runs->count; i++) {
        const Passes *passes = &reading->trained[i];
        for (int p = 0; p < passes->count[0]; p++) {
            if (count_of(passes, p, is_repeated) == 0)
                continue;
            report_failure(
                report, ONCE, wrong_repeat(passes, p),
                evidence_in(reading->runs, passes->run, pass_evidence(passes, p, "epoch")));
            return false;
        }
    }
    report_ok(report, ONCE);
    return true;
}

// A rank that draws, over all epochs, more than a share has, while no two ranks draw the same image
// ever; -1: none.
static int rank_with_too_many(const Passes *passes)
{
    int found = -1;
    for (int a = 0; a < passes->run->ranks; a++) {
        if (distinct_ever(passes, a) > largest_share(passes))
            found = a;
        for (int b = a + 1; b < passes->run->ranks; b++)
            if (share_images(passes, a, b))
                return -1;
    }
    return found;
}

static bool judge_sizes(const Reading *reading, Report *report)
{
    static const Diagnosis uneven = {"shares-uneven",
                                     "a share is larger than others by more than one image. Where "
                                     "the division leaves some over, "
                                     "each share gets one of them at most.",
                                     NULL};
    for (int i = 0; i < reading->runs->count; i++) {
        const Passes *passes = &reading->trained[i];
        int rank = rank_with_too_many(passes);
        if (rank < 0)
            continue;
        report_failure(report, SIZES, &uneven,
                       evidence_in(reading->runs, passes->run,
                                   format_text("rank %d has %d images at least, which no other "
                                               "rank draws; %d images on %d ranks: %d at most",
                                               rank, distinct_ever(passes, rank), passes->total,
                                               passes->run->ranks, largest_share(passes))));
        return false;
    }
    report_ok(report, SIZES);
    return true;
}

static void judge_absence(const Reading *reading, Report *report)
{
    for (int i = 0; i < reading->runs->count; i++) {
        const Passes *passes = &reading->trained[i];
        for (int p = 0; p < passes->count[0]; p++) {
            if (!lacks_images(passes, p, batch_size(passes->run)))
                continue;
            report_failure(
                report, ALL, wrong_absence(passes, p),
                evidence_in(reading->runs, passes->run, pass_evidence(passes, p, "epoch")));
            return;
        }
    }
    report_ok(report, ALL);
}

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

static void judge_order(const Reading *reading, Report *report)
{
    static const Diagnosis same = {
        "same-order",
        "an epoch draws its images in the order of the one before. batches_begin(), which fit() "
        "calls, begins a fresh permutation each time, but for a seed that is set again, batches "
        "that are made anew with one, or --no-shuffle.",
        NULL};
    for (int i = 0; i < reading->runs->count; i++) {
        const Passes *passes = &reading->trained[i];
        for (int r = 0; r < passes->run->ranks; r++) {
            int pass = same_order(passes, r);
            if (pass == 0)
                continue;
            report_failure(
                report, ORDER, &same,
                evidence_in(reading->runs, passes->run, order_evidence(passes, r, pass)));
            return;
        }
    }
    report_ok(report, ORDER);
}

// What a rank's first batch ought to have.
static int right_batch(const Passes *passes)
{
    int size = batch_size(passes->run), share = smallest_share(passes);
    return size < share ? size : share;
}

static void judge_batches(const Reading *reading, Report *report)
{
    static const Diagnosis wrong = {
        "batch-wrong", "--batch-size is the number of images in the batch of one worker.", NULL};
    for (int i = 0; i < reading->runs->count; i++) {
        const Passes *passes = &reading->trained[i];
        for (int r = 0; r < passes->run->ranks; r++) {
            int first = passes->of[r][0].first;
            if (first == right_batch(passes))
                continue;
            bool of_all = on_all(passes, 0, begins_with_batch_of_all);
            report_failure(
                report, BATCH, of_all ? &batch_of_all : &wrong,
                evidence_in(reading->runs, passes->run,
                            format_text("rank %d begins with a batch of %d images; --batch-size is "
                                        "%d",
                                        r, first, batch_size(passes->run))));
            return;
        }
    }
    report_ok(report, BATCH);
}

// ---- Epochs, and whose images.

static bool judge_epochs(const Reading *reading, Report *report)
{
    static const Diagnosis trained = {
        "epochs-wrong", "the number of epochs is the command line's, on any number of workers.",
        NULL};
    static const Diagnosis validated = {
        "not-validated", "fit() validates after each epoch: every rank, on its own test images.",
        NULL};
    for (int i = 0; i < reading->runs->count; i++) {
        const Run *run = &reading->runs->items[i];
        int wanted = (int)run_flag(run, "--epochs ");
        for (int r = 0; r < run->ranks; r++) {
            const Passes *passes = &reading->validated[i];
            int epochs = reading->trained[i].count[r], validations = 0;
            for (int p = 0; p < passes->count[r]; p++)
                validations += passes->of[r][p].batches > 0;
            if (epochs == wanted && validations == wanted)
                continue;
            report_failure(
                report, EPOCHS, epochs == wanted ? &validated : &trained,
                evidence_in(reading->runs, run,
                            format_text("rank %d trained for %d epochs and validated %d times; "
                                        "right: %d",
                                        r, epochs, validations, wanted)));
            return false;
        }
    }
    report_ok(report, EPOCHS);
    return true;
}

static int strangers(const Passes *passes, int rank)
{
    int count = 0;
    for (int p = 0; p < passes->count[rank]; p++)
        count += passes->of[rank][p].strangers;
    return count;
}

static bool judge_splits(const Reading *reading, Report *report)
{
    static const Diagnosis wrong = {
        "wrong-images",
        "train is the batches of the training images, validation those of the test images, and "
        "both are what load_data() gave.",
        NULL};
    for (int i = 0; i < reading->runs->count; i++) {
        const Run *run = &reading->runs->items[i];
        for (int r = 0; r < run->ranks; r++) {
            int trained = strangers(&reading->trained[i], r);
            int validated = strangers(&reading->validated[i], r);
            if (trained + validated == 0)
                continue;
            report_failure(
                report, SPLITS, &wrong,
                evidence_in(reading->runs, run,
                            format_text("rank %d trained on %d images that are none of the "
                                        "training images, and was tested on %d that are none of "
                                        "the test images",
                                        r, trained, validated)));
            return false;
        }
    }
    report_ok(report, SPLITS);
    return true;
}

// ---- Validation.

static const Diagnosis *wrong_validation(const Passes *passes, int pass)
{
    static const Diagnosis not_shared = {
        "test-not-sharded",
        "each worker is tested on more test images than a share has, and so several look at the "
        "same ones. The test images are shared out as the training images are.",
        NULL};
    static const Diagnosis too_many = {
        "validation-steps-wrong",
        "a worker looks at test images of its own more than once. One pass over its share is as "
        "many steps as its batches have.",
        NULL};
    static const Diagnosis too_few = {
        "validation-steps-wrong",
        "no test image is looked at twice, but too many are left out. One pass over a share is as "
        "many steps as its batches have.",
        NULL};
    static const Diagnosis shares = {
        "test-shares-overlap",
        "several workers look at the same test image. Their shares of the test images have none in "
        "common.",
        NULL};
    static const Diagnosis left_out = {
        "test-images-left-out",
        "there are test images that nobody looks at, in any epoch. All shares together are the "
        "whole test set.",
        NULL};
    if (passes->run->ranks > 1 && on_all(passes, pass, draws_beyond_a_share))
        return &not_shared;
    if (!on_all(passes, pass, has_no_repeat))
        return &too_many;
    if (count_of(passes, pass, is_repeated) > 0)
        return &shares;
    return on_all(passes, pass, draws_all_that_it_ever_draws) ? &left_out : &too_few;
}

static void judge_validation(const Reading *reading, Report *report)
{
    for (int i = 0; i < reading->runs->count; i++) {
        const Passes *passes = &reading->validated[i];
        int size = (int)run_flag(passes->run, "--val-batch-size ");
        for (int p = 0; p < passes->count[0]; p++) {
            if (count_of(passes, p, is_repeated) == 0 && !lacks_images(passes, p, size))
                continue;
            report_failure(
                report, VALIDATE, wrong_validation(passes, p),
                evidence_in(reading->runs, passes->run, pass_evidence(passes, p, "validation")));
            return;
        }
    }
    report_ok(report, VALIDATE);
}

static Reading read_all(const Runs *runs)
{
    size_t count = (size_t)runs->count;
    Reading reading = {.runs = runs,
                       .trained = allocate(count, sizeof(Passes)),
                       .validated = allocate(count, sizeof(Passes))};
    for (int i = 0; i < runs->count; i++) {
        reading.trained[i] = passes_trained(&runs->items[i]);
        reading.validated[i] = passes_validated(&runs->items[i]);
    }
    return reading;
}

static void judge(const Runs *runs, Report *report)
{
    Reading reading = read_all(runs);
    if (judge_epochs(&reading, report) && judge_splits(&reading, report)) {
        // Images that are drawn twice push out others, and who has too many leaves some out.
        if (judge_repeats(&reading, report) && judge_sizes(&reading, report))
            judge_absence(&reading, report);
        judge_labels(runs, report);
        judge_statistics(runs, report);
        judge_batches(&reading, report);
        judge_order(&reading, report);
        judge_validation(&reading, report);
        judge_mean(runs, report);
    }
    for (int i = 0; i < runs->count; i++) {
        passes_free(&reading.trained[i]);
        passes_free(&reading.validated[i]);
    }
    free(reading.trained);
    free(reading.validated);
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

static Diagnosis mistake(const Traces *traces)
{
    if (!steps_differ(traces))
        return (Diagnosis){0};
    return (Diagnosis){
        "hung",
        "the ranks ask fit() for different numbers of steps. Shares may differ by an image, and "
        "then their numbers of batches may differ by one; but every step waits for all ranks. All "
        "make as many as the one that has the fewest batches.",
        NULL};
}

static const Explanation explanations[] = {
    {"dataset_select: there is no image",
     {"crashed", "the images of a data set have the numbers 0 to count - 1, on every rank.", NULL}},
    {"there are no images to make batches of",
     {"crashed", "some worker's share is empty, though there is an image for each.", NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations, .mistake = mistake};

JUDGE("shard", judge)
ENDS("shard", &ends)
