// Split: the schedule of micro-batches over the two halves of a model. The calls are read by
// staged.c; what was computed, and what the weights become, is judged in staged_update.c, and what
// can happen at the same time in split_overlap.c.

#include "staged.h"

#define CUT   "every batch is cut into the micro-batches asked for, and goes over two devices"
#define ALL   "both devices compute every micro-batch, forward and backward"
#define ONCE  "both devices update their weights once in a batch, from all of its micro-batches"
#define EQUAL "the weights become those of one device with the whole batch"

static const ItemProperty properties[] = {{CUT, cut_fault, NULL},
                                          {ALL, all_fault, CUT},
                                          {ONCE, once_fault, ALL},
                                          {EQUAL, equal_fault, ONCE},
                                          {0}};

static void judge(const Runs *runs, Report *report)
{
    if (judge_items(runs, staged_in, properties, report))
        judge_split_overlaps(runs, report);
}

JUDGE("split", judge)
OWN_ENDS("split", .explanations = staged_explanations, .ended = staged_ended)
