// Workloads: their words, and the kit's training step.

#include "workload.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "base/rng.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "convolutions.h"
#include "epoch.h"
#include "hvd/hvd.h"
#include "models/models.h"
#include "run/device.h"
#include "train/mirrored.h"

enum { MAX_WIDTH = 64, MAX_BATCH = 1 << 20 };

const char *const device_names[] = {"auto", "cpu", "gpu"};
const char *const precision_names[] = {"default", "fp32", "tf32", "bf16"};

int find_name(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    die("bench: %s is not known here", word);
}

Workload parse_workload(const char *text)
{
    static const char *const models[] = {"wrn", "lenet"};
    Workload s = {0};
    int end = 0;
    for (int i = 0; i < 2; i++)
        if (strncmp(text, models[i], strlen(models[i])) == 0)
            s.model = models[i];
    if (!s.model || sscanf(text + strlen(s.model), ":%d:%d%n", &s.width, &s.batch, &end) != 2 ||
        text[strlen(s.model) + (size_t)end] || s.width < 1 || s.width > MAX_WIDTH || s.batch < 1 ||
        s.batch > MAX_BATCH)
        die("%s is not MODEL:WIDTH:BATCH, such as wrn:10:512 or lenet:1:128", text);
    return s;
}

void print_model(const Workload *s)
{
    if (strcmp(s->model, "wrn") == 0)
        printf("Wide ResNet 16-%d", s->width);
    else
        printf("LeNet");
}

void print_workload(const Workload *s)
{
    print_model(s);
    printf(", batch %d", s->batch);
}

// ---- Steps.

// Steps of one of these; the others are NULL.
struct Steps {
    Model *model;
    Mirrored *mirrored;
    Convolutions *convolutions;
    Epoch *epoch;
    Batch batch;  // of the first two
    bool in_step; // ranks wait for each other after each one
};

float *random_floats(size_t bytes)
{
    float *values = backend_cpu.allocate(device_current(), bytes);
    Rng rng = rng_stream_of(1, RNG_SYNTHETIC_DATA, 0);
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = 0.1f * (rng_uniform(&rng) - 0.5f);
    return values;
}

static Batch random_batch(int count)
{
    int *labels = allocate((size_t)count, sizeof *labels);
    for (int i = 0; i < count; i++)
        labels[i] = i % 10;
    size_t bytes = (size_t)count * IMAGE_SIZE * IMAGE_SIZE * sizeof(float);
    return (Batch){random_floats(bytes), labels, count};
}

static Model *uncompiled(const Workload *workload)
{
    int k = workload->width;
    ModelShape shape = {.height = IMAGE_SIZE, .width = IMAGE_SIZE, .channels = 1, .dropout = true};
    Model *model = NULL;
    if (strcmp(workload->model, "lenet") == 0) {
        model = lenet(shape);
    } else {
        const int widths[] = {16, 16 * k, 32 * k, 64 * k};
        memcpy(shape.widths, widths, sizeof widths);
        model = wide_resnet(shape);
    }
    return l2_penalty(model, 5e-6f);
}

static Optimizer *plain_sgd(void)
{
    return sgd(0.01f);
}

Model *workload_model(const Workload *workload)
{
    Optimizer *optimizer = plain_sgd();
    if (launched())
        optimizer = hvd_distributed_optimizer(optimizer);
    return compile(uncompiled(workload), CATEGORICAL_CROSSENTROPY, optimizer);
}

Steps *prepare_apart(const Workload *workload, bool in_step)
{
    Steps *steps = allocate(1, sizeof *steps);
    steps->model = compile(uncompiled(workload), CATEGORICAL_CROSSENTROPY, plain_sgd());
    steps->batch = random_batch(workload->batch);
    steps->in_step = in_step;
    return steps;
}

Steps *prepare_epoch(const Workload *workload)
{
    Steps *steps = allocate(1, sizeof *steps);
    steps->epoch = epoch_prepare(workload, workload_model(workload));
    return steps;
}

Steps *prepare_training(const Workload *workload)
{
    Steps *steps = allocate(1, sizeof *steps);
    steps->model = workload_model(workload);
    steps->batch = random_batch(workload->batch);
    return steps;
}

// ---- Replicas.

static const Workload *mirrored_workload;

static Model *replica_model(void)
{
    return uncompiled(mirrored_workload);
}

Steps *prepare_mirrored(const Workload *workload)
{
    Steps *steps = allocate(1, sizeof *steps);
    mirrored_workload = workload;
    steps->mirrored = mirrored(replica_model, CATEGORICAL_CROSSENTROPY, plain_sgd, NULL, 0);
    steps->batch = random_batch(workload->batch * mirrored_devices(steps->mirrored));
    return steps;
}

static void train_part(Replica *replica, const Batch *whole)
{
    Batch part = part_of_batch(replica, whole);
    compute_gradients(replica->model, &part);
    average_gradients(replica, part.count);
    apply_gradients(replica->model);
}

// ---- Convolutions alone.

Steps *prepare_convolutions(const Workload *workload)
{
    Steps *steps = allocate(1, sizeof *steps);
    steps->convolutions = convolutions_of(workload);
    return steps;
}

Epoch *steps_epoch(Steps *steps)
{
    return steps->epoch;
}

Model *steps_model(Steps *steps)
{
    return steps->model;
}

static void run_step(Steps *steps)
{
    if (steps->model)
        train_on_batch(steps->model, &steps->batch);
    else if (steps->mirrored)
        batch_on_each_device(steps->mirrored, train_part, &steps->batch);
    else if (steps->epoch)
        epoch_run(steps->epoch);
    else
        convolutions_run(steps->convolutions);
    if (steps->in_step)
        PMPI_Barrier(MPI_COMM_WORLD);
}

void run_steps(Steps *steps, int count)
{
    for (int i = 0; i < count; i++)
        run_step(steps);
    if (steps->model)
        model_metrics(steps->model); // waits
    for (int i = 0; steps->mirrored && i < mirrored_devices(steps->mirrored); i++)
        model_metrics(mirrored_model(steps->mirrored, i));
}
