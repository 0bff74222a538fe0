// The table of ranks (--show-ranks): after each epoch the root prints what every rank has become,
// since figures of one rank hide that others differ. Each rank sends its line to the root; where
// ranks stop in different epochs (a mistake that the table is to show) nobody waits for a rank that
// has stopped.

#include <stdio.h>
#include <stdlib.h>
#include "base/util.h"
#include "sys/args.h"
#include "sys/device.h"
#include "sys/world.h"
#include "train/watch.h"

typedef struct {
    int rank, device, epoch; // epoch -1: training has ended
    double weights, statistics, loss, val_accuracy;
} Row;

enum { TAG = 1 };

static bool *stopped; // on the root: which ranks have ended their training

static Row row_of(const Training *training)
{
    Fingerprints prints = model_fingerprints(training->model);
    return (Row){
        .rank = launcher_rank(),
        .device = device_index(),
        .epoch = training->epoch,
        .weights = prints.weights,
        .statistics = prints.statistics,
        .loss = training->logs.loss,
        .val_accuracy = training->logs.val_accuracy,
    };
}

static void print_row(const Row *row)
{
    if (row->epoch < 0)
        printf("%4d  has stopped\n", row->rank);
    else
        printf("%4d  %3s %-3d %14.8f  %14.8f  %6.4f  %12.4f\n", row->rank, device_kind(),
               row->device, row->weights, row->statistics, row->loss, row->val_accuracy);
}

static void send_to_root(const Row *row)
{
    MPI_Send(row, sizeof *row, MPI_BYTE, 0, TAG, world_comm(WORLD_METRICS));
}

static void print_table(const Row *own)
{
    if (!stopped)
        stopped = allocate((size_t)world_size(), sizeof *stopped);
    printf("rank  device         weights      statistics    loss  val_accuracy\n");
    print_row(own);
    for (int rank = 1; rank < world_size(); rank++) {
        Row row = {.rank = rank, .epoch = -1};
        if (!stopped[rank])
            MPI_Recv(&row, sizeof row, MPI_BYTE, rank, TAG, world_comm(WORLD_METRICS),
                     MPI_STATUS_IGNORE);
        stopped[rank] = row.epoch < 0;
        print_row(&row);
    }
    fflush(stdout);
}

static void table_epoch_end(Callback *self, Training *training)
{
    (void)self;
    if (!settings()->show_ranks)
        return;
    Row row = row_of(training);
    if (world_rank() != 0)
        send_to_root(&row);
    else if (world_started() || training->verbose)
        print_table(&row);
}

static void table_train_end(Callback *self, Training *training)
{
    (void)self;
    (void)training;
    if (!settings()->show_ranks)
        return;
    Row row = {.rank = world_rank(), .epoch = -1};
    if (world_rank() != 0)
        send_to_root(&row);
    free(stopped); // another training begins with all ranks
    stopped = NULL;
}

// Also in a program that never calls hvd: each of its processes then prints a line of its own.
__attribute__((constructor)) static void watch_every_training(void)
{
    static Callback table = {
        .name = "rank_table", .epoch_end = table_epoch_end, .train_end = table_train_end};
    fit_watch(&table);
}
