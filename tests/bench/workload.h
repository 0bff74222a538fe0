// What is timed: a model at a batch size, on a kind of device, in a precision; and its steps, which
// can be run one at a time.

#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <stddef.h>
#include "nn/model.h"
#include "run/args.h"

enum { IMAGE_SIZE = 28 };

typedef struct {
    const char *model; // wrn or lenet
    int width;         // of wrn
    int batch;
    DeviceKind device;
    Precision precision;
} Workload;

// As a command line and results have them.
extern const char *const device_names[DEVICE_GPU + 1];
extern const char *const precision_names[PRECISION_BF16 + 1];

// Reads MODEL:WIDTH:BATCH, such as wrn:10:512. Exits with an error message where it is something
// else.
Workload parse_workload(const char *text);

// The place of a word among `count` names. Exits where it is none of them.
int find_name(const char *word, const char *const *names, int count);

// Prints "Wide ResNet 16-10".
void print_model(const Workload *workload);

// Prints "Wide ResNet 16-10, batch 512".
void print_workload(const Workload *workload);

// The model, compiled, with the kit's L2 penalty and plain SGD; under mpirun with the distributed
// optimizer.
Model *workload_model(const Workload *workload);

typedef struct Steps Steps;

// Training steps of the kit: forward, backward, update, on a batch that is in memory already; on a
// GPU it is copied there in each step.
Steps *prepare_training(const Workload *workload);

// The same by ranks that exchange nothing; with `in_step` they wait for each other after each step.
Steps *prepare_apart(const Workload *workload, bool in_step);

// Whole epochs (epoch.h): one of them counts as a step.
Steps *prepare_epoch(const Workload *workload);
struct Epoch *steps_epoch(Steps *steps); // NULL for other steps

// The same mirrored on all devices of this process: a global batch of as many images for each.
Steps *prepare_mirrored(const Workload *workload);

// Its model.
Model *steps_model(Steps *steps);

// The limit on a CPU: the network's convolutions alone (convolutions.h).
Steps *prepare_convolutions(const Workload *workload);

// Small random floats in the host's memory, as the kit's own arenas on a CPU have it.
float *random_floats(size_t bytes);

// Runs that many. Returns when all that was begun is done: a GPU works while the host goes on.
void run_steps(Steps *steps, int count);

#endif
