// Inside hvd: an all-reduce in two levels, for ranks on several hosts. The ranks of a host, which
// share memory, sum their values, each rank a part of them (a reduce-scatter). The sums of each
// part go around a ring with one rank of every host. Then the ranks of a host exchange the results
// (an all-gather).
//
// So a host's link carries 2 (H - 1) / H of the data each way, H being the number of hosts, however
// many ranks are on it and however they were dealt to the hosts: no all-reduce can do with less
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
// 2009). That several ranks of a host take a share each, instead of one for all of them, is the
// same for the link, but divides the copying and adding among them. There are as many shares as the
// host with the fewest ranks has. A flat ring passes the link as often as it changes hosts, which
// is at each hop where ranks were dealt out in turn.
//
// Between hosts the ring goes on in the background, whenever MPI is called. It is our own, of
// messages: what MPI_Iallreduce does is MPI's to choose, and Open MPI 4.1 takes a tree where the
// values are summed up in place, with twice the data on the busiest link of four hosts, where a
// ring has 1.5 times. Within a host nothing is gained by doing two things at once: the cores that
// would add up are those that compute.

#ifndef HVDLAB_HIERARCHICAL_H
#define HVDLAB_HIERARCHICAL_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

// True if an all-reduce of so many bytes among the ranks of a communicator is hierarchical (the
// rule is in comm.h). All of them must ask, and get the same answer.
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
