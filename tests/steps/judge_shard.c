// Shards: in every epoch each image is trained on once, by one of the ranks; so are the test images
// looked at. What counts is what the ranks drew: shards.c judges whether it is all images, each once;
// here it is the rest.

#include "drawn.h"
#include "end.h"
#include "mean.h"
#include "shards.h"
#include "whereabouts.h"
#include "diagnoses/judge_shard.h"

#include <string.h>
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

static bool same_order(const Pass *a, const Pass *b)
{
    const int few = 5; // so many may come in the same order by chance
    return a->count == b->count && a->count > few &&
           memcmp(a->images, b->images, sizeof *a->images * (size_t)a->count) == 0;
}

static void add_order(char **text, const Pass *pass)
{
    for (int i = 0; i < pass->count && i < 8; i++)
        text_add(text, " %d", pass->images[i]);
    text_add(text, " ...");
}

static Fault order_fault(const void *item)
{
    const Passes *passes = &((const ShardsDrawn *)item)->trained;
    for (int r = 0; r < passes->run->ranks; r++)
        for (int p = 1; p < passes->count[r]; p++) {
            const Pass *pass = &passes->of[r][p], *before = pass - 1;
            if (!same_order(pass, before))
                continue;
            Fault fault = fault_with(&d_same_order, "rank %d, epoch %d:", r, p);
            add_order(&fault.evidence, before);
            text_add(&fault.evidence, "\nrank %d, epoch %d:", r, p + 1);
            add_order(&fault.evidence, pass);
            return fault;
        }
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
