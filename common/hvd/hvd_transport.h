// Inside hvd: the ways on which a model's arenas (gradients, weights, statistics) travel between
// the ranks. Which one is taken depends on where the arenas lie:
//
//     the host's memory                     MPI                                   hvd_mpi.c
//     GPUs, each rank has one of its own    NCCL                                  hvd_nccl.c
//     GPUs, otherwise                       MPI, straight from the GPU's memory   hvd_cuda.c
//                                           where Open MPI can, else by copies
//
// HVD_TRANSPORT=nccl or mpi insists on one (auto: the above). HVD_COMPRESSION=bf16 sends gradients
// as bfloat16, half the bytes: they are rounded, added up in bfloat16, and divided as floats.

#ifndef HVDLAB_HVD_TRANSPORT_H
#define HVDLAB_HVD_TRANSPORT_H

#include <mpi.h>
#include "hvd/hvd.h"

typedef struct {
    const char *name; // as traces say it

    // Begins to average gradients[offset ... offset + count - 1] over all ranks. They are complete
    // once the device has done all that it was told to do so far. Offsets are multiples of
    // HVD_ALIGNMENT.
    void (*average)(const Parameters *parameters, size_t offset, size_t count);
    // Lets what was begun go on; NULL where it does so by itself.
    void (*progress)(void);
    // What the device is told to do from now on finds the averages of all that was begun.
    void (*finish)(const Parameters *parameters);
    // Overwrites `count` values of an arena, on every rank, by those of the rank `root`.
    void (*broadcast)(float *values, size_t count, int root);
} Transport;

#define HVD_ALIGNMENT ((size_t)16) // floats

// HVD_TRANSPORT.
typedef enum { WISH_AUTO, WISH_NCCL, WISH_MPI } HvdWish;
HvdWish hvd_wish(void);
// Ends the program with one line where HVD_TRANSPORT or HVD_COMPRESSION is none of its values.
void hvd_check_settings(void);
// HVD_COMPRESSION=bf16?
bool hvd_compresses(void);

// True where all ranks bring the same value. Collective.
bool is_same_everywhere(double value, MPI_Comm comm);

// ---- MPI (hvd_mpi.c).

extern const Transport hvd_mpi;

// As hvd_allreduce, and as what hvd_mpi's average does with HVD_COMPRESSION. Return when it is
// done.
void mpi_allreduce(float *values, size_t count, HvdOp op, MPI_Comm comm);
void mpi_average_gradients(float *values, size_t count);

// `count` as MPI takes it; ends the program where it is too large.
int mpi_count(size_t count);

// ---- With CUDA only.

// MPI from and to a GPU: by copies through the host's memory, or straight.
extern const Transport hvd_staged, hvd_cuda_aware;
// Whether Open MPI reads a GPU's memory.
bool hvd_mpi_is_cuda_aware(void);

// Two ranks that share a GPU; false where there are none.
bool hvd_ranks_share_gpu(MPI_Comm comm, int ranks[2]);

extern const Transport hvd_nccl;
// Joins the ranks; NULL, or why it can't be, the same on all ranks.
const char *hvd_nccl_start(MPI_Comm comm);
void hvd_nccl_stop(void);

#endif
