// Compares what was drawn with shards; shards.h says what is promised.

#include "shards.h"

#include <stdlib.h>
#include "base/format.h"

int smallest_shard(const Passes *passes)
{
    return passes->total / passes->run->ranks;
}

int largest_shard(const Passes *passes)
{
    return (passes->total + passes->run->ranks - 1) / passes->run->ranks;
}

int batch_size(const Run *run)
{
    return (int)run_flag(run, "--batch-size ");
}

int batches_of(int images, int size)
{
    return (images + size - 1) / size;
}

bool is_repeated(const Passes *passes, int pass, int image)
{
    return times_drawn(passes, pass, image) > 1;
}

static bool is_missing(const Passes *passes, int pass, int image)
{
    return times_drawn(passes, pass, image) == 0;
}

bool is_nobodys(const Passes *passes, int pass, int image)
{
    (void)pass;
    for (int r = 0; r < passes->run->ranks; r++)
        if (ever_drawn(passes, r, image))
            return false;
    return true;
}

int count_images(const Passes *passes, int pass, ImageTest is_meant)
{
    int count = 0;
    for (int image = 0; image < passes->total; image++)
        count += is_meant(passes, pass, image);
    return count;
}

bool lacks_images(const Passes *passes, int pass, int size)
{
    bool even = batches_of(smallest_shard(passes), size) == batches_of(largest_shard(passes), size);
    if (even && count_images(passes, pass, is_nobodys) > 0)
        return true;
    for (int r = 0; r < passes->run->ranks; r++)
        if (passes->of[r][pass].count < smallest_shard(passes) - 1)
            return true;
    return count_images(passes, pass, is_missing) > passes->run->ranks;
}

bool on_all_ranks(const Passes *passes, int pass, RankTest holds)
{
    for (int r = 0; r < passes->run->ranks; r++)
        if (!holds(passes, pass, r))
            return false;
    return true;
}

bool has_no_repeat(const Passes *passes, int pass, int rank)
{
    const Pass *own = &passes->of[rank][pass];
    return pass_distinct(own, passes->total) == own->count;
}

bool draws_beyond_a_shard(const Passes *passes, int pass, int rank)
{
    (void)pass;
    return distinct_ever(passes, rank) > largest_shard(passes);
}

bool draws_all_that_it_ever_draws(const Passes *passes, int pass, int rank)
{
    return pass_distinct(&passes->of[rank][pass], passes->total) == distinct_ever(passes, rank);
}

char *pass_evidence(const Passes *passes, int pass, const char *what)
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
