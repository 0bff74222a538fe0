// Inside the CUDA backend and NCCL's transport: what the backend keeps of a GPU, the stream that
// everything is computed on, and what happens when CUDA refuses something.
//
// As in CUDA itself, what is told to "the GPU" goes to the one that is current in the calling
// thread: the GPU of the turn that the thread has taken, else that of the thread's device.

#ifndef HVDLAB_CUDA_DEVICE_H
#define HVDLAB_CUDA_DEVICE_H

#include <cuda_runtime.h>
#include <stddef.h>
#include "run/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// Runs a call of the CUDA runtime. When it fails the program exits with an error message that names
// the place and gives CUDA's own words; where memory has run out the user can do something, and the
// line says what.
#define CUDA(call) cuda_check((call), #call, __FILE__, __LINE__)
void cuda_check(cudaError_t error, const char *call, const char *file, int line);

// The same for other libraries: `words` is what the library says, NULL when it is content.
void cuda_check_words(const char *words, const char *call, const char *file, int line);

// A thread's turn on a device, which may be another than its own. Turns of several threads on one
// device wait for each other; a thread may take a turn within a turn.
typedef struct CudaGpu CudaGpu;
typedef struct {
    CudaGpu *gpu, *before; // the one it is on, and that of the turn around it, or NULL
} CudaTurn;
CudaTurn cuda_take_turn(Device *device);
void cuda_end_turn(const CudaTurn *turn);

// What the parts of the backend keep of the current GPU, each its own; zero at first.
typedef struct {
    struct CudaBlas *blas;
    struct CudaDnn *dnn;
    bool refuses_graphs;
    float *exchange; // memory for what several GPUs add up
    size_t exchange_floats;
    unsigned *arrived; // blocks that have arrived (norm.cu)
    uint64_t asked;    // the GPUs, by their numbers, whose memory it may reach directly, or can't
} CudaParts;
CudaParts *cuda_parts(void);

// The arithmetic on the current GPU, and the stream on which it computes. The stream does not wait
// for the legacy default stream.
Precision cuda_precision(void);
cudaStream_t cuda_stream(void);

// What is queued on `later` from now on waits for what is on `earlier` until now. The calling
// thread does not wait.
void cuda_stream_wait(cudaStream_t later, cudaStream_t earlier);

// The same between two GPUs, by their streams: for what was queued on `other` until it was marked.
void cuda_mark(void);
void cuda_follow(const Device *other);

// Between the two calls what is queued on the stream is kept as a graph instead of being done, and
// a call that fails does not make the program exit: then cuda_end_recording gives NULL and says
// why. Else the graph is the caller's.
void cuda_begin_recording(void);
cudaGraph_t cuda_end_recording(const char **why);

// Memory of the current GPU. cuda_allocate zeroes it, on the stream, and exits where there is none;
// cuda_try_allocate leaves it as it is and returns NULL.
void *cuda_allocate(size_t bytes);
void *cuda_try_allocate(size_t bytes);
void cuda_release(void *memory);

// Memory of the host that the GPU copies from and to by itself; exits where there is none. It is
// freed by cudaFreeHost.
void *cuda_allocate_host(size_t bytes);

// Copies from and to the host, in the stream's order. cuda_write returns when `from` may be used
// again, cuda_read when all that was queued is done.
void cuda_write(void *to, const void *from, size_t bytes);
void cuda_read(void *to, const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
