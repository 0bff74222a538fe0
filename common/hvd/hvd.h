// hvd in a training: the distributed optimizer and the callbacks, as Horovod has them (Sergeev and
// Del Balso, 2018). The job, its collectives and what ranks agree on are in comm/comm.h, which this
// header includes.

#ifndef HVDLAB_HVD_H
#define HVDLAB_HVD_H

#include "base/types.h"
#include "comm/comm.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "train/callbacks.h"

#pragma GCC visibility push(default) // a step may call what follows

// An optimizer that averages the gradients over all workers before `optimizer` applies them: every
// worker then makes the same update. Its name is "Distributed" and the name of the optimizer that
// it wraps. It owns that optimizer, and passes everything but the gradients through to it. To be
// passed to compile().
//
// The gradients travel in pieces of at least HVD_FUSION_THRESHOLD bytes (16 MiB), the rest at the
// end of the backward pass: the same pieces in every step. Between machines, and from GPUs, the
// pass continues meanwhile. On the CPUs of one machine a blocking MPI_Allreduce averages each full
// piece during the pass.
//
// Gradients travel through NCCL where every worker has a GPU of its own, else through MPI;
// HVD_TRANSPORT=nccl or mpi forces one (auto: this rule). HVD_COMPRESSION=bf16 (none) sends them as
// bfloat16, half the bytes, and adds them up as such.
//
// In each update the workers agree on the model, its loss, which update it is, how many passes make
// one, and the wrapped optimizer with its constants, learning rate and momentum.
//
// It may itself be wrapped in an optimizer of the program's own. If that does not call its
// gradient_ready, all gradients travel when its apply() calls this one's. An optimizer that is
// distributed already makes the program exit with an error message.
USE_RESULT Optimizer *hvd_distributed_optimizer(Optimizer *optimizer);

// The same with one update, and one exchange, for every `passes` batches of a worker: their
// gradients are averaged on the worker, then the averages among the workers, so that it is the
// update of a batch passes * hvd_size() times as large, in the memory of one (Horovod's
// backward_passes_per_step). train_on_batch and apply_gradients are a pass each; those before the
// last of an update change no weights, and iterations count updates. Passes left over at the end of
// an epoch belong to the next update; a broadcast of the model and a restored checkpoint drop them
// (load_weights does not).
// Takes memory for one more set of gradients. 1 pass: hvd_distributed_optimizer. Fewer make the
// program exit with an error message.
USE_RESULT Optimizer *hvd_distributed_optimizer_every(Optimizer *optimizer, int passes);

// Overwrites the model's weights, moving statistics and optimizer state (with the learning rate,
// without the other constants) on every worker with those of the worker `root`. The model must be
// compiled. Collective.
void hvd_broadcast_model(Model *model, int root);

// A callback that calls hvd_broadcast_model when training begins: all workers then start from the
// same weights.
USE_RESULT Callback *hvd_broadcast_variables(int root);

// A callback that replaces loss, accuracy, val_loss and val_accuracy, at the end of every epoch, by
// their averages over all workers, weighted by the number of images behind each. Callbacks that
// were added before it still see this worker's own metrics.
USE_RESULT Callback *hvd_metric_average(void);

// A callback that raises the learning rate from `lr` to lr * hvd_size() during the first `epochs`
// epochs, a little with every batch. After these epochs it does not change the rate: a schedule
// beside it must be one for lr * hvd_size(). Where the optimizer has momentum, each update scales
// it by the ratio of its rate to that of the update before (Goyal et al., "Accurate, Large
// Minibatch SGD", 2017, sections 2.2 and 3.1).
USE_RESULT Callback *hvd_learning_rate_warmup(float lr, int epochs);

#pragma GCC visibility pop

// Inside the library: whether this optimizer is, or wraps, a distributed one.
bool hvd_is_distributed(const Optimizer *optimizer);

#endif
