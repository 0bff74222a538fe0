// The CUDA backend's GPUs: a stream for each, its memory, and copies between it and the host.
//
// Everything on a GPU is computed on one stream, in the order of the calls. The host runs ahead: it
// waits only where it reads a result, and in cuda_write where all buffers still wait to be copied.

#include "cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "run/device.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/memory.h"

// Writes go through pinned buffers: the GPU can copy asynchronously only from these. A step writes
// three times (images, labels, keys for dropout), so with one buffer more the host can prepare a
// step while the GPU computes the one before.
#define STAGING_BUFFERS 4
#define STAGING_BYTES   ((size_t)4 << 20)

typedef struct {
    void *memory;
    cudaEvent_t copied; // the buffer may be filled again
} Staging;

struct CudaGpu {
    Device *device;
    cudaStream_t stream;
    cudaEvent_t order; // for cuda_stream_wait
    cudaEvent_t mark;  // for cuda_follow
    Staging staging[STAGING_BUFFERS];
    int next;            // staging buffer to use
    bool recording;      // what is queued is kept, not done
    const char *refused; // why something can't be kept, or NULL
    CudaParts parts;
};

static _Thread_local CudaGpu *turn_on; // the GPU of this thread's turn; NULL: it has none

void cuda_check_words(const char *words, const char *call, const char *file, int line)
{
    if (!words)
        return;
    if (turn_on && turn_on->recording) {
        if (!turn_on->refused)
            turn_on->refused = words;
        return;
    }
    fflush(stdout);
    fprintf(stderr, "%s: rank %d: %s:%d: %s: %s\n", program_name(), launcher_rank(), file, line,
            call, words);
    abort();
}

void cuda_check(cudaError_t error, const char *call, const char *file, int line)
{
    bool recording = turn_on && turn_on->recording;
    if (error == cudaErrorMemoryAllocation && !recording)
        die("out of GPU memory; a smaller --batch-size or --width needs less");
    cuda_check_words(error == cudaSuccess ? NULL : cudaGetErrorString(error), call, file, line);
}

// Called with the device's lock held.
static CudaGpu *start(Device *device)
{
    CudaGpu *gpu = allocate(1, sizeof *gpu);
    gpu->device = device;
    CUDA(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&gpu->order, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&gpu->mark, cudaEventDisableTiming));
    for (int i = 0; i < STAGING_BUFFERS; i++) {
        gpu->staging[i].memory = cuda_allocate_host(STAGING_BYTES);
        CUDA(cudaEventCreateWithFlags(&gpu->staging[i].copied, cudaEventDisableTiming));
    }
    return gpu;
}

static void set_current(const Device *device)
{
    int number;
    CUDA(cudaGetDevice(&number));
    if (number != device->gpu_number)
        CUDA(cudaSetDevice(device->gpu_number));
}

CudaTurn cuda_take_turn(Device *device)
{
    CudaTurn turn = {.before = turn_on};
    CHECK(device->gpu);
    pthread_mutex_lock(&device->lock);
    set_current(device);
    if (!device->state)
        device->state = start(device);
    turn.gpu = turn_on = device->state;
    return turn;
}

void cuda_end_turn(const CudaTurn *turn)
{
    Device *device = turn->gpu->device;
    turn_on = turn->before;
    // Only a turn has a GPU to go back to. Setting another one would make a context there, which
    // takes several hundred MiB.
    if (turn_on)
        set_current(turn_on->device);
    pthread_mutex_unlock(&device->lock);
}

// The GPU that is current in this thread.
static CudaGpu *current(void)
{
    if (turn_on)
        return turn_on;
    CudaTurn turn = cuda_take_turn(device_current());
    cuda_end_turn(&turn);
    return turn.gpu;
}

CudaParts *cuda_parts(void)
{
    return &current()->parts;
}

Precision cuda_precision(void)
{
    return current()->device->precision;
}

cudaStream_t cuda_stream(void)
{
    return current()->stream;
}

void cuda_stream_wait(cudaStream_t later, cudaStream_t earlier)
{
    // A wait uses the event's last recording, so one event is enough.
    cudaEvent_t order = current()->order;
    CUDA(cudaEventRecord(order, earlier));
    CUDA(cudaStreamWaitEvent(later, order, 0));
}

void cuda_mark(void)
{
    CudaGpu *gpu = current();
    CUDA(cudaEventRecord(gpu->mark, gpu->stream));
}

void cuda_follow(const Device *other)
{
    const CudaGpu *marked = other->state;
    CUDA(cudaStreamWaitEvent(cuda_stream(), marked->mark, 0));
}

void cuda_begin_recording(void)
{
    CudaGpu *gpu = current();
    CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    gpu->recording = true;
    gpu->refused = NULL;
}

cudaGraph_t cuda_end_recording(const char **why)
{
    CudaGpu *gpu = current();
    cudaGraph_t graph = NULL;
    gpu->recording = false;
    cudaError_t error = cudaStreamEndCapture(gpu->stream, &graph);
    cudaGetLastError(); // it has been seen: later calls must not find it
    if (error == cudaSuccess && !gpu->refused)
        return graph;
    *why = gpu->refused ? gpu->refused : cudaGetErrorString(error);
    if (graph)
        CUDA(cudaGraphDestroy(graph));
    return NULL;
}

void *cuda_try_allocate(size_t bytes)
{
    void *memory = NULL;
    current();
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
        die("out of GPU memory: there are no %zu MiB left; a smaller --batch-size or --width "
            "needs less",
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

static void write_piece(CudaGpu *gpu, char *to, const char *from, size_t bytes)
{
    Staging *staging = &gpu->staging[gpu->next];
    gpu->next = (gpu->next + 1) % STAGING_BUFFERS;
    CUDA(cudaEventSynchronize(staging->copied));
    memcpy(staging->memory, from, bytes);
    CUDA(cudaMemcpyAsync(to, staging->memory, bytes, cudaMemcpyHostToDevice, gpu->stream));
    CUDA(cudaEventRecord(staging->copied, gpu->stream));
}

void cuda_write(void *to, const void *from, size_t bytes)
{
    CudaGpu *gpu = current();
    for (size_t done = 0; done < bytes; done += STAGING_BYTES)
        write_piece(gpu, (char *)to + done, (const char *)from + done,
                    bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES);
}

void cuda_read(void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = cuda_stream();
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
}
