// An all-reduce around a ring for large arrays, beside MPI's own; then a small network, trained with
// it on Fashion-MNIST.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

#if STEP >= 1
// fast_ring: floats in a piece: few messages, and yet two pieces fit into a core's cache.
enum { PIECE = 1 << 16 };

static int length_of(int piece, int count)
{
    return count - piece * PIECE < PIECE ? count - piece * PIECE : PIECE;
}

#endif
// Sends `out_count` values to the right, and receives `in_count` from the left. These are added to
// the values at `in`, or take their place.
static void hop(const float *out, int out_count, float *in, int in_count, bool add, float *arriving,
                int left, int right, MPI_Comm comm)
{
#if STEP >= 1
    // fast_ring: begin to send all pieces. The last one is shorter, perhaps empty.
    int out_pieces = out_count / PIECE + 1, in_pieces = in_count / PIECE + 1;
    MPI_Request going[out_pieces], coming[2];
    for (int p = 0; p < out_pieces; p++)
        MPI_Isend(out + p * PIECE, length_of(p, out_count), MPI_FLOAT, right, 0, comm, &going[p]);
    // fast_ring: while piece p is added up, piece p + 1 arrives: so there is room for two.
    float *room = add ? arriving : in;
    int rooms = add ? 2 : in_pieces;
    MPI_Irecv(room, length_of(0, in_count), MPI_FLOAT, left, 0, comm, &coming[0]);
    for (int p = 0; p < in_pieces; p++) {
        if (p + 1 < in_pieces)
            MPI_Irecv(room + (p + 1) % rooms * PIECE, length_of(p + 1, in_count), MPI_FLOAT, left,
                      0, comm, &coming[(p + 1) % 2]);
        MPI_Wait(&coming[p % 2], MPI_STATUS_IGNORE);
        for (int i = 0; add && i < length_of(p, in_count); i++)
            in[p * PIECE + i] += room[p % 2 * PIECE + i];
    }
    MPI_Waitall(out_pieces, going, MPI_STATUSES_IGNORE);
#else
    // TODO: fast_ring: while the values travel nothing is added up, and while they are added up
    // nothing travels. Cut them into pieces, so that the next piece travels while one is added up.
    MPI_Sendrecv(out, out_count, MPI_FLOAT, right, 0, add ? arriving : in, in_count, MPI_FLOAT, left,
                 0, comm, MPI_STATUS_IGNORE);
    for (int i = 0; add && i < in_count; i++)
        in[i] += arriving[i];
#endif
}

// Replaces values[0 ... count - 1], on every worker, by their sum over all workers: the ring of the
// exercise before, whose two rounds differ in what a hop does.
static void ring(float *values, size_t count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    size_t begin[size + 1];
    for (int c = 0; c <= size; c++)
        begin[c] = count * (size_t)c / (size_t)size;
    float *arriving = malloc(sizeof(float) * (count / (size_t)size + 1));
    for (int h = 0; h < 2 * (size - 1); h++) {
        int first = h < size - 1 ? rank : rank + 1, round = h % (size - 1);
        int out = (first - round + size) % size, in = (first - round - 1 + size) % size;
        hop(values + begin[out], (int)(begin[out + 1] - begin[out]), values + begin[in],
            (int)(begin[in + 1] - begin[in]), h < size - 1, arriving, left, right, comm);
    }
    free(arriving);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    // On arrays of many sizes: are the sums right, how long do they take? Then beside MPI's own.
    sweep_allreduce("fast_ring", ring, (size_t)args.max_count);
    sweep_compare("fast_ring", ring, (size_t)args.max_count);

    hvd_use_allreduce(ring);
    train_lenet(&args);
    return 0;
}
