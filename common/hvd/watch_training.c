// Compares the ranks of a training with a distributed optimizer: at its beginning, whether all have
// the same settings; at the end of each epoch, after a broadcast, whether their weights are still
// equal.

#include "hvd/watch_training.h"

#include <math.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"
#include "comm/agreement.h"
#include "comm/world.h"
#include "hvd/hvd.h"
#include "train/hooks.h"

// State of the main thread, the only one that may train with other ranks.
static bool warned; // in this training

static bool is_distributed(const Training *training)
{
    return world_started() && world_size() > 1 &&
           hvd_is_distributed(model_optimizer(training->model));
}

static void compare_plans(Callback *self, Training *training)
{
    (void)self;
    if (!is_distributed(training))
        return;
    warned = false;
    world_need(model_optimizer(training->model)->name);
    agree_only(
        &(Collective){
            .name = "fit",
            .channel = "gradients",
            .object = "fit, where a training with a distributed optimizer begins",
            .terms = {number_term("train", "", training->epochs, " epochs"),
                      number_term("train", "", training->steps, " steps an epoch"),
                      number_term("train", "on batches of ", training->batch_size, " images"),
                      number_term("begin", "with epoch ", training->epochs_done + 1, NULL),
                      number_term("begin", "after ", training->steps_done, " steps of the epoch")}},
        world_comm(WORLD_GRADIENTS));
}

// Rounding differences between processor types stay far below it.
static bool is_close(double a, double b)
{
    if (!isfinite(a) || !isfinite(b))
        return isfinite(a) == isfinite(b);
    return fabs(a - b) <= 1e-4 * fmax(fabs(a), fabs(b));
}

// A warning only: the metrics of an epoch are still those of some model.
static void compare_weights(Callback *self, Training *training)
{
    (void)self;
    if (!is_distributed(training) || warned || !model_was_broadcast(training->model))
        return;
    MPI_Comm comm = world_comm(WORLD_AGREEMENT);
    agree(&(Collective){.name = "fit",
                        .channel = "fit",
                        .object = "fit, at the end of an epoch",
                        .terms = {number_term("end", "epoch ", training->epoch + 1, NULL)}},
          world_comm(WORLD_GRADIENTS));
    double own = model_fingerprints(training->model).weights;
    double *all = allocate((size_t)world_size(), sizeof *all);
    PMPI_Allgather(&own, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, comm);
    agreed_call_ends();
    int other = 0;
    for (int r = 1; r < world_size() && !other; r++)
        if (!is_close(all[0], all[r]))
            other = r;
    warned = other > 0;
    if (warned)
        warn_on_root("after epoch %d the weights differ among the workers: their fingerprint is "
                     "%.8g on rank 0 and %.8g on rank %d; the workers train different models",
                     training->epoch + 1, all[0], all[other], other);
    free(all);
}

void training_watch(void)
{
    static Callback comparison = {
        .name = "hvd", .train_begin = compare_plans, .epoch_end = compare_weights};
    fit_watch(&comparison);
}
