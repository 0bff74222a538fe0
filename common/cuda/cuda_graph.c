// The CUDA backend's recordings: a training step as a CUDA graph, which the host launches by one
// call instead of several hundred. Small networks gain: their launches take the host longer than
// the GPU's work.

#include "cuda/backend_cuda_inside.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"

struct Recording {
    Device *device;
    cudaGraphExec_t steps;
};

// Without its device.
static Recording *record(void (*queue)(const void *what), const void *what)
{
    bool *refused = &cuda_parts()->refuses_graphs; // once is enough
    if (*refused)
        return NULL;
    const char *why = NULL;
    cuda_begin_recording();
    queue(what);
    cudaGraph_t graph = cuda_end_recording(&why);
    cudaGraphExec_t steps = NULL;
    if (graph) {
        cudaError_t error = cudaGraphInstantiate(&steps, graph, 0);
        if (error != cudaSuccess) {
            steps = NULL;
            why = cudaGetErrorString(error);
        }
        cudaGetLastError(); // it has been seen: later calls must not find it
        CUDA(cudaGraphDestroy(graph));
    }
    *refused = !steps;
    if (*refused) {
        warn("a training step can't be recorded as a CUDA graph (%s), so the host launches each "
             "kernel: small networks "
             "are slower",
             why);
        return NULL;
    }
    Recording *recording = allocate(1, sizeof *recording);
    recording->steps = steps;
    return recording;
}

Recording *cuda_record(Device *device, void (*queue)(const void *what), const void *what)
{
    CudaTurn turn = cuda_take_turn(device);
    Recording *recording = record(queue, what);
    if (recording)
        recording->device = device;
    cuda_end_turn(&turn);
    return recording;
}

void cuda_play(const Recording *recording)
{
    CudaTurn turn = cuda_take_turn(recording->device);
    CUDA(cudaGraphLaunch(recording->steps, cuda_stream()));
    cuda_end_turn(&turn);
}

void cuda_forget(Recording *recording)
{
    CudaTurn turn = cuda_take_turn(recording->device);
    // The GPU may still be running it.
    CUDA(cudaStreamSynchronize(cuda_stream()));
    CUDA(cudaGraphExecDestroy(recording->steps));
    cuda_end_turn(&turn);
    free(recording);
}
