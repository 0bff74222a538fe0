// Inside the CUDA backend and NCCL's transport: the stream that everything is computed on, and what
// happens when CUDA refuses something.

#ifndef HVDLAB_CUDA_DEVICE_H
#define HVDLAB_CUDA_DEVICE_H

#include <cuda_runtime.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Runs a call of the CUDA runtime. When it fails the program ends with a line that names the place
// and gives CUDA's own words; where memory has run out the user can do something, and the line says
// what.
#define CUDA(call) cuda_check((call), #call, __FILE__, __LINE__)
void cuda_check(cudaError_t error, const char *call, const char *file, int line);

// The same for other libraries: `words` is what the library says, NULL when it is content.
void cuda_check_words(const char *words, const char *call, const char *file, int line);

// The stream on which this process computes, on its own GPU; the device is readied if need be. It
// does not wait for the legacy default stream.
cudaStream_t cuda_stream(void);

// What is queued on `later` from now on waits for what is on `earlier` until now. The calling
// thread does not wait.
void cuda_stream_wait(cudaStream_t later, cudaStream_t earlier);

// Between the two calls what is queued on the stream is kept as a graph instead of being done, and
// a call that fails does not end the program: then cuda_end_recording gives NULL. Else the graph is
// the caller's.
void cuda_begin_recording(void);
cudaGraph_t cuda_end_recording(void);

// Memory of this process's GPU. cuda_allocate zeroes it, on the stream, and ends the program where
// there is none; cuda_try_allocate leaves it as it is and returns NULL.
void *cuda_allocate(size_t bytes);
void *cuda_try_allocate(size_t bytes);
void cuda_release(void *memory);

// Memory of the host that the GPU copies from and to by itself; ends the program where there is
// none. It is freed by cudaFreeHost.
void *cuda_allocate_host(size_t bytes);

// Copies from and to the host, in the stream's order. cuda_write returns when `from` may be used
// again, cuda_read when all that was queued is done.
void cuda_write(void *to, const void *from, size_t bytes);
void cuda_read(void *to, const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
