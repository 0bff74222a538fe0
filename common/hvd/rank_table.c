// The tables of ranks: after each epoch the root prints the state of every rank (--show-ranks),
// because one rank's metrics hide differences, and its memory (--show-memory). Each rank sends its
// row to the root. Ranks may stop in different epochs (a mistake that the table shows), so no rank
// waits for one that has stopped; nor does the root wait for a rank that waits for its message, or in
// another call of all ranks, such as a broadcast after a training on the root alone.

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include "hvd/rank_table.h"
#include "base/clock.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "run/args.h"
#include "run/device.h"
#include "comm/stall.h"
#include "comm/world.h"
#include "observe/span.h"
#include "train/hooks.h"

typedef struct {
    int rank, device;
    int training, epoch; // of this training, counted from 0; or one of these
    double weights, statistics, loss, val_accuracy;
    MemoryUse memory;
    size_t process;   // bytes of it in memory
    char machine[24]; // its name, or how that begins
} RankRow;

enum { STOPPED = -1, ELSEWHERE = -2 }; // as an epoch: the training has ended; no row can come

enum { TAG = 1, LEAVES = INT_MAX }; // as a training: the rank has no further one

static int training_count; // trainings ended here

// What the root knows of a rank.
typedef struct {
    int ended;     // the last training that it has ended
    int missed;    // trainings of the root that it had no part in
    int row_of;    // the training of its last row
    int elsewhere; // the root's training in which no further row of it can come
} Known;
static Known *known;

// On several machines devices have the same numbers: the table then names the machine, too.
static bool several_machines(void)
{
    return world_started() && world_spans_hosts();
}

static RankRow row_of(const Training *training)
{
    Fingerprints prints = model_fingerprints(training->model);
    RankRow row = {
        .rank = launcher_rank(),
        .device = device_index(),
        .training = training_count,
        .epoch = training->epoch,
        .weights = prints.weights,
        .statistics = prints.statistics,
        .loss = training->logs.loss,
        .val_accuracy = training->logs.val_accuracy,
        .memory = model_memory(training->model),
        .process = resident_memory(),
    };
    if (several_machines()) {
        char name[MPI_MAX_PROCESSOR_NAME];
        int length;
        MPI_Get_processor_name(name, &length);
        snprintf(row.machine, sizeof row.machine, "%.*s", (int)sizeof row.machine - 1, name);
    }
    return row;
}

static bool print_without_row(const RankRow *row)
{
    if (row->epoch < 0)
        printf("%4d  %s\n", row->rank,
               row->epoch == STOPPED ? "has stopped" : "waits for rank 0 in another call");
    return row->epoch < 0;
}

static void print_row(const RankRow *row)
{
    if (!print_without_row(row))
        printf("%4d  %3s %-3d %14.8f  %14.8f  %6.4f  %12.4f%s%s\n", row->rank, device_kind(),
               row->device, row->weights, row->statistics, row->loss, row->val_accuracy,
               row->machine[0] ? "  " : "", row->machine);
}

static double megabytes(size_t bytes)
{
    return (double)bytes / 1e6;
}

static void print_memory(const RankRow *row)
{
    const MemoryUse *m = &row->memory;
    if (!print_without_row(row))
        printf("%4d  %10.3f  %12.3f  %12.3f  %14.3f  %10.1f\n", row->rank, megabytes(m->weights),
               megabytes(m->gradients), megabytes(m->optimizer), megabytes(m->activations),
               megabytes(row->process));
}

static void send_to_root(const RankRow *row)
{
    MPI_Send(row, sizeof *row, MPI_BYTE, 0, TAG, world_comm(WORLD_METRICS));
}

// Receives the next row of a rank; it says whether the rank has ended a training, or all.
static RankRow receive(int rank)
{
    RankRow row;
    MPI_Recv(&row, sizeof row, MPI_BYTE, rank, TAG, world_comm(WORLD_METRICS), MPI_STATUS_IGNORE);
    if (row.epoch < 0)
        known[rank].ended = row.training;
    else
        known[rank].row_of = row.training;
    return row;
}

static bool has_arrived(int rank)
{
    int arrived = 0;
    for (int i = 0; i < 2 && !arrived; i++) // the first time MPI may only take in what is there
        PMPI_Iprobe(rank, TAG, world_comm(WORLD_METRICS), &arrived, MPI_STATUS_IGNORE);
    return arrived;
}

// Waits for a message of a rank; false: none comes before the root goes on.
static bool message_comes(int rank)
{
    bool arrived = has_arrived(rank), needs_root = false;
    if (arrived)
        return true;
    double begin = seconds_now();
    span_begin_call(&(SpanCall){
        .name = "the row of a rank", .count = NO_VALUES, .peer = rank, .bytes = -1, .partner = -1});
    while (!arrived && !needs_root) {
        needs_root = stall_needs_root(rank, begin); // its last message came before that call
        arrived = has_arrived(rank);
        if (!arrived && !needs_root)
            sleep_seconds(1e-4);
    }
    span_end();
    return arrived;
}

static void begin_receiving(void)
{
    if (known)
        return;
    known = allocate((size_t)world_size(), sizeof *known);
    for (int rank = 0; rank < world_size(); rank++)
        known[rank] = (Known){.ended = -1, .row_of = -1, .elsewhere = -1};
}

// The row of a rank in the root's training. Skips rows of earlier trainings with more epochs than
// the root's.
static RankRow row_from(int rank)
{
    Known *k = &known[rank];
    int training = training_count - k->missed; // as the rank counts
    while (k->elsewhere != training_count && k->ended < training) {
        if (!message_comes(rank)) {
            k->elsewhere = training_count;
            k->missed += k->row_of < training;
            break;
        }
        RankRow row = receive(rank);
        if (row.training == training && row.epoch >= 0)
            return row;
    }
    return (RankRow){.rank = rank, .epoch = k->elsewhere == training_count ? ELSEWHERE : STOPPED};
}

static bool tables_wanted(void)
{
    return settings()->show_ranks || settings()->show_memory;
}

// Of `count` rows, one for each rank.
static void print_tables(const RankRow *rows, int count)
{
    if (settings()->show_ranks) {
        printf("rank  device         weights      statistics    loss  val_accuracy%s\n",
               several_machines() ? "  machine" : "");
        for (int i = 0; i < count; i++)
            print_row(&rows[i]);
    }
    if (settings()->show_memory) {
        printf("rank  weights MB  gradients MB  optimizer MB  activations MB  process MB\n");
        for (int i = 0; i < count; i++)
            print_memory(&rows[i]);
    }
    fflush(stdout);
}

static void print_all_ranks(const RankRow *own)
{
    begin_receiving();
    RankRow *rows = allocate((size_t)world_size(), sizeof *rows);
    rows[0] = *own;
    for (int rank = 1; rank < world_size(); rank++)
        rows[rank] = row_from(rank);
    print_tables(rows, world_size());
    free(rows);
}

static void table_epoch_end(Callback *self, Training *training)
{
    (void)self;
    if (!tables_wanted())
        return;
    RankRow row = row_of(training);
    if (!world_started()) {
        if (training->verbose)
            print_tables(&row, 1);
    } else if (world_rank() != 0)
        send_to_root(&row);
    else
        print_all_ranks(&row);
}

static void end_training(int training)
{
    RankRow row = {.rank = world_rank(), .training = training, .epoch = STOPPED};
    if (tables_wanted() && world_started() && world_rank() != 0)
        send_to_root(&row);
}

static void table_train_end(Callback *self, Training *training)
{
    (void)self;
    (void)training;
    end_training(training_count++);
}

// Receives all rows, however many epochs each rank has made.
static void leave(void)
{
    end_training(LEAVES);
    if (!tables_wanted() || world_rank() != 0)
        return;
    begin_receiving();
    for (int rank = 1; rank < world_size(); rank++)
        while (known[rank].ended != LEAVES)
            receive(rank);
    free(known);
    known = NULL;
}

// Also in a program that never calls hvd: each process then prints its own row.
void rank_table_watch(void)
{
    static Callback table = {
        .name = "rank_table", .epoch_end = table_epoch_end, .train_end = table_train_end};
    fit_watch(&table);
    world_before_stop(leave);
}
