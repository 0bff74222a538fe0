// `make bench-gpu`: training steps on a GPU in each precision, what they consist of, and how near
// they come to what the GPU can do.

#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include "subject.h"

enum { MAX_SUBJECTS = 8 };

typedef struct {
    bool quick;
    const char *out;     // the file to write
    const char *python;  // with PyTorch, or NULL
    const char *trainer; // the program whose time to an accuracy is taken, or NULL
    Subject subjects[MAX_SUBJECTS];
    int subject_count; // 0: those that the kit is measured by
} GpuBench;

// Ends the program with one line where there is no GPU, or no CUDA in this build.
void bench_gpu(const GpuBench *bench);

#endif
