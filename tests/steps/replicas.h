// What replicas of a model in one process did with each batch, from the trace. The trainer's
// batches come one after another; between two of them each replica says which images it computed,
// what gradient came of it, and what reached its optimizer. Who calls what, and who adds up, is no
// matter.

#ifndef HVDLAB_STEPS_REPLICAS_H
#define HVDLAB_STEPS_REPLICAS_H

#include "judge.h"

#define PAGE_RATE       0.1  // learning rate of the page's optimizer
#define EQUAL_TOLERANCE 1e-5 // of the weights' fingerprint

typedef struct {
    unsigned pixels; // a hash
    int label;
} Image;

typedef struct {
    Image *items;
    int count;
} Images;

// What a replica did with a batch.
typedef struct {
    Images images;
    double weighted, sum; // of its gradients, with their images and without
    int gradients;
    double weights; // before; NaN where it computed nothing
    int applies;
    double given;   // to its optimizer
    double applied; // the same at the page's learning rate
    double rate;    // the program's
    bool sums;      // it calls sum_among_replicas
} Part;

typedef struct {
    Images images;
    bool trains;           // else it is evaluated
    bool by_replica;       // one of them has taken it
    Part parts[MAX_RANKS]; // of the replicas
    int outside;           // gradients that no replica's thread computed
} BatchSeen;

typedef struct {
    const Runs *runs;
    const Run *run; // of these
    int replicas;
    BatchSeen *items;
    int count;
} Batches;

// Of a run; the caller frees them by replica_batches_free.
Batches replica_batches(const Runs *runs, const Run *run);
void replica_batches_free(Batches *batches);

// "training batch 3, of 10 images:". The caller frees it.
char *replica_batch_text(const Batches *batches, const BatchSeen *batch);

// How far a replica's weights before the batch are from those of the first one that computed some;
// and whether in all runs all replicas have the same ones before every batch.
double replicas_apart(const Batches *batches, const BatchSeen *batch, int replica, int *first);
bool replicas_are_equal(const Runs *runs, double tolerance);

// Reports whether every replica applies the mean gradient of each batch (replica_mean.c).
bool judge_replica_mean(const Runs *runs, Report *report);

#endif
