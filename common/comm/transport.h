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
    // once the device has done all that it was told to do so far. Offsets are multiples of
    // ARENA_ALIGNMENT.
    void (*average)(const Parameters *parameters, size_t offset, size_t count);
    // Lets what was begun go on; NULL where it does so by itself.
    void (*progress)(void);
    // What the device is told to do from now on finds the averages of all that was begun.
    void (*finish)(const Parameters *parameters);
    // Overwrites `count` values of an arena, on every rank, by those of the rank `root`.
    void (*broadcast)(float *values, size_t count, int root);
} Transport;

// HVD_TRANSPORT.
typedef enum { TRANSPORT_AUTO, TRANSPORT_NCCL, TRANSPORT_MPI } TransportChoice;
TransportChoice transport_choice(void);
// Exits with an error message where HVD_TRANSPORT or HVD_COMPRESSION is none of its values.
void hvd_check_settings(void);
// HVD_HIERARCHICAL=auto, 0 or 1 (hierarchical.h).
typedef enum { HIERARCHY_AUTO, HIERARCHY_NEVER, HIERARCHY_ALWAYS } HierarchyChoice;
HierarchyChoice hierarchy_choice(void);
// HVD_COMPRESSION=bf16? Like the other two it is read once.
bool hvd_compresses(void);

// ---- For single updates (transport_own.c).

// What hvd_use_allreduce was told, or NULL; the average by that function; and the transport that
// takes it, in the host's memory.
HvdAllreduce hvd_own_allreduce(void);
void hvd_own_average(float *values, size_t count);
extern const Transport hvd_own;

// While only `working` ranks contribute gradients, and those that have joined (hvd_join) zeros.
// Broadcasts nothing.
const Transport *hvd_joined(int working);

// ---- MPI (transport_mpi.c).

extern const Transport hvd_mpi;

// As hvd_allreduce, over the ranks of a communicator; and what hvd_mpi's average does with
// HVD_COMPRESSION. Return when it is done.
void hvd_mpi_allreduce(float *values, size_t count, HvdOp op, MPI_Comm comm);
void hvd_mpi_average_gradients(float *values, size_t count);

// Where some ranks bring zeros (hvd_join): the sum over all, divided by the number of the others;
// and the division alone.
void hvd_mpi_average_of_working(float *values, size_t count, int working, MPI_Comm comm);
void hvd_divide(float *values, size_t count, int by);

// As hvd_reduce_scatter, over the ranks of a communicator; in the host's memory.
void hvd_mpi_reduce_scatter(const float *values, size_t count, float *own, HvdOp op, MPI_Comm comm);

// `count` as MPI takes it; exits where it is too large.
int hvd_mpi_count(size_t count);

// ---- With CUDA only.

// MPI, or the function of hvd_use_allreduce, from and to a GPU by copies through the host's memory;
// MPI straight.
IN_LIBRARY_ALL extern const Transport hvd_staged, hvd_cuda_aware;
// Whether Open MPI reads a GPU's memory.
IN_LIBRARY_ALL bool hvd_mpi_is_cuda_aware(void);
// Whether the values lie in a GPU's memory. False for NULL, and before the
// calling thread works on a GPU.
IN_LIBRARY_ALL bool hvd_is_on_gpu(const void *values);

// Two ranks that share a GPU; false where there are none.
IN_LIBRARY_ALL bool hvd_ranks_share_gpu(MPI_Comm comm, int ranks[2]);

IN_LIBRARY_ALL extern const Transport hvd_nccl;
// Joins the ranks; NULL, or why it can't be, the same on all ranks.
IN_LIBRARY_ALL const char *hvd_nccl_start(MPI_Comm comm);
IN_LIBRARY_ALL void hvd_nccl_stop(void);
// Replaces values in the GPU's memory by their sums over all ranks; they are there when it returns.
IN_LIBRARY_ALL void hvd_nccl_sum(float *values, size_t count);

#endif
