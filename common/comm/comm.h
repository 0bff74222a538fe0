// hvd's job and its collective calls. The calls and their meaning are Horovod's (Sergeev and Del
// Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018); below them is
// MPI. What needs a training is in hvd/hvd.h.
//
// A worker is one process of a job that `mpirun -np N` started. Its rank is its number, 0 to N - 1;
// rank 0 is the root. All workers run the same program. All of them make each collective call
// (allreduce, broadcast, ...), in the same order and with the same sizes. The call returns when
// this worker's part is done, so a worker waits for the others.
//
// Before values move, the workers compare the call (agreement.h), in a few microseconds. Where
// function, count, operation, root, model, optimizer or length of training differ, the job ends with
// one error message that names both sides.
//
// When a worker has waited for HVD_STALL_SECONDS (10; 0: never) in a call, hvd's or MPI's own, a
// warning names which ranks wait in which call, and where the others are; it is repeated after
// twice as long, and so on. A slow worker is no error: the job goes on. It ends with status 2 after
// HVD_STALL_SHUTDOWN_SECONDS of waiting (0: never), and at once where workers wait for one that has
// left (the end of main, exit, hvd_shutdown, MPI_Finalize), since such a wait cannot end. Where
// mpirun ends the job by SIGTERM, as after Control-C, a message says so.
//
// These errors make the program exit with one message and status 2: a call before hvd_init or after
// hvd_shutdown (except hvd_shutdown and hvd_group_free); an argument that can't be right, such as
// NULL for values or a rank that is not there; and what MPI refuses of the program's own calls, on
// MPI_COMM_WORLD and on communicators made from it after hvd_init, unless the program has set an
// error handler of its own.
//
// HVD_TIMELINE=FILE.json in the environment of all workers: when the job ends, the root writes when
// each of them did what, for https://ui.perfetto.dev or chrome://tracing: steps, forward and
// backward passes, pieces of the gradients from ready to averaged, waits, loading. The timeline is
// lost where a job ends otherwise than by the end of main, exit(0) or hvd_shutdown.
//
// Between several hosts (simulated ones included) an all-reduce through MPI is hierarchical
// (hierarchical.h) if its data have at least 8 KiB times the number of hosts. Less data use MPI's
// own algorithm. The rule is the same on every worker and in every run. HVD_HIERARCHICAL=1 has all
// use it, 0 none (auto: the rule). NCCL chooses by itself.
//
// Values are floats in the host's memory, or in that of the GPU that this process works on: these
// travel as a copy in the host's memory. A call that has the name of one of Horovod's means the
// same as that one; groups are what Horovod calls process sets.

#ifndef HVDLAB_COMM_H
#define HVDLAB_COMM_H

#include <mpi.h>
#include <stddef.h>
#include "base/types.h"

#pragma GCC visibility push(default) // a step may call what follows

// Joins the job. The first call of main, on every worker; the end of main leaves the job again. A
// program that was started without mpirun is a job of one worker, and prints a note; one with a
// role (ps.h) has no ranks, and exits with an error message.
void hvd_init(void);

// Leaves the job before the end of main. No function of hvd may be called afterwards.
void hvd_shutdown(void);

// This worker's number in the job, 0 to hvd_size() - 1.
USE_RESULT int hvd_rank(void);

// The number of workers in the job.
USE_RESULT int hvd_size(void);

// This worker's number on its machine, 0 to hvd_local_size() - 1: its device's number.
USE_RESULT int hvd_local_rank(void);

// The number of the job's workers on this machine.
USE_RESULT int hvd_local_size(void);

// The operation that an all-reduce applies to the workers' values.
typedef enum { HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX } HvdOp;

// Replaces `values` on every worker by the elementwise average (or sum, minimum, maximum) over all
// workers. A NaN on one of them gives a NaN in the result, whatever the operation. The hierarchical
// all-reduce gives all of them the same bits, and so does Open MPI (MPI only recommends it: 3.1,
// section 5.9.1), so that weights which are equal stay equal. Collective.
void hvd_allreduce(float *values, size_t count, HvdOp op);

// The same for whole numbers, in the host's memory: HVD_SUM, HVD_MIN or HVD_MAX. Collective.
void hvd_allreduce_ints(int *values, size_t count, HvdOp op);

// Gathers the values of all workers, in the order of their ranks, on every one of them. The counts
// may differ. Returns an array of *total floats, in the host's memory, that the caller frees with
// free(). Collective.
float *hvd_allgather(const float *values, size_t count, size_t *total);

// The same for whole numbers, in the host's memory. Where `counts` is not NULL, counts[r] gets the
// number that rank r contributed, for all hvd_size() ranks. Collective.
int *hvd_allgather_ints(const int *values, size_t count, size_t *total, size_t *counts);

// The elementwise sum (or average, minimum, maximum) of all workers' values, of which each worker
// gets a part: `own` gets it, and must not overlap `values`. The parts follow one another in the
// order of the ranks, count / hvd_size() values each, and the first count % hvd_size() of them one
// value more. Returns the length of the worker's own part. In the host's memory. Collective.
size_t hvd_reduce_scatter(const float *values, size_t count, float *own, HvdOp op);

// Overwrites `values` on every worker by those of the worker `root`. Collective.
void hvd_broadcast(float *values, size_t count, int root);

// The same for bytes of any kind, in the host's memory: a text, a struct without pointers.
void hvd_broadcast_bytes(void *bytes, size_t count, int root);

// Waits until every worker has called it. Collective.
void hvd_barrier(void);

// For a worker that has no data left while others have: until all workers have called it, takes
// part in the others' all-reduces with zeros. These are hvd_allreduce by HVD_SUM and HVD_AVERAGE,
// the updates of distributed optimizers, which travel in one piece then, through the host's memory,
// and hvd_metric_average. An average is that of the workers that have not joined (Horovod still
// divides by the number of all). Any other collective of the whole job aborts it with an error
// message, and so do fit(), which compares the workers' plans, and an update by hvd_use_allreduce;
// a group's collective waits for a member that has joined.
//
// The model of a joined worker stays as it is while the others train. Returns, on all workers, the
// rank of the last one to join, for hvd_broadcast_model. (If several join between the same two
// calls: the highest rank.)
int hvd_join(void);

// Averages (or adds up, HVD_SUM) the gradient of an embedding's table over all workers by gathering
// their rows, as Horovod does for TensorFlow's IndexedSlices: the rows of all workers, in the order
// of their ranks, divided by hvd_size(). Nothing is added up: a row that several of them
// contributed is there several times. A worker's contribution grows with the rows that its batch
// named, not with the table. To be freed with sparse_gradient_free. Collective.
SparseGradient hvd_allreduce_sparse(const SparseGradient *own, HvdOp op);

// ---- Groups of workers.

// Some of the workers, with ranks 0 to size - 1. `comm` is for MPI's own calls. A worker that is in
// no group has MPI_COMM_NULL, rank -1, size 0.
typedef struct {
    MPI_Comm comm;
    int rank, size;
} HvdGroup;

// All workers. Nothing has to be freed.
HvdGroup hvd_world(void);

// The workers that give the same color, a number from 0, in the order of their ranks; one that
// gives a negative number is in no group. Called by all workers. To be freed with hvd_group_free.
HvdGroup hvd_group_split(int color);

// The `count` workers with these ranks, in the order of the list. All workers call it, with the
// same list, those that are not in it too. To be freed with hvd_group_free.
HvdGroup hvd_group_of_ranks(const int *ranks, int count);

// The collectives among the workers of a group, each of which calls them: as the functions for all
// workers. hvd_group_allreduce replaces `values`, on every worker of the group, by their average,
// sum, minimum or maximum over the group (`op`). `root` is a rank in the group. A worker that is not
// in the group makes the program exit with an error message. If they disagree, the error message
// numbers ranks as the job does.
void hvd_group_allreduce(HvdGroup group, float *values, size_t count, HvdOp op);
float *hvd_group_allgather(HvdGroup group, const float *values, size_t count, size_t *total);
int *hvd_group_allgather_ints(HvdGroup group, const int *values, size_t count, size_t *total,
                              size_t *counts);
void hvd_group_broadcast(HvdGroup group, float *values, size_t count, int root);
void hvd_group_barrier(HvdGroup group);

// Frees the group and makes it empty. Called by all of its workers. Does nothing to an empty group;
// the world becomes empty, and nothing is freed.
void hvd_group_free(HvdGroup *group);

// ---- An all-reduce of the program's own.

// A function that replaces values[0 ... count - 1], on every worker of the communicator, by their
// sum over all workers. `values` lie in the host's memory; the main thread calls it.
typedef void (*HvdAllreduce)(float *values, size_t count, MPI_Comm comm);

// From now on distributed optimizers sum the gradients with `allreduce`, piece after piece, and
// divide the sums themselves; NULL: with the library's all-reduce again. Gradients on a GPU are
// passed as a copy in the host's memory. All workers must call it, before the same update; with one
// worker nothing is added up. `comm` is used for nothing else while the function runs.
void hvd_use_allreduce(HvdAllreduce allreduce);

#pragma GCC visibility pop

#endif
