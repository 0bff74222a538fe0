// What a test may ask the simulated devices (README.md).

#ifndef EMULATED_H
#define EMULATED_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// What this process has done with a device of the machine.
typedef struct {
    bool context;       // it has one, which takes several hundred MiB of a real device
    size_t bytes, peak; // allocated now, and at most
    long allocations, launches, copies;
    // What a training step must not do: free memory, allocate or free the host's for the GPU, and
    // wait for all that is queued (on a stream or the device; not for an event).
    long frees, host_allocations, waits;
    long plays;  // graphs that were launched
    long staged; // copies from or to another device that went through the host's memory
} EmulatedUsage;

// `device` is its number on the machine, whatever CUDA_VISIBLE_DEVICES makes of it.
EmulatedUsage emulated_usage(int device);

// The next allocation but `successes`, of the device or of pinned memory, fails; negative: none
// does.
void emulated_fail_allocation(int successes);

#ifdef __cplusplus
}
#endif

#endif
