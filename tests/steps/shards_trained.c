// Whether each image is trained on once in an epoch, by one of the ranks: which are drawn twice and
// which not at all, by whom, and the mistake that this is known for.

#include "shards.h"

#include <math.h>
#include "base/format.h"

#define BATCH "a worker's batch has the command line's number of images"
#define ONCE  "no image is trained on twice in an epoch"
#define ALL   "in an epoch all images are trained on, but for at most one of each worker's"
#define SIZES "the sizes of the shards differ by one image at most"

// ---- What may explain that images were drawn twice.

// True where the rank draws from more than a shard, others in each epoch.
static bool draws_from_many(const Passes *passes, int pass, int rank)
{
    return draws_beyond_a_shard(passes, pass, rank) &&
           !draws_all_that_it_ever_draws(passes, pass, rank);
}

static bool draws_a_whole_set(const Passes *passes, int pass, int rank)
{
    int all = batches_of(passes->total, batch_size(passes->run));
    return passes->of[rank][pass].batches >= all && !draws_beyond_a_shard(passes, pass, rank);
}

static bool begins_with_batch_of_all(const Passes *passes, int pass, int rank)
{
    return passes->run->ranks > 1 &&
           passes->of[rank][pass].first == batch_size(passes->run) * passes->run->ranks;
}

static bool makes_steps_of_largest(const Passes *passes, int pass, int rank)
{
    int largest = batches_of(largest_shard(passes), batch_size(passes->run));
    return passes->of[rank][pass].batches == largest && !draws_beyond_a_shard(passes, pass, rank);
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
            bool both = share_images(passes, a, b);
            if ((both && !pair(run, a, b)) || (all_of_them && pair(run, a, b) && !both))
                return false;
            some = some || both;
        }
    return some;
}

// True where the rank draws more than where its machine had one worker more, and shared all images
// out among its own.
static bool has_shard_of_machine(const Passes *passes, int pass, int rank)
{
    int more = run_local_size(passes->run, rank) + 1;
    return draws_beyond_a_shard(passes, pass, rank) &&
           distinct_ever(passes, rank) * more > passes->total;
}

static bool all_have_one_shard(const Passes *passes)
{
    for (int r = 1; r < passes->run->ranks; r++)
        if (!draw_the_same(passes, 0, r))
            return false;
    return passes->run->ranks > 1 && distinct_ever(passes, 0) <= largest_shard(passes);
}

// ---- Diagnoses.

static const Diagnosis not_sharded = {
    "not-sharded",
    "each worker draws from more images than a shard has, and several draw the same ones in one "
    "epoch. Often nothing is shared out; or each worker shards out by an order of its own: what "
    "all of them cut into shards must be the same list.",
    NULL};
static const Diagnosis same_shard = {"same-shard",
                                     "all workers have the same shard, and no worker trains on the "
                                     "other images. A worker's rank must select its shard.",
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
    "each worker has a shard, and makes as many steps as the whole set has batches: so it goes "
    "through its shard again and again.",
    NULL};
static const Diagnosis batch_of_all = {
    "batch-times-size",
    "each worker's batch has --batch-size times hvd_size() images. --batch-size is a worker's own: "
    "all workers together train on hvd_size() times as many in a step as it is.",
    NULL};
static const Diagnosis of_largest = {
    "steps-of-the-largest-shard",
    "all ranks make the steps of the largest shard. A rank with one batch less begins its shard "
    "again, and trains on images twice.",
    NULL};
static const Diagnosis repeats = {
    "images-twice",
    "a rank draws images twice in an epoch: it makes more steps than its images fill, or has the "
    "same image twice.",
    NULL};
static const Diagnosis overlap = {
    "shards-overlap",
    "several ranks train on the same image in one epoch. Shards must have no image in common: one "
    "begins where another ends, and all ranks must divide the same list.",
    NULL};

static const Diagnosis *wrong_overlap(const Passes *passes, int pass)
{
    if (all_have_one_shard(passes))
        return &same_shard;
    if (overlap_only(passes, same_local_rank, true))
        return &by_local_rank;
    if (overlap_only(passes, on_different_nodes, false) &&
        on_all_ranks(passes, pass, has_shard_of_machine))
        return &within_machine;
    return on_all_ranks(passes, pass, draws_from_many) ? &not_sharded : &overlap;
}

// The images of a rank's batches.
static double shard_of(const Passes *passes, int rank)
{
    return event_number(event_nth(&passes->run->traces.of[rank], "fit", 0), "train_images");
}

// The rank has gone through all of its shard, and never drawn as many different images.
static bool has_image_twice(const Passes *passes, int pass, int rank)
{
    double shard = shard_of(passes, rank);
    return passes->of[rank][pass].count >= shard && distinct_ever(passes, rank) < shard;
}

static bool some_have_images_twice(const Passes *passes, int pass)
{
    for (int r = 0; r < passes->run->ranks; r++)
        if (has_image_twice(passes, pass, r))
            return true;
    return false;
}

static const Diagnosis *wrong_repeat(const Passes *passes, int pass)
{
    static const Diagnosis twice_in_shard = {
        "image-twice-in-a-shard",
        "a shard has the same image twice (or more often), so a single pass over it draws it as "
        "often: the numbers of a shard are all different. Drawn by lot they are not.",
        NULL};
    if (some_have_images_twice(passes, pass))
        return &twice_in_shard;
    if (on_all_ranks(passes, pass, has_no_repeat))
        return wrong_overlap(passes, pass);
    if (on_all_ranks(passes, pass, begins_with_batch_of_all))
        return &batch_of_all;
    if (on_all_ranks(passes, pass, draws_a_whole_set))
        return &whole_set;
    if (on_all_ranks(passes, pass, makes_steps_of_largest))
        return &of_largest;
    bool beyond = on_all_ranks(passes, pass, draws_from_many);
    return beyond && passes->run->ranks > 1 ? &not_sharded : &repeats;
}

// Of an epoch in which each image is drawn once at most.
static bool makes_divided_steps(const Passes *passes, int pass, int rank)
{
    double shard = batches_of(largest_shard(passes), batch_size(passes->run));
    double few = shard / passes->run->ranks;
    return passes->run->ranks > 1 && fabs(passes->of[rank][pass].batches - few) < 1;
}

static bool drops_last_batch(const Passes *passes, int pass, int rank)
{
    int size = batch_size(passes->run);
    return passes->of[rank][pass].batches == smallest_shard(passes) / size;
}

// True if the images that are never drawn are the remainder of the division.
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
        "the last batch of a shard, which has fewer images than the others, is left out on all "
        "ranks. A shard of 10 has 4 batches of 3: round up.",
        NULL};
    static const Diagnosis nobodys = {"images-left-out",
                                      "some images are drawn by no rank, in any epoch. All shards "
                                      "together must be the whole set, with any number of workers.",
                                      NULL};
    static const Diagnosis remainder = {
        "remainder-left-out",
        "the last images, the remainder of the division by the number of workers, are drawn by no "
        "rank, in any epoch. They belong to some shards, too, which are then longer by one.",
        NULL};
    static const Diagnosis missed = {
        "images-missed",
        "in this epoch more images are left out than one of each worker's: some worker makes fewer "
        "steps than its shard has batches, or its shard is too small.",
        NULL};
    if (on_all_ranks(passes, pass, makes_divided_steps))
        return &divided;
    if (on_all_ranks(passes, pass, drops_last_batch))
        return &dropped;
    int never = count_images(passes, pass, is_nobodys);
    if (never == 0 || !on_all_ranks(passes, pass, draws_all_that_it_ever_draws))
        return &missed;
    return are_the_last(passes, never) ? &remainder : &nobodys;
}

// ---- Properties.

static bool judge_repeats(const ShardsDrawn *drawn, Report *report)
{
    for (int i = 0; i < drawn->runs->count; i++) {
        const Passes *passes = &drawn->trained[i];
        for (int p = 0; p < passes->count[0]; p++) {
            if (count_images(passes, p, is_repeated) == 0)
                continue;
            return report_failure(
                report, ONCE, wrong_repeat(passes, p),
                evidence_in(drawn->runs, passes->run, pass_evidence(passes, p, "epoch")));
        }
    }
    return report_ok(report, ONCE);
}

// A rank that draws, over all epochs, more than a shard has, while no two ranks draw the same image
// ever; -1: none.
static int rank_with_too_many(const Passes *passes)
{
    int found = -1;
    for (int a = 0; a < passes->run->ranks; a++) {
        if (distinct_ever(passes, a) > largest_shard(passes))
            found = a;
        for (int b = a + 1; b < passes->run->ranks; b++)
            if (share_images(passes, a, b))
                return -1;
    }
    return found;
}

// A rank whose shard is too small, where all of them together are the whole set; -1: none.
static int rank_with_too_few(const Passes *passes)
{
    double all = 0;
    int found = -1;
    for (int r = 0; r < passes->run->ranks; r++) {
        all += shard_of(passes, r);
        found = shard_of(passes, r) < smallest_shard(passes) ? r : found;
    }
    return all == passes->total ? found : -1;
}

static bool judge_sizes(const ShardsDrawn *drawn, Report *report)
{
    static const Diagnosis uneven = {"shards-uneven",
                                     "a shard has more than one image more, or fewer, than "
                                     "others. Where the division leaves some over, each shard gets "
                                     "one of them at most.",
                                     NULL};
    for (int i = 0; i < drawn->runs->count; i++) {
        const Passes *passes = &drawn->trained[i];
        int rank = rank_with_too_many(passes), small = rank_with_too_few(passes);
        if (rank < 0 && small < 0)
            continue;
        if (rank < 0)
            return report_failure_in(report, drawn->runs, passes->run, SIZES, &uneven,
                                     "rank %d has %.0f images; %d images on %d ranks: %d at least",
                                     small, shard_of(passes, small), passes->total,
                                     passes->run->ranks, smallest_shard(passes));
        return report_failure_in(report, drawn->runs, passes->run, SIZES, &uneven,
                                 "rank %d has %d images at least, which no other "
                                 "rank draws; %d images on %d ranks: %d at most",
                                 rank, distinct_ever(passes, rank), passes->total,
                                 passes->run->ranks, largest_shard(passes));
    }
    return report_ok(report, SIZES);
}

static bool judge_absence(const ShardsDrawn *drawn, Report *report)
{
    for (int i = 0; i < drawn->runs->count; i++) {
        const Passes *passes = &drawn->trained[i];
        for (int p = 0; p < passes->count[0]; p++) {
            if (!lacks_images(passes, p, batch_size(passes->run)))
                continue;
            return report_failure(
                report, ALL, wrong_absence(passes, p),
                evidence_in(drawn->runs, passes->run, pass_evidence(passes, p, "epoch")));
        }
    }
    return report_ok(report, ALL);
}

// Images that are drawn twice displace others, and a rank with too many leaves some out.
void judge_shards_trained(const ShardsDrawn *drawn, Report *report)
{
    if (judge_repeats(drawn, report) && judge_sizes(drawn, report))
        judge_absence(drawn, report);
}

// What a rank's first batch ought to have.
static int right_batch(const Passes *passes)
{
    int size = batch_size(passes->run), shard = smallest_shard(passes);
    return size < shard ? size : shard;
}

bool judge_shard_batches(const ShardsDrawn *drawn, Report *report)
{
    static const Diagnosis wrong = {
        "batch-wrong", "--batch-size is the number of images in the batch of one worker.", NULL};
    for (int i = 0; i < drawn->runs->count; i++) {
        const Passes *passes = &drawn->trained[i];
        for (int r = 0; r < passes->run->ranks; r++) {
            int first = passes->of[r][0].first;
            if (first == right_batch(passes))
                continue;
            bool of_all = on_all_ranks(passes, 0, begins_with_batch_of_all);
            return report_failure_in(report, drawn->runs, passes->run, BATCH,
                                     of_all ? &batch_of_all : &wrong,
                                     "rank %d begins with a batch of %d images; --batch-size is %d",
                                     r, first, batch_size(passes->run));
        }
    }
    return report_ok(report, BATCH);
}
