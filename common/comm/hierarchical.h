// Inside hvd: an all-reduce in two levels, for ranks on several hosts. Those of a host, who share
// memory, add their values up, each a share of them (a reduce-scatter); of each share the sums go
// around a ring, one rank of every host; then a host's ranks hand each other the results (an
// all-gather).
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

// Whether an all-reduce of so many bytes among the ranks of a communicator goes by two levels (the
// rule is in hvd.h). All of them must ask, and they get one answer.
bool two_levels_pay(size_t bytes, MPI_Comm comm);

// What is made of the values: `op` must not mind the order in which it comes to them. Floats are
// then multiplied by `factor`, which is 1 for other types.
typedef struct {
    MPI_Datatype type;
    MPI_Op op;
    float factor;
} Reduction;

// Begins to replace the values by what all ranks' are reduced to: the same bits on all of them, and
// in every run of a job that is laid out alike. They must stay where they are until
// two_levels_finish has been called; what has been begun on a communicator before then is finished
// with it. Collective, as all that follows.
void two_levels_begin(void *values, size_t count, Reduction reduction, MPI_Comm comm);
// Lets what was begun go on.
void two_levels_progress(MPI_Comm comm);
void two_levels_finish(MPI_Comm comm);

// Both in one, with less memory.
void two_levels_allreduce(void *values, size_t count, Reduction reduction, MPI_Comm comm);

#endif
