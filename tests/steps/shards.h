// What ranks drew of a split, beside what they would where each image belongs to one rank's shard.
// How images are shared out is no matter, nor whether a shard stays the same from epoch to epoch.

#ifndef HVDLAB_STEPS_SHARES_H
#define HVDLAB_STEPS_SHARES_H

#include "judge.h"
#include "passes.h"

// Of a run.
typedef struct {
    Passes trained, validated;
} ShardsDrawn;

// The smallest and the largest shard, in images; the images of a batch, as the command line has it;
// the batches that so many images make.
int smallest_shard(const Passes *passes);
int largest_shard(const Passes *passes);
int batch_size(const Run *run);
int batches_of(int images, int size);

// Tests of an image: more than one rank drew it in that pass, or one drew it twice; no rank in any.
bool is_repeated(const Passes *passes, int pass, int image);
bool is_nobodys(const Passes *passes, int pass, int image);
int count_images(const Passes *passes, int pass, ImageTest is_meant);

// True where more is missing than one image of each rank's shard; or where some are missing always,
// though no shard has a batch more than another, so that nothing has to be left out.
bool lacks_images(const Passes *passes, int pass, int size);

// True where the property of a rank's pass holds on all ranks.
typedef bool (*RankTest)(const Passes *passes, int pass, int rank);
bool on_all_ranks(const Passes *passes, int pass, RankTest holds);

bool has_no_repeat(const Passes *passes, int pass, int rank);
bool draws_beyond_a_shard(const Passes *passes, int pass, int rank);
bool draws_all_that_it_ever_draws(const Passes *passes, int pass, int rank);

// Evidence: which images of the pass were drawn twice, which not at all, and what each rank drew.
char *pass_evidence(const Passes *passes, int pass, const char *what);

// What is wrong with what a run drew to train on (shards_trained.c): images that come twice in an
// epoch, and those that do not come; the sizes of shards, and of batches.
Fault repeats_fault(const void *drawn);
Fault absence_fault(const void *drawn);
Fault sizes_fault(const void *drawn);
Fault batches_fault(const void *drawn);

#endif
