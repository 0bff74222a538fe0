// The CUDA backend's stream, its memory, and copies between it and the host.
//
// Everything is computed on one stream, in the order of the calls. The host runs ahead: it waits
// only where it reads a result, and in cuda_write
// where all buffers still wait to be copied.

#include "cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sys/device.h"
#include "base/util.h"

// What is written passes through buffers that the GPU copies from by itself, which it can't do from
// ordinary memory. A step writes three times (images, labels, keys for dropout), so that with one
// buffer more the host can prepare a step while the GPU is at the one before.
#define STAGING_BUFFERS 4
#define STAGING_BYTES   ((size_t)4 << 20)

typedef struct {
    void *memory;
    cudaEvent_t copied; // the buffer may be filled again
} Staging;

static struct {
    cudaStream_t stream; // NULL: not started yet
    cudaEvent_t order;   // for cuda_stream_wait
    Staging staging[STAGING_BUFFERS];
    int next;       // staging buffer to use
    bool recording; // what is queued is kept, not done
    bool refused;   // something can't be kept
} cuda;

void cuda_check_words(const char *words, const char *call, const char *file, int line)
{
    if (!words)
        return;
    if (cuda.recording) {
        cuda.refused = true;
        return;
    }
    fflush(stdout);
    fprintf(stderr, "%s: rank %d: %s:%d: %s: %s\n", program_name(), launcher_rank(), file, line,
            call, words);
    abort();
}

void cuda_check(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaErrorMemoryAllocation && !cuda.recording)
        die("out of GPU memory; a smaller --batch-size or --width needs less");
    cuda_check_words(error == cudaSuccess ? NULL : cudaGetErrorString(error), call, file, line);
}

static void start(void)
{
    device_start();
    CUDA(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&cuda.order, cudaEventDisableTiming));
    for (int i = 0; i < STAGING_BUFFERS; i++) {
        cuda.staging[i].memory = cuda_allocate_host(STAGING_BYTES);
        CUDA(cudaEventCreateWithFlags(&cuda.staging[i].copied, cudaEventDisableTiming));
    }
}

cudaStream_t cuda_stream(void)
{
    if (!cuda.stream)
        start();
    return cuda.stream;
}

void cuda_stream_wait(cudaStream_t later, cudaStream_t earlier)
{
    cuda_stream();
    // A wait is for the event as it was recorded last, so one event serves all.
    CUDA(cudaEventRecord(cuda.order, earlier));
    CUDA(cudaStreamWaitEvent(later, cuda.order, 0));
}

void cuda_begin_recording(void)
{
    CUDA(cudaStreamBeginCapture(cuda_stream(), cudaStreamCaptureModeThreadLocal));
    cuda.recording = true;
    cuda.refused = false;
}

cudaGraph_t cuda_end_recording(void)
{
    cudaGraph_t graph = NULL;
    cuda.recording = false;
    cudaError_t error = cudaStreamEndCapture(cuda.stream, &graph);
    cudaGetLastError(); // it has been seen: later calls must not find it
    if (error == cudaSuccess && !cuda.refused)
        return graph;
    if (graph)
        CUDA(cudaGraphDestroy(graph));
    return NULL;
}

void *cuda_try_allocate(size_t bytes)
{
    void *memory = NULL;
    cuda_stream();
    if (bytes == 0)
        bytes = 1; // as allocate() does: a block of nothing is still a block
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); // it has been seen: later calls must not find it
        return NULL;
    }
    CUDA(error);
    return memory;
}

void *cuda_allocate(size_t bytes)
{
    void *memory = cuda_try_allocate(bytes);
    if (!memory)
        die("out of GPU memory: there are no %zu MiB left; a smaller --batch-size or --width needs "
            "less",
            (bytes >> 20) + 1);
    CUDA(cudaMemsetAsync(memory, 0, bytes, cuda_stream()));
    return memory;
}

void *cuda_allocate_host(size_t bytes)
{
    void *memory = NULL;
    cudaError_t error = cudaMallocHost(&memory, bytes);
    if (error == cudaErrorMemoryAllocation)
        die("out of the host's memory: there are no %zu MiB that the GPU could reach; a smaller "
            "--width, or ending other programs, may help",
            (bytes >> 20) + 1);
    CUDA(error);
    return memory;
}

void cuda_release(void *memory)
{
    if (memory)
        CUDA(cudaFree(memory));
}

static void write_piece(char *to, const char *from, size_t bytes)
{
    Staging *staging = &cuda.staging[cuda.next];
    cuda.next = (cuda.next + 1) % STAGING_BUFFERS;
    CUDA(cudaEventSynchronize(staging->copied));
    memcpy(staging->memory, from, bytes);
    CUDA(cudaMemcpyAsync(to, staging->memory, bytes, cudaMemcpyHostToDevice, cuda.stream));
    CUDA(cudaEventRecord(staging->copied, cuda.stream));
}

void cuda_write(void *to, const void *from, size_t bytes)
{
    cuda_stream();
    for (size_t done = 0; done < bytes; done += STAGING_BYTES)
        write_piece((char *)to + done, (const char *)from + done,
                    bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES);
}

void cuda_read(void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda_stream()));
    CUDA(cudaStreamSynchronize(cuda.stream));
}
