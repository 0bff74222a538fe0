// The transport between GPUs without NCCL: MPI. A CUDA-aware Open MPI reads the arenas in GPU
// memory; otherwise they are copied to the host, on a stream of their own. In both cases the host
// first queues the whole backward pass, then waits for each piece in turn and sends it while the
// GPU computes the next ones.

#include "comm/transport.h"

#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "run/device.h"
#include "cuda/cuda_device.h"
#include "cuda/kernels.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/world.h"
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

bool hvd_mpi_is_cuda_aware(void)
{
#ifdef OMPI_HAVE_MPI_EXT_CUDA
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

bool hvd_is_on_gpu(const void *values)
{
    struct cudaPointerAttributes attributes;
    // A call of the runtime before the device is chosen would allocate memory on GPU 0.
    if (!values || !device_is_started() || !device_is_gpu())
        return false;
    CUDA(cudaPointerGetAttributes(&attributes, values));
    return attributes.type == cudaMemoryTypeDevice;
}

bool hvd_ranks_share_gpu(MPI_Comm comm, int ranks[2])
{
    int size = world_size();
    struct cudaDeviceProp properties;
    CUDA(cudaGetDeviceProperties(&properties, device_current()->gpu_number));
    cudaUUID_t *all = allocate((size_t)size, sizeof *all);
    MPI_Allgather(&properties.uuid, sizeof *all, MPI_BYTE, all, sizeof *all, MPI_BYTE, comm);
    bool shared = false;
    for (int a = 0; !shared && a < size; a++)
        for (int b = a + 1; !shared && b < size; b++) {
            shared = memcmp(&all[a], &all[b], sizeof *all) == 0;
            ranks[0] = a;
            ranks[1] = b;
        }
    free(all);
    return shared;
}

// A piece of the gradients to send.
typedef struct {
    float *values; // on the GPU
    float *copy;   // in the host's memory, where it is staged
    size_t count;
    cudaEvent_t ready; // complete, or staged
} StagedPiece;

static struct {
    cudaStream_t copies; // beside the one that computes
    float *host;         // as long as the arena, of memory that the GPU can reach
    size_t length;
    StagedPiece *pieces; // the events stay
    int count, capacity;
} waiting;

static StagedPiece *new_piece(float *values, size_t count)
{
    if (waiting.count == waiting.capacity) {
        waiting.pieces =
            enlarge(waiting.pieces, (size_t)waiting.capacity + 1, sizeof *waiting.pieces);
        waiting.pieces[waiting.capacity] = (StagedPiece){0};
        CUDA(cudaEventCreateWithFlags(&waiting.pieces[waiting.capacity].ready,
                                      cudaEventDisableTiming));
        waiting.capacity++;
    }
    StagedPiece *piece = &waiting.pieces[waiting.count++];
    piece->values = values;
    piece->count = count;
    return piece;
}

// Memory of the host for a whole arena of gradients.
static float *staging_memory(size_t length)
{
    if (!waiting.copies)
        CUDA(cudaStreamCreateWithFlags(&waiting.copies, cudaStreamNonBlocking));
    if (waiting.length < length) {
        CHECK(waiting.count == 0); // nothing is on its way to the old one
        if (waiting.host)
            CUDA(cudaFreeHost(waiting.host));
        waiting.host = cuda_allocate_host(length * sizeof(float));
        waiting.length = length;
    }
    return waiting.host;
}

// ---- By copies.

static void staged_average(const Parameters *parameters, size_t offset, size_t count)
{
    float *host = staging_memory(parameters->length);
    StagedPiece *piece = new_piece(parameters->gradients + offset, count);
    piece->copy = host + offset;
    cuda_stream_wait(waiting.copies, cuda_stream());
    CUDA(cudaMemcpyAsync(piece->copy, piece->values, count * sizeof(float), cudaMemcpyDeviceToHost,
                         waiting.copies));
    CUDA(cudaEventRecord(piece->ready, waiting.copies));
}

static void staged_finish(const Parameters *parameters)
{
    (void)parameters;
    for (int i = 0; i < waiting.count; i++) {
        const StagedPiece *piece = &waiting.pieces[i];
        CUDA(cudaEventSynchronize(piece->ready));
        if (hvd_own_allreduce())
            hvd_own_average(piece->copy, piece->count);
        else
            hvd_mpi_average_gradients(piece->copy, piece->count);
        CUDA(cudaMemcpyAsync(piece->values, piece->copy, piece->count * sizeof(float),
                             cudaMemcpyHostToDevice, waiting.copies));
    }
    waiting.count = 0;
    cuda_stream_wait(cuda_stream(), waiting.copies);
}

static void staged_broadcast(float *values, size_t count, int root)
{
    float *copy = allocate(count, sizeof *copy);
    Device *device = device_current();
    if (world_rank() == root)
        backend_of(device)->read(device, copy, values, count * sizeof *copy);
    hvd_mpi.broadcast(copy, count, root);
    if (world_rank() != root)
        backend_of(device)->write(device, values, copy, count * sizeof *copy);
    free(copy);
}

const Transport hvd_staged = {
    .name = "mpi, copies of the GPU's memory",
    .average = staged_average,
    .finish = staged_finish,
    .broadcast = staged_broadcast,
};

// ---- Direct.

static void aware_average(const Parameters *parameters, size_t offset, size_t count)
{
    const StagedPiece *piece = new_piece(parameters->gradients + offset, count);
    CUDA(cudaEventRecord(piece->ready, cuda_stream()));
}

static void aware_finish(const Parameters *parameters)
{
    for (int i = 0; i < waiting.count; i++) {
        const StagedPiece *piece = &waiting.pieces[i];
        CUDA(cudaEventSynchronize(piece->ready));
        MPI_Allreduce(MPI_IN_PLACE, piece->values, hvd_mpi_count(piece->count), MPI_FLOAT, MPI_SUM,
                      world_comm(WORLD_GRADIENTS));
    }
    waiting.count = 0;
    launch_scale(parameters->gradients, ELEMENT_FLOAT, parameters->gradients, parameters->length,
                 1.0f / (float)world_size());
}

static void aware_broadcast(float *values, size_t count, int root)
{
    CUDA(cudaStreamSynchronize(cuda_stream()));
    hvd_mpi.broadcast(values, count, root);
}

const Transport hvd_cuda_aware = {
    .name = "mpi, the GPU's memory",
    .average = aware_average,
    .finish = aware_finish,
    .broadcast = aware_broadcast,
};
