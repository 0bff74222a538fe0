// Shards: in every epoch each image is trained on once, by one of the ranks; so are the test images
// looked at. What counts is what the ranks drew: shards.c compares it with shards, and in
// shards_trained.c it is judged what is trained on; here it is the rest.

#include "drawn.h"
#include "end.h"
#include "mean.h"
#include "shards.h"
#include "whereabouts.h"
#include "diagnoses/judge_shard.h"

#include <stdlib.h>
#include "base/format.h"

#define EPOCHS "all ranks train for the command line's number of epochs, and validate after each"
#define SPLITS "training images are trained on, test images validated on"
#define ONCE   "no image is trained on twice in an epoch"
#define SIZES  "the sizes of the shards differ by one image at most"
#define ALL    "in an epoch all images are trained on, but for at most one of each worker's"
#define BATCH  "a worker's batch has the command line's number of images"
#define ORDER  "every epoch has an order of its own"
#define VALIDATE                                                                                   \
    "over all ranks, a validation looks at each test image once, but for at most one of each "     \
    "worker's"

// ---- Epochs, and whose images.

static Fault epochs_fault(const void *item)
{
    const ShardsDrawn *drawn = item;
    const Passes *passes = &drawn->validated;
    int wanted = (int)run_flag(passes->run, "--epochs ");
    for (int r = 0; r < passes->run->ranks; r++) {
        int epochs = drawn->trained.count[r], validations = 0;
        for (int p = 0; p < passes->count[r]; p++)
            validations += passes->of[r][p].batches > 0;
        if (epochs != wanted || validations != wanted)
            return fault_with(epochs == wanted ? &d_not_validated : &d_epochs_wrong,
                              "rank %d trained for %d epochs and validated %d times; right: %d", r,
                              epochs, validations, wanted);
    }
    return NO_FAULT;
}

static int foreign(const Passes *passes, int rank)
{
    int count = 0;
    for (int p = 0; p < passes->count[rank]; p++)
        count += passes->of[rank][p].foreign;
    return count;
}

static Fault splits_fault(const void *item)
{
    const ShardsDrawn *drawn = item;
    for (int r = 0; r < drawn->trained.run->ranks; r++) {
        int trained = foreign(&drawn->trained, r), validated = foreign(&drawn->validated, r);
        if (trained + validated > 0)
            return fault_with(&d_wrong_images,
                              "rank %d trained on %d images that are none of the training images, "
                              "and was tested on %d that are none of the test images",
                              r, trained, validated);
    }
    return NO_FAULT;
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

static Fault order_fault(const void *item)
{
    const Passes *passes = &((const ShardsDrawn *)item)->trained;
    for (int r = 0; r < passes->run->ranks; r++) {
        int pass = same_order(passes, r);
        if (pass > 0)
            return (Fault){&d_same_order, order_evidence(passes, r, pass)};
    }
    return NO_FAULT;
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

static Fault validation_fault(const void *item)
{
    const Passes *passes = &((const ShardsDrawn *)item)->validated;
    int size = (int)run_flag(passes->run, "--val-batch-size ");
    for (int p = 0; p < passes->count[0]; p++)
        if (count_images(passes, p, is_repeated) > 0 || lacks_images(passes, p, size))
            return (Fault){wrong_validation(passes, p), pass_evidence(passes, p, "validation")};
    return NO_FAULT;
}

// ---- All of it.

// What was drawn in a run, as a whole.
static Fault drawn_in(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    ShardsDrawn drawn = {passes_trained(run), passes_validated(run)};
    Fault found = (*fault)(&drawn);
    passes_free(&drawn.trained);
    passes_free(&drawn.validated);
    return found;
}

static const ItemProperty before[] = {
    {EPOCHS, epochs_fault, NULL}, {SPLITS, splits_fault, EPOCHS}, {0}};

// Images that are drawn twice displace others, and a rank with too many leaves some out.
static const ItemProperty trained[] = {
    {ONCE, repeats_fault, NULL}, {SIZES, sizes_fault, ONCE}, {ALL, absence_fault, SIZES}, {0}};

static const ItemProperty others[] = {{BATCH, batches_fault, NULL},
                                      {ORDER, order_fault, NULL},
                                      {VALIDATE, validation_fault, NULL},
                                      {0}};

static void judge(const Runs *runs, Report *report)
{
    if (!judge_items(runs, drawn_in, before, report))
        return;
    judge_items(runs, drawn_in, trained, report);
    judge_labels(runs, report);
    judge_statistics(runs, report);
    judge_items(runs, drawn_in, others, report);
    judge_mean(runs, report);
}

// ---- Runs that don't come to their end.

// True where ranks have asked fit() for different numbers of training steps.
static const Diagnosis *mistake(const Traces *traces)
{
    return plans_differ(traces, "steps") ? &d_hung : NULL;
}

JUDGE("shard", judge)
OWN_ENDS("shard", .mistake = mistake,
         EXPLAINED({"dataset_select: there is no image", &d_crashed_no_such_image},
                   {"there are no images to make batches of", &d_crashed_empty_shard}))
