// The trainer's command line: the lab's own flags and the kit's. A flag is either a field that the
// step reads where it matters, or it belongs to the process as a whole; those stand in `Settings`,
// where the layers above look them up.

#ifndef HVDLAB_ARGS_H
#define HVDLAB_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default) // a step may call what follows

typedef enum { DATA_FASHION_MNIST, DATA_SYNTHETIC } DataKind;
typedef enum { PRECISION_DEFAULT, PRECISION_FP32, PRECISION_TF32, PRECISION_BF16 } Precision;
typedef enum { PROGRESS_AUTO, PROGRESS_BAR, PROGRESS_PLAIN } Progress;
typedef enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_GPU } DeviceKind;

typedef struct {
    const char *log_dir;        // --log-dir: TensorBoard event files, written by the root only
    const char *checkpoint_dir; // --checkpoint-dir: where checkpoints are saved; NULL: nowhere
    bool resume;                // --resume: go on from the latest of them
    int batch_size;             // --batch-size: training images per step and worker
    int val_batch_size;         // --val-batch-size: the same for validation
    int epochs;                 // --epochs
    float base_lr;              // --base-lr: learning rate for a single device
    float wd;                   // --wd: L2 penalty on the kernels of conv and dense layers
    float clip_norm;            // --clip-norm: the limit for the norm of all gradients together
    float target_accuracy;      // --target-accuracy: validation accuracy to exceed before stopping
    float patience;             // --patience: epochs in a row above the target
    int width;                  // --width: k of the Wide ResNet 16-k
    DataKind data;              // --data
    const char *data_dir;       // --data-dir: NULL where it was not given
    int images;                 // --images: cut each data set to its first N images; 0: all
    int max_count;      // --max-count: floats in the largest array that sweep_allreduce tries
    int micro_batches;  // --micro-batches: parts of a batch that pass through a model's parts
    int stages;         // --stages: these parts, one behind the other
    int blocks;         // --blocks: of a chain
    int columns;        // --columns: of a grid of workers
    int staleness;      // --staleness: updates that a worker may be ahead of the slowest one
    int shuffle_buffer; // --shuffle-buffer: images among which a pipeline draws the next one
} Args;

// What belongs to the process as a whole.
typedef struct {
    Precision precision; // --precision
    DeviceKind device;   // --device
    Progress progress;   // --progress
    int loader_threads;  // --loader-threads
    float slow_reader;   // --slow-reader: milliseconds that a batch of images takes to be read
    float pace;          // --pace: milliseconds that a batch takes at least to be computed
    bool augment;        // false with --no-augment
    bool shuffle;        // false with --no-shuffle
    bool deterministic;  // --deterministic (GPU)
    bool show_ranks;     // --show-ranks: a table of the ranks after each epoch
    bool show_memory;    // --show-memory: the same of the memory that its model takes
    bool seeded;         // --seed was given
    uint64_t seed;       // its value
} Settings;

// Reads the command line, then HVDLAB_FLAGS from the environment, words between white space, whose
// flags win. --help and --version print (on the launcher's rank 0) and make the program exit with
// status 0. A flag may be shortened while it stays unambiguous. A flag that is unknown, lacks its
// value or is out of range, and a stray word, end it with one line and status 2. The strings belong
// to argv or live as long as the process. HVDLAB_RESUME=1 in the environment, which hvdrun sets
// when it starts a job again, means --resume where there is a --checkpoint-dir. HVDLAB_SEED=N does
// what --seed does, except that the data stay the same: checks set it. Also applies what
// belongs to the process: see settings().
Args parse_args(int argc, char **argv);

// What --version prints.
#define HVDLAB_VERSION "1.0.0"

// The process's settings; the defaults before parse_args. Programs of the kit that have a command
// line of their own (replay, bench) write them here.
Settings *settings(void);

#pragma GCC visibility pop

// To be called where checkpoints or weights are saved, restored or looked for. Where
// --checkpoint-dir was given and nothing of the kind happens, the root warns at exit (args_end,
// which start.c calls): the program ignores the flag.
void checkpoint_dir_is_used(void);
void args_end(int status);
void args_forget(void); // in a child that was forked, which prints no such warning

#endif
