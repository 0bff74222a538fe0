// The transport between GPUs: NCCL. Its collectives run on a stream of their own, which waits for
// the gradients that the compute stream has still to finish; the update waits for that stream in
// turn. The host only queues this work and does not wait.

#include "comm/transport.h"

#include <nccl.h>
#include <stdlib.h>
#include "cuda/cuda_device.h"
#include "cuda/kernels.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "run/args.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/world.h"

// ncclBfloat16, which the headers of NCCL 2.22 show to C++ alone.
#define BFLOAT16 ((ncclDataType_t)9)

#define NCCL(call) nccl_check((call), #call, __FILE__, __LINE__)

static void nccl_check(ncclResult_t result, const char *call, const char *file, int line)
{
    cuda_check_words(result == ncclSuccess ? NULL : ncclGetErrorString(result), call, file, line);
}

static struct {
    ncclComm_t comm; // NULL: not started
    cudaStream_t stream;
    void *halves;  // a copy of the gradients in bfloat16
    size_t length; // how many fit
} nccl;

#define MAX_WAIT 10 // seconds

// Returns the same result on all ranks: the reason why NCCL can't be used, or NULL. If NCCL fails
// on one rank, the others may wait for it inside NCCL forever: then that rank aborts the job.
static const char *agreed(ncclResult_t own, MPI_Comm comm)
{
    int result = (int)own;
    double begin = seconds_now();
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, comm, &request);
    for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done;)
        if (own != ncclSuccess && seconds_now() - begin > MAX_WAIT)
            die("NCCL does not start on this rank: %s; HVD_TRANSPORT=mpi does without it",
                ncclGetErrorString(own));
    return result == (int)ncclSuccess ? NULL : ncclGetErrorString((ncclResult_t)result);
}

const char *hvd_nccl_start(MPI_Comm comm)
{
    // With the switch's sums (NVLS) the order of the addends may differ from run to run.
    if (settings()->deterministic)
        setenv("NCCL_NVLS_ENABLE", "0", 0);
    ncclUniqueId id = {0};
    ncclResult_t result = world_rank() == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    const char *problem = agreed(result, comm);
    if (problem)
        return problem;
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
    MPI_Barrier(comm); // a rank inside NCCL does not help MPI to pass the id on
    result = ncclCommInitRank(&nccl.comm, world_size(), id, world_rank());
    if (result != ncclSuccess)
        nccl.comm = NULL;
    problem = agreed(result, comm);
    if (problem) {
        // Not destroyed: ncclCommDestroy would wait for ranks that have no communicator.
        nccl.comm = NULL;
        return problem;
    }
    // Highest priority: other ranks wait, and computing kernels fill the GPU.
    int least, greatest;
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA(cudaStreamCreateWithPriority(&nccl.stream, cudaStreamNonBlocking, greatest));
    return NULL;
}

void hvd_nccl_stop(void)
{
    if (nccl.comm)
        ncclCommDestroy(nccl.comm);
    nccl.comm = NULL;
}

// Errors of another rank, or of the network, show later than the call.
static void check_health(void)
{
    ncclResult_t result;
    NCCL(ncclCommGetAsyncError(nccl.comm, &result));
    if (result != ncclSuccess && result != ncclInProgress)
        NCCL(result);
}

// mpi_calls.c watches MPI's functions, but not these. A span ends when the host has queued the
// call.
static void begin_call(const char *function, const char *name, size_t bytes, int root)
{
    span_begin(SPAN_CALL, function, (int64_t)bytes, root);
    trace_collective(function, name, bytes, "", root);
}

static void end_call(const char *function, const char *name)
{
    span_end();
    trace_collective_end(function, name);
}

static void *halves_for(size_t length)
{
    if (nccl.length < length) {
        cuda_release(nccl.halves); // which waits for what still reads it
        nccl.halves = cuda_allocate(length * sizeof(uint16_t));
        nccl.length = length;
    }
    return nccl.halves;
}

static void average(const Parameters *parameters, size_t offset, size_t count)
{
    float *gradients = parameters->gradients + offset;
    uint16_t *halves = NULL;
    if (hvd_compresses()) {
        halves = (uint16_t *)halves_for(parameters->length) + offset;
        launch_copy(ELEMENT_BF16, halves, ELEMENT_FLOAT, gradients, count);
    }
    begin_call("ncclAllReduce", "gradients", count * (halves ? 2 : 4), -1);
    cuda_stream_wait(nccl.stream, cuda_stream());
    if (halves)
        NCCL(ncclAllReduce(halves, halves, count, BFLOAT16, ncclSum, nccl.comm, nccl.stream));
    else
        NCCL(ncclAllReduce(gradients, gradients, count, ncclFloat32, ncclAvg, nccl.comm,
                           nccl.stream));
    end_call("ncclAllReduce", "gradients");
}

static void finish(const Parameters *parameters)
{
    cuda_stream_wait(cuda_stream(), nccl.stream);
    if (hvd_compresses())
        launch_scale(parameters->gradients, ELEMENT_BF16, nccl.halves, parameters->length,
                     1.0f / (float)world_size());
    check_health();
}

static void broadcast(float *values, size_t count, int root)
{
    begin_call("ncclBroadcast", "variables", count * sizeof *values, root);
    cuda_stream_wait(nccl.stream, cuda_stream());
    NCCL(ncclBroadcast(values, values, count, ncclFloat32, root, nccl.comm, nccl.stream));
    cuda_stream_wait(cuda_stream(), nccl.stream);
    end_call("ncclBroadcast", "variables");
}

void hvd_nccl_sum(float *values, size_t count)
{
    cuda_stream_wait(nccl.stream, cuda_stream());
    NCCL(ncclAllReduce(values, values, count, ncclFloat32, ncclSum, nccl.comm, nccl.stream));
    CUDA(cudaStreamSynchronize(nccl.stream));
}

const Transport hvd_nccl = {
    .name = "nccl",
    .average = average,
    .finish = finish,
    .broadcast = broadcast,
};
