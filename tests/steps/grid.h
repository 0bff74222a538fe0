// What the ranks of a grid did in each update: which images and which part of the layers each of them
// had, whom it exchanged values with, and what came of that. Rows and columns are what the first
// update shows, whatever their numbers are.

#ifndef HVDLAB_STEPS_GRID_H
#define HVDLAB_STEPS_GRID_H

#include "hypotheses.h"

// Numbers of a worker in an update: what it had, and what became of that.
typedef enum {
    INPUT, // sums of what the two divided layers read and write, before and after a layer of the program's own
    OUTPUT,
    INPUT_GRADIENT, // the same in the backward pass
    OUTPUT_GRADIENT,
    GRADIENT,    // fingerprints: computed, and applied
    UNIT_PARTS,  // in how many parts the units of the layers were; nothing before
    IMAGE_PARTS, // ... and the images of the batch
    GRID_NUMBERS
} GridNumber;

typedef struct {
    bool there;
    bool exchanged; // values, meanwhile
    double before, after;
} BeforeAfter;

// What a rank exchanged: with whom, itself included; the largest of the calls.
typedef struct {
    RankSet ranks;
    const cJSON *call;  // NULL: none
    double all_reduced; // bytes, of all-reduces
    bool otherwise;     // in other calls, or by messages
} Exchange;

typedef struct {
    int images;
    double loss; // of all its images
    double part; // fingerprint of its weights, before the update
    BeforeAfter numbers[GRID_NUMBERS];
    Exchange in_layers, gradients; // in both passes; from then to the update
} GridWorker;

typedef struct {
    const Runs *runs;
    const Run *run, *one; // one: of the undivided network
    int columns, rows;    // that it was asked for; else all ranks are one row
    int number;           // of the update, from 1
    GridWorker of[MAX_RANKS];
    RankSet row[MAX_RANKS];    // of each rank: those that had the same images in the first update
    RankSet column[MAX_RANKS]; // those that had the same part of the layers
    int at[MAX_RANKS];         // the event after it
} GridUpdate;

// Before the first update of a run; goes on to the next one. False: there is none that all ranks
// made, or nothing to compare it with.
GridUpdate grid_of(const Runs *runs, const Run *run);
bool grid_next(GridUpdate *update);

// A row (hypotheses.h) of what all ranks had and showed: a number; it is of the update.
Row grid_row(const GridUpdate *update, GridNumber number);

// Calls `fault` with each GridUpdate of a run (EachItem).
Fault each_grid_update(const Runs *runs, const Run *run, ItemFault fault);

#endif
