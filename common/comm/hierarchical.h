// Inside hvd: the hierarchical all-reduce, for ranks on several hosts. The ranks of a host, which
// share memory, sum their values, each rank a share of them (a reduce-scatter). The sums of each
// share go around a ring with one rank of every host. Then the ranks of a host exchange the results
// (an all-gather). There are as many shares as the host with the fewest ranks has ranks.
//
// With H hosts each link carries 2 (H - 1) / H of the data each way, the minimum, wherever the ranks
// are (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
// 2009), in 2 (H - 1) messages one after another. MPI's own algorithm for little data sends log2(N)
// messages for N ranks, each with all the data. With time = latency + bytes / bandwidth, the ring is
// faster where a part of the data is larger than latency * bandwidth: 6 KB on Ethernet of 1 Gbit/s
// and 50 us, 31 KB at 10 Gbit/s and 25 us. The slower link decides, since a wrong choice on the
// faster one costs only microseconds.
//
// Between hosts the ring goes on in the background, whenever MPI is called. Its messages are our
// own, since for MPI_Iallreduce Open MPI 4.1 takes a tree where the values are summed up in place,
// with twice the data on the busiest link of four hosts. Within a host nothing is gained by doing
// two things at once: the cores that would add up are those that compute.

#ifndef HVDLAB_HIERARCHICAL_H
#define HVDLAB_HIERARCHICAL_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

// True if an all-reduce of so many bytes among the ranks of a communicator is hierarchical (the rule
// is in comm.h). All of them must ask, and get the same answer.
bool hierarchical_pays(size_t bytes, MPI_Comm comm);

// The reduction: `op` must be commutative. Floats are then multiplied by `factor`, which is 1 for
// other types.
typedef struct {
    MPI_Datatype type;
    MPI_Op op;
    float factor;
} Reduction;

// Begins to replace the values by the reduction over all ranks: the same bits on all of them, and
// in every run of a job with the same layout. The values must not move before hierarchical_finish,
// which finishes everything begun on the communicator. Collective, as the functions below.
void hierarchical_begin(void *values, size_t count, Reduction reduction, MPI_Comm comm);
// Makes progress with what was begun.
void hierarchical_progress(MPI_Comm comm);
void hierarchical_finish(MPI_Comm comm);

// Both in one, with less memory.
void hierarchical_allreduce(void *values, size_t count, Reduction reduction, MPI_Comm comm);

#endif
