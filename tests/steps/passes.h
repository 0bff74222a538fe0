// Which images each rank drew, pass by pass: those of an epoch's training, and those of a
// validation. Images are identified by their index in the loaded set, also after copies and
// shuffles.

#ifndef HVDLAB_STEPS_PASSES_H
#define HVDLAB_STEPS_PASSES_H

#include "run.h"

// What one rank drew in one pass.
typedef struct {
    int *images; // in the order in which they were drawn
    int count;
    int batches;
    int first;   // images in the first batch
    int foreign; // that were drawn, too, but are not of the split: they are not in the list
} Pass;

// What all ranks drew of a split. Rank r made `count[r]` passes.
typedef struct {
    const Run *run;
    int total; // images in the split
    int count[MAX_RANKS];
    Pass *of[MAX_RANKS];
} Passes;

// Of the batches that gradients were computed from. A pass is an epoch of fit(); in a loop of the
// program's own it begins where batches_begin was called.
Passes passes_trained(const Run *run);

// Of fit()'s validations.
Passes passes_validated(const Run *run);

void passes_free(Passes *passes);

// How many different images are in a pass.
int pass_distinct(const Pass *pass, int total);

// True where the rank drew the image in some pass; how many different ones it drew in all.
bool ever_drawn(const Passes *passes, int rank, int image);
int distinct_ever(const Passes *passes, int rank);

// How often all ranks together drew it in their pass number `pass`.
int times_drawn(const Passes *passes, int pass, int image);

// "3, 17, 20, ..." and the number of those that are meant, of all images that `is_meant` says.
typedef bool (*ImageTest)(const Passes *passes, int pass, int image);
char *images_text(const Passes *passes, int pass, ImageTest is_meant, int *count);

// "rank 0: 12 images in 4 batches, 9 different ones; in all epochs 9", a line for each rank; where there
// is but one process, what follows the colon.
void add_passes(char **evidence, const Passes *passes, int pass);

#endif
