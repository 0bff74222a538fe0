// Whether each image is drawn once in a pass, by one of the ranks: which are drawn twice and which not at
// all, by whom, and the mistake that this is known for.

#include "shards.h"
#include "diagnoses/shards.h"

#include <math.h>
#include <stdlib.h>
#include "base/format.h"

static int smallest_shard(const Passes *passes)
{
    return passes->total / passes->run->ranks;
}

static int largest_shard(const Passes *passes)
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

// ---- Images of a pass, and ranks.

static bool is_repeated(const Passes *passes, int pass, int image)
{
    return times_drawn(passes, pass, image) > 1;
}

static bool is_missing(const Passes *passes, int pass, int image)
{
    return times_drawn(passes, pass, image) == 0;
}

// No rank draws it in any pass.
static bool is_nobodys(const Passes *passes, int pass, int image)
{
    (void)pass;
    for (int r = 0; r < passes->run->ranks; r++)
        if (ever_drawn(passes, r, image))
            return false;
    return true;
}

static int count_images(const Passes *passes, int pass, ImageTest is_meant)
{
    int count = 0;
    for (int image = 0; image < passes->total; image++)
        count += is_meant(passes, pass, image);
    return count;
}

// True where more is missing than one image of each rank's shard; or where some are missing always,
// though no shard has a batch more than another, so that nothing has to be left out.
static bool lacks_images(const Passes *passes, int pass, int size)
{
    bool even = batches_of(smallest_shard(passes), size) == batches_of(largest_shard(passes), size);
    if (even && count_images(passes, pass, is_nobodys) > 0)
        return true;
    for (int r = 0; r < passes->run->ranks; r++)
        if (passes->of[r][pass].count < smallest_shard(passes) - 1)
            return true;
    return count_images(passes, pass, is_missing) > passes->run->ranks;
}

typedef bool (*RankTest)(const Passes *passes, int pass, int rank);

static bool on_all_ranks(const Passes *passes, int pass, RankTest holds)
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

static bool draws_beyond_a_shard(const Passes *passes, int pass, int rank)
{
    (void)pass;
    return distinct_ever(passes, rank) > largest_shard(passes);
}

static bool draws_all_that_it_ever_draws(const Passes *passes, int pass, int rank)
{
    return pass_distinct(&passes->of[rank][pass], passes->total) == distinct_ever(passes, rank);
}

// Which images of the pass were drawn twice, which not at all, and what each rank drew.
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

// How many images two ranks draw both, in whatever epochs.
static int shared_images(const Passes *passes, int a, int b)
{
    int count = 0;
    for (int image = 0; image < passes->total; image++)
        count += ever_drawn(passes, a, image) && ever_drawn(passes, b, image);
    return count;
}

static bool on_different_nodes(const Run *run, int a, int b)
{
    return run_node(run, a) != run_node(run, b);
}

// Pairs of ranks of a kind: how many there are, and how many of them have images in common.
typedef struct {
    int all, sharing;
} Pairs;

static Pairs pairs_of(const Passes *passes, bool (*kind)(const Run *run, int a, int b))
{
    Pairs pairs = {0, 0};
    for (int a = 0; a < passes->run->ranks; a++)
        for (int b = a + 1; b < passes->run->ranks; b++)
            if (!kind || kind(passes->run, a, b)) {
                pairs.all++;
                pairs.sharing += shared_images(passes, a, b) > 0;
            }
    return pairs;
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
    int images = distinct_ever(passes, 0);
    for (int r = 1; r < passes->run->ranks; r++)
        if (distinct_ever(passes, r) != images || shared_images(passes, 0, r) != images)
            return false;
    return passes->run->ranks > 1 && images <= largest_shard(passes);
}

// ---- Diagnoses.

// Of several ranks that draw an image.
static const Diagnosis *wrong_overlap(const Passes *passes, int pass)
{
    int sharing = pairs_of(passes, NULL).sharing;
    Pairs of_local_rank = pairs_of(passes, same_local_rank);
    if (all_have_one_shard(passes))
        return &d_same_shard;
    if (of_local_rank.sharing == sharing && of_local_rank.all == sharing)
        return &d_sharded_by_local_rank;
    if (pairs_of(passes, on_different_nodes).sharing == sharing &&
        on_all_ranks(passes, pass, has_shard_of_machine))
        return &d_sharded_within_machine;
    return on_all_ranks(passes, pass, draws_from_many) ? &d_not_sharded : &d_shards_overlap;
}

// The images of a rank's batches.
static double shard_of(const Passes *passes, int rank)
{
    return event_number(event_nth(&passes->run->traces.of[rank], "fit", 0), "train_images");
}

// Some rank has gone through all of its shard, and never drawn as many different images.
static bool some_have_images_twice(const Passes *passes, int pass)
{
    for (int r = 0; r < passes->run->ranks; r++)
        if (passes->of[r][pass].count >= shard_of(passes, r) &&
            distinct_ever(passes, r) < shard_of(passes, r))
            return true;
    return false;
}

static const Diagnosis *wrong_repeat(const Passes *passes, int pass)
{
    if (some_have_images_twice(passes, pass))
        return &d_image_twice_in_a_shard;
    if (on_all_ranks(passes, pass, has_no_repeat))
        return wrong_overlap(passes, pass);
    if (on_all_ranks(passes, pass, begins_with_batch_of_all))
        return &d_batch_times_size;
    if (on_all_ranks(passes, pass, draws_a_whole_set))
        return &d_steps_of_the_whole_set;
    if (on_all_ranks(passes, pass, makes_steps_of_largest))
        return &d_steps_of_the_largest_shard;
    bool beyond = on_all_ranks(passes, pass, draws_from_many);
    return beyond && passes->run->ranks > 1 ? &d_not_sharded : &d_images_twice;
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
    if (on_all_ranks(passes, pass, makes_divided_steps))
        return &d_steps_divided_twice;
    if (on_all_ranks(passes, pass, drops_last_batch))
        return &d_short_batch_dropped;
    int never = count_images(passes, pass, is_nobodys);
    if (never == 0 || !on_all_ranks(passes, pass, draws_all_that_it_ever_draws))
        return &d_images_missed;
    return are_the_last(passes, never) ? &d_remainder_left_out : &d_images_left_out;
}

// ---- Properties.

Fault repeats_fault(const void *drawn)
{
    const Passes *passes = &((const ShardsDrawn *)drawn)->trained;
    for (int p = 0; p < passes->count[0]; p++)
        if (count_images(passes, p, is_repeated) > 0)
            return (Fault){wrong_repeat(passes, p), pass_evidence(passes, p, "epoch")};
    return NO_FAULT;
}

// A rank that draws, over all epochs, more than a shard has, while no two ranks draw the same image
// ever; -1: none.
static int rank_with_too_many(const Passes *passes)
{
    int found = -1;
    for (int r = 0; r < passes->run->ranks; r++)
        found = distinct_ever(passes, r) > largest_shard(passes) ? r : found;
    return found >= 0 && pairs_of(passes, NULL).sharing == 0 ? found : -1;
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

Fault sizes_fault(const void *drawn)
{
    const Passes *passes = &((const ShardsDrawn *)drawn)->trained;
    int rank = rank_with_too_many(passes), small = rank_with_too_few(passes);
    if (rank >= 0)
        return fault_with(&d_shards_uneven,
                          "rank %d has %d images at least, which no other rank draws; %d images on "
                          "%d ranks: %d at most",
                          rank, distinct_ever(passes, rank), passes->total, passes->run->ranks,
                          largest_shard(passes));
    if (small >= 0)
        return fault_with(
            &d_shards_uneven, "rank %d has %.0f images; %d images on %d ranks: %d at least", small,
            shard_of(passes, small), passes->total, passes->run->ranks, smallest_shard(passes));
    return NO_FAULT;
}

Fault absence_fault(const void *drawn)
{
    const Passes *passes = &((const ShardsDrawn *)drawn)->trained;
    for (int p = 0; p < passes->count[0]; p++)
        if (lacks_images(passes, p, batch_size(passes->run)))
            return (Fault){wrong_absence(passes, p), pass_evidence(passes, p, "epoch")};
    return NO_FAULT;
}

// What a rank's first batch ought to have.
static int right_batch(const Passes *passes)
{
    int size = batch_size(passes->run), shard = smallest_shard(passes);
    return size < shard ? size : shard;
}

Fault batches_fault(const void *drawn)
{
    const Passes *passes = &((const ShardsDrawn *)drawn)->trained;
    bool of_all = on_all_ranks(passes, 0, begins_with_batch_of_all);
    for (int r = 0; r < passes->run->ranks; r++) {
        int first = passes->of[r][0].first;
        if (first != right_batch(passes))
            return fault_with(of_all ? &d_batch_times_size : &d_batch_wrong,
                              "rank %d begins with a batch of %d images; --batch-size is %d", r,
                              first, batch_size(passes->run));
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

Fault validation_fault(const void *item)
{
    const Passes *passes = &((const ShardsDrawn *)item)->validated;
    int size = (int)run_flag(passes->run, "--val-batch-size ");
    for (int p = 0; p < passes->count[0]; p++)
        if (count_images(passes, p, is_repeated) > 0 || lacks_images(passes, p, size))
            return (Fault){wrong_validation(passes, p), pass_evidence(passes, p, "validation")};
    return NO_FAULT;
}
