// Checkpoints: the whole state of a training on disk. Another run of the program goes on with the
// same weights, statistics and metrics, bit for bit.
//
// A checkpoint NAME in a folder has these files, which Python's safetensors opens:
//
//     NAME.safetensors          what all workers share: variables as Keras names them
//                               (conv2d/kernel); the optimizer's slots (optimizer/m/conv2d/kernel;
//                               Adagrad's accumulator without its initial 0.1); as metadata the
//                               optimizer's name, constants and updates, epochs and steps done, and
//                               the history. The slots of an optimizer in shards
//                               (lessons/shards.h) are in the workers' files instead: of each
//                               variable the numbers that the worker has, with one dimension, and
//                               as metadata "begin V", which is the first one
//     NAME.rank-R.safetensors   a worker's own state: random numbers, position of its batches,
//                               metrics of the epoch so far, moving statistics where they differ
//
// A checkpoint exists when its main file exists, and is then complete: the main file and then the
// parts are written under temporary names, and synced; then the main file is renamed. So the last
// complete checkpoint survives an end at any moment. All workers must see the folder.
//
// Not saved: the position of batches that fit does not use; state of a program's own callbacks that
// they do not name (Callback.kept); a program's own random numbers.

#ifndef HVDLAB_CHECKPOINT_H
#define HVDLAB_CHECKPOINT_H

#include "base/types.h"
#include "train/fit.h"

#pragma GCC visibility push(default) // a step may call what follows

// When, and where, checkpoint() saves. Default: 0.
typedef struct {
    const char *folder; // made where there is none
    int every;          // n: after every n-th step of an epoch, too
    int keep;           // only so many of the latest ones stay; 0: all
    bool best;          // also saves the best epoch, as "best"
    bool best_only;     // only the best epoch's
    bool weights_only;  // files of the root's variables alone: load_weights() reads them
} Checkpoint;

// A callback that saves the training: as ckpt-EPOCH when EPOCH epochs are done, as ckpt-EPOCH-STEP
// when, after them, STEP steps of the next one are. The best epoch is the first one with the
// highest validation accuracy (without validation: accuracy) on the root; if `verbose`, the end of
// training names it. All workers add it, since they save together, in collective calls. Its
// position in the list does not matter: with hvd_metric_average in the list, before or behind it,
// the accuracy is the average.
//
// With weights_only a file has neither the optimizer's slots nor metadata of the training, and
// there are no parts: Python's safetensors opens it, and no training goes on from it. (Keras:
// save_weights_only.)
//
// With hvd_distributed_optimizer_every each save must come after a whole update, but for
// weights_only: else the program exits with an error message when training begins.
//
// Where a checkpoint can't be written (the disk is full) the training goes on with a warning, the
// older ones stay, and the program ends with status 1. A folder that can't be made or written when
// training begins, or that holds the checkpoints of a training that this one does not go on with,
// makes the program exit with an error message.
USE_RESULT Callback *checkpoint(const Checkpoint *plan);

// Saves the training as a callback sees it, under this name. True if all of it is on the disk; else
// a warning says why, and the program will exit with status 1. Collective.
bool save_checkpoint(const Training *training, const char *folder, const char *name);

// For programs that save in their own way: writes the state that all workers share, as this worker
// has it, to exactly this path, without the workers' own parts, and waits until the bytes are on
// the disk. If that fails, a warning says why, the program will exit with status 1, and there is no
// file; if the file could not be opened, the previous one is unchanged. The file has no random
// numbers: a training that continues from it draws new ones. They are those of the first training
// if the file was written at the end of an epoch and both programs have the same --seed.
bool write_checkpoint(const Training *training, const char *path);

// Waits until the names of a folder's files, also those that were renamed, are on the disk. False,
// with a warning, where that fails.
bool sync_folder(const char *folder);

// The name of the checkpoint in the folder whose training is furthest, "ckpt-3"; where there are
// only best ones, "best"; NULL where there is none. The caller frees it.
char *latest_checkpoint(const char *folder);

// Restores the model, which must be compiled, and its optimizer from the checkpoint of this name.
// With a `fit` (else NULL) also restores this worker's random numbers, and sets the epoch and step
// in `fit` so that fit(model, fit) continues the training; batches, steps and callbacks must be set
// before. A worker's saved state goes to the worker of the same rank. If the number of workers or
// the batches differ, the state that can't be restored starts new, and a note says which.
//
// The state of an optimizer in shards is put together from all workers' files, for any number of
// workers, whose optimizer may be in shards or not. Each worker has all of it in memory until the
// next update. It needs a processor that lays out the weights of convolutions in the same order.
//
// A file that is damaged or cut, or is of another format, and one of another model or optimizer
// (its constants, too, except the learning rate, which is restored) makes the program exit with an
// error message. Not collective: each worker reads the files, and all that train together must
// restore the same checkpoint.
void restore_checkpoint(Model *model, Fit *fit, const char *folder, const char *name);

// As restore_checkpoint, with the latest checkpoint of the root's folder, on all workers. The root
// says "Restoring from X", or, where there is none, "Creating a new model": then the answer is
// false. Collective.
bool restore_latest(Model *model, Fit *fit, const char *folder);

#pragma GCC visibility pop

#endif
