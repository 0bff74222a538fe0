// One operation alone, for tests of a backend: what it is, in few words; the values that it reads;
// and a run of it on the device that brings back all that it gives.

#ifndef HVDLAB_TESTS_OPERATION_H
#define HVDLAB_TESTS_OPERATION_H

#include <check.h>

#include "backend/backend.h"
#include "reference.h"
#include "base/rng.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

// An operation in few words.
typedef struct {
    OpKind kind;
    int batch;
    Shape in;
    int filters; // of a convolution; units of a dense layer; dimension of an embedding
    int size;    // of a kernel or a pool; vocabulary of an embedding
    bool relu, residual, image, flat, no_gradient, no_bias;
    bool two_parts; // the output's gradient comes in two
    float dropout_rate;
} Spec;

// The spec in words, for messages; good until the next call.
const char *describe(const Spec *spec);

// One operation with values for all that it reads, and room for all that it gives.
typedef struct {
    Op op;
    Variable variables[MAX_VARIABLES];
    int batch;
    uint64_t dropout_key;
    float *sources[SOURCES];   // in Keras's order, NULL where the operation has none
    float *output_gradient[2]; // its parts; the second may be NULL
    float *output;             // results
    float *gradients[SOURCES]; // results; of a moving statistic its new value
} Trial;

// Not movable: the operation points to the variables beside it. The values are random, of a size
// that keeps the output near 1.
Trial *trial_create(const Spec *spec);
void trial_free(Trial *trial);

// The forward pass on the backend, with the output and the moving statistics as results; and a
// training step: both passes, with all results. Padding must come out as zeros, and nothing but the
// gradients may be written where the gradients are.
void trial_forward(Trial *trial, bool training);
void trial_run(Trial *trial);

// A number that stands for all bits of the results.
uint64_t trial_fingerprint(const Trial *trial);

// Floats, zeroed, to be freed; NULL for none.
float *floats(size_t count);
void fill_normal(Rng *rng, float *values, size_t count, float mean, float deviation);
size_t nonzeros(const float *values, size_t count);

// Device memory. Not zeroed but full of NaN, so that a result shows what was read before it was
// written. Release it with the backend's release; free a copy on the host.
void *device_memory(size_t bytes);
float *host_copy(const void *memory, size_t bytes);

// The device that a test runs on is the calling thread's; this is its backend.
const Backend *backend(void);

// Makes it the device in HVDLAB_TEST_DEVICE (cpu or gpu; unset: the CPU), with the arithmetic in
// HVDLAB_TEST_PRECISION (fp32, tf32 or bf16; unset: fp32). main calls it before the tests run.
// Exits with status 77 where that is bf16 and the processor has none.
void use_test_device(void);

// The same with two devices, and the same numbers each time. False, and a line that says so, where there
// is one GPU.
bool use_two_test_devices(void);

// A new test case with time enough for sanitizers and busy machines, on that device.
TCase *operation_case(Suite *suite, const char *name);

#endif
