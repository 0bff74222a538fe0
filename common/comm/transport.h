// Inside hvd: the ways on which a model's arenas (gradients, weights, statistics) travel between
// the ranks. Which one is taken depends on where the arenas lie:
//
//     the host's memory                     MPI                                   transport_mpi.c
//     GPUs, each rank has one of its own    NCCL                                  transport_nccl.c
//     GPUs, otherwise                       MPI, straight from the GPU's memory   transport_cuda.c
//                                           where Open MPI can, else by copies
//
// Where hvd_use_allreduce brings an all-reduce of the program's own, it takes MPI's place: in the
// host's memory, or by copies. HVD_TRANSPORT=nccl or mpi insists on one (auto: the above).
// HVD_COMPRESSION=bf16 sends gradients as bfloat16, half the bytes: they are rounded, added up in
// bfloat16, and divided as floats. Where ranks are on several hosts, MPI's way is two levels
// (hierarchical.h), in the host's memory: what lies in GPUs travels by copies then.

#ifndef HVDLAB_TRANSPORT_H
#define HVDLAB_TRANSPORT_H

#include <mpi.h>
#include "backend/parameters.h"
#include "comm/comm.h"

typedef struct {
    const char *name; // as traces say it

    // Begins to average gradients[offset ... offset + count - 1] over all ranks. They are complete
    // after the work queued on the device so far. `offset`: a multiple of ARENA_ALIGNMENT.
    void (*average)(const Parameters *parameters, size_t offset, size_t count);
    // Makes progress; NULL: not needed.
    void (*progress)(void);
    // Work that is queued from now on sees the averages.
    void (*finish)(const Parameters *parameters);
    // Overwrites `count` values of an arena, on every rank, by those of the rank `root`.
    void (*broadcast)(float *values, size_t count, int root);
} Transport;

// HVD_TRANSPORT.
typedef enum { TRANSPORT_AUTO, TRANSPORT_NCCL, TRANSPORT_MPI } TransportChoice;
TransportChoice transport_choice(void);
// Exits with an error message if one of these three variables is invalid.
void hvd_check_settings(void);
// HVD_HIERARCHICAL=auto, 0 or 1 (hierarchical.h).
typedef enum { HIERARCHY_AUTO, HIERARCHY_NEVER, HIERARCHY_ALWAYS } HierarchyChoice;
HierarchyChoice hierarchy_choice(void);
// HVD_COMPRESSION=bf16. Read once, like the others.
bool hvd_compresses(void);

// ---- Chosen for each update (transport_own.c).

// The function given to hvd_use_allreduce, or NULL; an average by it; the transport that uses it,
// in the host's memory.
HvdAllreduce hvd_own_allreduce(void);
void hvd_own_average(float *values, size_t count);
extern const Transport hvd_own;

// The transport while `working` ranks contribute gradients and joined ranks (hvd_join) zeros. No
// broadcast.
const Transport *hvd_joined(int working);

// ---- MPI (transport_mpi.c).

extern const Transport hvd_mpi;

// hvd_allreduce over a communicator; the average of gradients, compressed if HVD_COMPRESSION says
// so. Both wait.
void hvd_mpi_allreduce(float *values, size_t count, HvdOp op, MPI_Comm comm);
void hvd_mpi_average_gradients(float *values, size_t count);

// With ranks that contribute zeros (hvd_join): the sum over all ranks, divided by `working`; the
// division alone.
void hvd_mpi_average_of_working(float *values, size_t count, int working, MPI_Comm comm);
void hvd_divide(float *values, size_t count, int by);

// As hvd_reduce_scatter, over the ranks of a communicator; in the host's memory.
void hvd_mpi_reduce_scatter(const float *values, size_t count, float *own, HvdOp op, MPI_Comm comm);

// `count` as MPI takes it; exits where it is too large.
int hvd_mpi_count(size_t count);

// ---- With CUDA only.

// On GPUs: MPI or the program's all-reduce with copies in the host's memory; CUDA-aware MPI.
IN_LIBRARY_ALL extern const Transport hvd_staged, hvd_cuda_aware;
// Whether Open MPI reads a GPU's memory.
IN_LIBRARY_ALL bool hvd_mpi_is_cuda_aware(void);
// Whether the values lie in a GPU's memory. False for NULL, and before the
// calling thread works on a GPU.
IN_LIBRARY_ALL bool hvd_is_on_gpu(const void *values);

// Two ranks that share a GPU; false where there are none.
IN_LIBRARY_ALL bool hvd_ranks_share_gpu(MPI_Comm comm, int ranks[2]);

IN_LIBRARY_ALL extern const Transport hvd_nccl;
// Starts NCCL. NULL, or the error, the same on all ranks.
IN_LIBRARY_ALL const char *hvd_nccl_start(MPI_Comm comm);
IN_LIBRARY_ALL void hvd_nccl_stop(void);
// Replaces values in the GPU's memory by their sums over all ranks; they are there when it returns.
IN_LIBRARY_ALL void hvd_nccl_sum(float *values, size_t count);

#endif
