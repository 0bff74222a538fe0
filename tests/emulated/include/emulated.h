// What a test may ask the pretend devices (README.md).

#ifndef EMULATED_H
#define EMULATED_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// What this process has done with a device of the machine.
typedef struct {
    size_t bytes, peak; // allocated now, and at most
    long allocations, launches, copies;
} EmulatedUsage;

// `device` is its number on the machine, whatever CUDA_VISIBLE_DEVICES makes of it.
EmulatedUsage emulated_usage(int device);

// The next cudaMalloc but `successes` finds no memory; negative: all find some.
void emulated_fail_allocation(int successes);

#ifdef __cplusplus
}
#endif

#endif
