// What the GPU is, and what it can do at most: measured, not read from a data sheet, since clocks,
// power limits and libraries have their say.

#ifndef BENCH_RATES_H
#define BENCH_RATES_H

// As records name them. Empty strings where there is no GPU.
typedef struct {
    char name[256], driver[64], cuda[32], cudnn[32];
} GpuFacts;
GpuFacts gpu_facts(void);

// What a device does in a second at most; zeros where it has not been measured.
typedef struct {
    double flops; // of a large product of random matrices, by cuBLAS, in this process's precision
    double bytes; // read and written, of a large copy within the GPU's memory
} Rates;

// Measures them; zeros where there is no GPU.
Rates measured_rates(void);

#endif
