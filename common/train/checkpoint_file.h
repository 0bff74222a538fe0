// Inside the library: the files of a checkpoint, without communication: which state goes into which
// file, and how a file is checked and restored.
//
// The main file: the variables and the optimizer's slots under their names (nn/weights.h), and as
// metadata model (its layers), optimizer and its constants, epoch and step (how many are done),
// steps (of an epoch), stop (1: a callback has ended the training), ranks, in_parts (1: the slots are
// in the ranks' parts), history (JSON: a list of
// an object for each epoch, the last 5,000). One rank's part: those of its tensors that are not the
// main file's; rank, seed and seed_rank (of its random numbers), metrics (of the epoch so far).
// Both: format, token, iterations, forward_passes (which dropout patterns come next),
// learning_rate, train and validation (where their batches are), what callbacks keep, and a hash of
// all this.

#ifndef HVDLAB_CHECKPOINT_FILE_H
#define HVDLAB_CHECKPOINT_FILE_H

#include "data/safetensors.h"
#include "train/fit.h"
#include "train/resume.h"

#define CHECKPOINT_FORMAT "hvdlab-1"
#define WEIGHTS_FORMAT    "hvdlab-weights-1" // of files that have variables alone

// The two kinds of files of a training, to be written and freed. `token`: both name it. A main file
// promises its tensors, and so has to be written before the model changes. `hashes` are those of
// the root's main file; `own` is this rank's: tensors in which it differs go into its part.
Safetensors *make_main_file(const Training *training, int ranks, const char *token);
Safetensors *make_part(const Training *training, int rank, const char *token,
                       const uint64_t *hashes, Safetensors *own);

// A file of the variables alone, likewise promised, and the model's layers as metadata.
Safetensors *make_weights_file(const Model *model);

// Reads a file of a checkpoint. One that is damaged or of another format makes the program exit
// with an error message.
Safetensors *read_checkpoint_file(const char *path);

// The training's state in a main file.
typedef struct {
    int ranks, epoch;
    int64_t step, steps;
    bool stop, in_parts;
    const char *token;
    History history; // to be freed
} Saved;

// Checks all that the main file says against the model, and exits with an error message where it is
// another one, or has another optimizer. Changes nothing.
Saved check_main_file(const char *path, const Safetensors *file, const Model *model);

// Checks, of a main file, what put_tensors and put_optimizer take from it, and likewise exits. The
// layers may be others, if they have the same variables.
void check_state(const char *path, const Safetensors *file, const Model *model);

// Restores what both files have: tensors, the optimizer's numbers, and those of callbacks.
void put_tensors(const Safetensors *file, Model *model);
void put_optimizer(const char *path, const Safetensors *file, Model *model);
void put_callbacks(const char *path, const Safetensors *file, const Callbacks *callbacks);

// Whether the optimizer's state is in parts, of which this process has some.
bool state_is_in_parts(const Model *model);

// Restores what one rank's part has of an optimizer's state that is in the parts of all ranks.
void put_shards(const char *path, const Safetensors *part, Model *model);

// Checks a part, and exits with an error message if it is wrong; restores the rest of it.
void check_part(const char *path, const Safetensors *part, const Model *model);
void put_origin(const char *path, const Safetensors *part);
void put_metrics(const char *path, const Safetensors *part, Model *model);

#endif
