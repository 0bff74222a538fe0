// What each rank did with the pieces of a model in an update, where the optimizer's state and the
// gradients are in shards (common/lessons/shards.h); and what must hold of that, whether or not the
// weights are in shards, too.

#ifndef HVDLAB_STEPS_SHARD_UPDATES_H
#define HVDLAB_STEPS_SHARD_UPDATES_H

#include "end.h"
#include "judge.h"

#define PARTS "the parts of the workers are equal, and together they are the piece"
#define MEAN  "what a worker keeps of a piece is the mean over all workers"
#define KEEPS "of a piece's gradients a worker keeps those of its part, until the update"
#define ONLY  "a worker gets no sums but those of its own part"

enum { MAX_PIECES = 64 };

// Differences of fingerprints of sums that differ in their order alone.
#define ROUNDING 1e-7

// When a rank exchanged something for a piece, until its update_weights.
typedef enum {
    NEVER,
    IN_UPDATE, // no values were added up
    SUMMED_IN_UPDATE,
    BEFORE_UPDATE
} WhenExchanged;

// What one rank did with a piece in one update.
typedef struct {
    int length;
    double gradients; // of its own batch
    WhenExchanged exchanged;
    double whole_sums; // bytes of all-reduces
    int updates;       // calls of update_weights, and the last one's
    int begin, count;
    double kept, part; // gradients and weights of that
    bool exchanged_after;
    double summed_after; // bytes of all-reduces then
    double weights;      // of the whole piece, in the end
} PieceOf;

typedef struct {
    const Run *run;
    int ranks;
    PieceOf of[MAX_RANKS][MAX_PIECES];
    int pieces; // the most that a rank has
    int number; // of the update, from 1
    double all; // bytes of all weights
    // Bytes that all ranks together receive in functions for passes, for updates, and, by other calls
    // than sums, in those that get gradients.
    double in_passes, in_updates, in_ready;
} ShardUpdate;

// Bytes that a rank gets from others by a call, whose begin this event is.
double bytes_received(const Run *run, const cJSON *event, int rank);

// How many pieces the model has.
int pieces_of(const Run *run);

// Calls `fault` with each ShardUpdate.
Fault each_update(const Runs *runs, const Run *run, ItemFault fault);

// For a table of properties, PARTS, MEAN, KEEPS and ONLY. MEAN is about the parts, KEEPS about the
// mean.
Fault parts_fault(const void *update);
Fault mean_fault(const void *update);
Fault kept_fault(const void *update);
Fault sums_fault(const void *update);

// The event is a call that moves more than a few words.
bool moves_values(const cJSON *event);

// A call of MPI's all-reduce, or the library's in two levels.
bool is_allreduce(const cJSON *event);

// All ranks train by Adam, in shards; else reports what they do.
bool in_shards(const Runs *runs, Report *report);

// Of runs that the library ended.
extern const Ends shard_ends;

#endif
