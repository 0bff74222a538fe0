// The CUDA backend's recordings: a training step as a CUDA graph, which the host starts by one call
// where it would make some hundred. Small networks gain by it: they keep the host busier than the
// GPU.

#include "cuda/cuda_op.h"

#include <stdlib.h>
#include "base/util.h"

struct Recording {
    cudaGraphExec_t steps;
};

Recording *cuda_record(void (*queue)(const void *what), const void *what)
{
    static bool refused; // once is enough
    if (refused)
        return NULL;
    cuda_begin_recording();
    queue(what);
    cudaGraph_t graph = cuda_end_recording();
    cudaGraphExec_t steps = NULL;
    if (graph) {
        if (cudaGraphInstantiate(&steps, graph, 0) != cudaSuccess)
            steps = NULL;
        cudaGetLastError(); // it has been seen: later calls must not find it
        CUDA(cudaGraphDestroy(graph));
    }
    refused = !steps;
    if (refused)
        return NULL;
    Recording *recording = allocate(1, sizeof *recording);
    recording->steps = steps;
    return recording;
}

void cuda_play(const Recording *recording)
{
    CUDA(cudaGraphLaunch(recording->steps, cuda_stream()));
}

void cuda_forget(Recording *recording)
{
    // The GPU may still be at it.
    CUDA(cudaStreamSynchronize(cuda_stream()));
    CUDA(cudaGraphExecDestroy(recording->steps));
    free(recording);
}
