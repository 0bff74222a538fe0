// What the ranks of a grid did in each update: which images and which part of the layers each of them
// had, whom it exchanged values with, and what came of that. Rows and columns are what the first
// update shows, whatever their numbers are.

#ifndef HVDLAB_STEPS_GRID_H
#define HVDLAB_STEPS_GRID_H

#include "judge.h"

// What a layer of the program's own was called with, and gave: sums of the values.
typedef struct {
    bool there;
    double before, after;
} LayerSum;

// What a rank exchanged: with whom, itself included; the largest of the calls.
typedef struct {
    RankSet ranks;
    const cJSON *call;  // NULL: none
    double all_reduced; // bytes, of all-reduces
    bool otherwise;     // in other calls, or by messages
} Exchange;

typedef struct {
    int images;
    double loss;                   // of all its images
    double part;                   // fingerprint of its weights, before the update
    double gradient, applied;      // fingerprints
    LayerSum input, output;        // of the two divided layers, in the forward pass
    LayerSum input_gradient;       // and in the backward pass
    Exchange in_layers, gradients; // in both passes; from then to the update
} GridWorker;

typedef struct {
    const Runs *runs;
    const Run *run, *one; // one: of the undivided network
    int columns, rows;    // that it was asked for
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

#endif
