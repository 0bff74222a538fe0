// What the parts of the benchmark offer to the command line, and how they write down results:
// build/bench.json and build/bench-gpu.json hold one description of the machine and a list of
// results.

#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <cjson/cJSON.h>
#include "runner.h"

// ---- Results (results.c).

// A file that is opened before the measurement, so that no result is lost.
typedef struct {
    const char *path;
    FILE *file;
    cJSON *document, *results;
} Report;

// Exits with an error message where the file cannot be written.
Report report_open(const char *path);
void report_save(Report *report);

// Adds a result of that name about a workload; the caller adds its measurements.
cJSON *add_result(cJSON *results, const char *name, const char *framework,
                  const Workload *workload);

// Adds a runner's training step. Returns its images/s.
double add_training_step(cJSON *results, const Workload *workload, const Runner *runner,
                         int threads, int ranks, int rounds);

// Has all runners that are started from now on, of all frameworks, use no newer instructions than
// these: SSE41, AVX2, AVX512_CORE or AVX512_CORE_BF16, as oneDNN calls them. Results say so. Exits
// with an error message for another word. Called before oneDNN is used.
void limit_instruction_set(const char *isa);

// Prints what training steps took, under the heading of the columns: a line for each runner, with
// images/s, milliseconds, memory, and by how much the first is quicker. Adds them to the results.
void print_heading(const char *where, int rounds);
void report_runners(cJSON *results, const Workload *workload, const Runner *runners, int count,
                    int rounds);

// Has a runner of hvdlab that has been timed say what each kind of work takes, over that many
// steps; prints a table, with the roofline where the peak is not 0, and adds its rows to the
// results.
void report_profile(cJSON *results, const Workload *workload, Runner *hvdlab, int steps,
                    const Cost cost[WORK_KINDS], Peak peak);

// As results name a GPU and what it runs with. Empty strings where there is none.
typedef struct {
    char name[256], driver[64], cuda[32], cudnn[32];
} GpuFacts;
GpuFacts gpu_facts(void);

// ---- One rank and several (scaling.c).

// Times 1, 2, ... ranks, each on one core, and one process on all cores. Adds to the results, and
// writes "ranks images/s efficiency" lines to `data`, where it is not NULL.
void bench_scaling(cJSON *results, int rounds, double round_time, FILE *data);

// Prints where ranks lose time, one on each core, or eight (ranks.c). Exits with an error message
// where there is one core.
void bench_ranks(const Workload *workload, int rounds, double round_time);

// Prints a table, as handouts have them: all cores are divided into 1, 2, ... devices, and these
// train as ranks, and as one process that is mirrored on them, in turns.
void bench_mirrored(int rounds, double round_time);

// Times hvd_allreduce over that many ranks beside MPI's own, over a sweep of sizes.
void bench_allreduce(cJSON *results, int ranks);

// Its ranks, which mpirun started: main of `bench --run-allreduce`.
int allreduce_main(void);

// ---- Checkpoints (saving.c).

// Times checkpoints in that folder, which it makes, beside plain writes of as many bytes; prints a
// table.
void bench_saving(const Workload *workload, const char *folder);

// ---- Convolutions (layers.c).

// Times Wide ResNet's 3x3 convolutions one by one: the kit's own, oneDNN's, and the limit; prints a
// table.
void bench_layers(bool quick);

// ---- On a GPU (gpu.c).

enum { MAX_WORKLOADS = 8 };

typedef struct {
    bool quick;
    const char *out;     // the file to write
    const char *python;  // with other frameworks, or NULL
    const char *trainer; // the program whose time to an accuracy is taken, or NULL
    Workload workloads[MAX_WORKLOADS];
    int workload_count; // 0: the usual ones
} BenchOptions;

// `make bench-gpu`: training steps in each precision, what they consist of, and how near they come
// to what the GPU can do. Exits with an error message where there is no GPU, or no CUDA in this
// build.
void bench_gpu(const BenchOptions *options);

#endif
