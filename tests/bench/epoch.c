// Epochs, and the time of their parts.

#include "epoch.h"

#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "base/format.h"
#include "data/batches.h"
#include "run/device.h"

enum { MAX_THREADS = 256 };

typedef struct {
    int ids[MAX_THREADS];
    int count;
} Threads;

struct Epoch {
    Model *model;
    Batches *train, *validation;
    Threads loading;
    double seconds[EPOCH_PARTS];
    int count; // of epochs in them
};

// ---- This process's threads.

static Threads threads_now(void)
{
    Threads now = {.count = 0};
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks)) && now.count < MAX_THREADS;)
        if (task->d_name[0] != '.')
            now.ids[now.count++] = atoi(task->d_name);
    if (tasks)
        closedir(tasks);
    return now;
}

static bool has(const Threads *threads, int id)
{
    for (int i = 0; i < threads->count; i++)
        if (threads->ids[i] == id)
            return true;
    return false;
}

static Threads those_since(const Threads *before)
{
    Threads now = threads_now(), new = {.count = 0};
    for (int i = 0; i < now.count; i++)
        if (!has(before, now.ids[i]))
            new.ids[new.count++] = now.ids[i];
    return new;
}

// Of the processor's time: the first figure there, in nanoseconds (the ticks of
// /proc/self/task/ID/stat are too long for this). 0 where the kernel does not count.
static double seconds_of_thread(int id)
{
    char *path = format_text("/proc/self/task/%d/schedstat", id);
    FILE *file = fopen(path, "re");
    double nanoseconds = 0;
    if (file && fscanf(file, "%lf", &nanoseconds) != 1)
        nanoseconds = 0;
    if (file)
        fclose(file);
    free(path);
    return 1e-9 * nanoseconds;
}

static double seconds_of(const Threads *threads)
{
    double seconds = 0;
    for (int i = 0; i < threads->count; i++)
        seconds += seconds_of_thread(threads->ids[i]);
    return seconds;
}

// ---- Epochs.

// The threads are those that are there once both streams of batches have begun.
Epoch *epoch_prepare(const Workload *workload, Model *model)
{
    Epoch *epoch = allocate(1, sizeof *epoch);
    Dataset *data = allocate(1, sizeof *data);
    *data = synthetic_data(TRAIN, 1, 0);
    Statistics statistics = image_statistics(data);
    device_threads(); // those that compute come first
    epoch->model = model;
    epoch->train = augmented_batches(data, statistics, workload->batch);
    epoch->validation = plain_batches(data, statistics, workload->batch);
    Threads before = threads_now();
    batches_begin(epoch->train, EPOCH_STEPS);
    batches_begin(epoch->validation, EPOCH_VALIDATION_STEPS);
    epoch->loading = those_since(&before);
    return epoch;
}

// Since `*begin`, which becomes now.
static double lap(double *begin)
{
    double now = seconds_now(), seconds = now - *begin;
    *begin = now;
    return seconds;
}

static void pass(Epoch *e, Batches *batches, int steps, EpochPart part,
                 void (*compute)(Model *, const Batch *))
{
    model_reset_metrics(e->model);
    double begin = seconds_now();
    batches_begin(batches, steps);
    for (int i = 0; i < steps; i++) {
        Batch batch = batches_next(batches);
        e->seconds[EPOCH_IMAGES] += lap(&begin);
        compute(e->model, &batch);
        e->seconds[part] += lap(&begin);
    }
    model_metrics(e->model);
}

void epoch_run(Epoch *e)
{
    double loading = seconds_of(&e->loading);
    pass(e, e->train, EPOCH_STEPS, EPOCH_TRAINING, train_on_batch);
    pass(e, e->validation, EPOCH_VALIDATION_STEPS, EPOCH_VALIDATION, test_on_batch);
    double begin = seconds_now();
    if (launched())
        PMPI_Barrier(MPI_COMM_WORLD);
    e->seconds[EPOCH_OTHERS] += lap(&begin);
    e->seconds[EPOCH_LOADING] += seconds_of(&e->loading) - loading;
    e->count++;
}

// When all is prepared that there is room for, and nothing of it is asked for.
static double seconds_idle(Epoch *e)
{
    batches_begin(e->train, EPOCH_STEPS);
    usleep(300000);
    double before = seconds_of(&e->loading), begin = seconds_now();
    usleep(700000);
    return (seconds_of(&e->loading) - before) / (seconds_now() - begin);
}

void epoch_parts(Epoch *e, double parts[EPOCH_PARTS])
{
    for (int i = 0; i < EPOCH_PARTS; i++)
        parts[i] = e->count ? e->seconds[i] / e->count : 0;
    parts[EPOCH_IDLE] = seconds_idle(e);
    if (launched())
        PMPI_Allreduce(MPI_IN_PLACE, parts, EPOCH_PARTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; launched() && i < EPOCH_PARTS; i++)
        parts[i] /= launcher_size();
    memset(e->seconds, 0, sizeof e->seconds);
    e->count = 0;
}
