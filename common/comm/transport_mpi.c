// The transport between CPUs: MPI on the arenas themselves; and the all-reduce of floats in host
// memory, which hvd's public calls use too.

#include "comm/transport.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/bfloat16.h"
#include "comm/hierarchical.h"
#include "observe/timeline.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/share.h"
#include "comm/world.h"

int hvd_mpi_count(size_t count)
{
    if (count > INT_MAX)
        die("hvd: %zu values are more than MPI takes at once (%d)", count, INT_MAX);
    return (int)count;
}

// ---- All-reduce, of a buffer piece by piece.

// b = (a + b) / 2. The division costs nothing here; afterwards it would be another pass over
// memory.
static inline __attribute__((always_inline)) void halve_sum(const float *restrict a,
                                                            float *restrict b, int count)
{
    for (int i = 0; i < count; i++)
        b[i] = 0.5f * (a[i] + b[i]);
}

static void average_two(void *a, void *b, int *count, MPI_Datatype *type)
{
    (void)type;
    halve_sum(a, b, *count);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void average_two_avx2(void *a, void *b, int *count,
                                                             MPI_Datatype *type)
{
    (void)type;
    halve_sum(a, b, *count);
}
#define BEST_AVERAGE_TWO (__builtin_cpu_supports("avx2") ? average_two_avx2 : average_two)
#else
#define BEST_AVERAGE_TWO average_two
#endif

// b = the smaller, or larger, of a and b. With MPI's own operations the order of the two decides
// whether a NaN is kept; here it is always kept, with the same bits.
static void smaller(void *a, void *b, int *count, MPI_Datatype *type)
{
    (void)type;
    const float *from = a;
    float *to = b;
    for (int i = 0; i < *count; i++)
        to[i] = from[i] < to[i] ? from[i] : from[i] >= to[i] ? to[i] : NAN;
}

static void larger(void *a, void *b, int *count, MPI_Datatype *type)
{
    (void)type;
    const float *from = a;
    float *to = b;
    for (int i = 0; i < *count; i++)
        to[i] = from[i] > to[i] ? from[i] : from[i] <= to[i] ? to[i] : NAN;
}

static MPI_Op smallest_or_largest(HvdOp op)
{
    static MPI_Op smallest = MPI_OP_NULL, largest = MPI_OP_NULL;
    if (smallest == MPI_OP_NULL) {
        MPI_Op_create(smaller, 1, &smallest);
        MPI_Op_create(larger, 1, &largest);
    }
    return op == HVD_MIN ? smallest : largest;
}

// MPI has no average. For two ranks our own operation averages; for more finish_average() divides
// MPI's sum.
static MPI_Op mpi_op(HvdOp op, int size)
{
    if (op == HVD_MIN || op == HVD_MAX)
        return smallest_or_largest(op);
    static MPI_Op average_of_two = MPI_OP_NULL;
    if (op == HVD_AVERAGE && size == 2 && average_of_two == MPI_OP_NULL)
        MPI_Op_create(BEST_AVERAGE_TWO, 1, &average_of_two);
    if (op == HVD_AVERAGE && size == 2)
        return average_of_two;
    return MPI_SUM;
}

void hvd_divide(float *values, size_t count, int by)
{
    float factor = 1.0f / (float)by;
    for (size_t i = 0; i < count; i++)
        values[i] *= factor;
}

static void finish_average(float *values, size_t count, int size)
{
    if (size > 2)
        hvd_divide(values, count, size);
}

// Hierarchical: a sum, since each level would average.
static Reduction reduction_of(HvdOp op, int size, bool hierarchical)
{
    if (op == HVD_AVERAGE && hierarchical)
        return (Reduction){MPI_FLOAT, MPI_SUM, 1.0f / (float)size};
    return (Reduction){MPI_FLOAT, mpi_op(op, size), 1};
}

// Within a machine, blocks that fit into the cache make 64 MiB three times faster; on a network
// they cost nothing.
#define BLOCK ((size_t)1 << 20) // floats

static size_t block_length(size_t left)
{
    return left < BLOCK ? left : BLOCK;
}

void hvd_mpi_allreduce(float *values, size_t count, HvdOp op, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    if (hierarchical_pays(count * sizeof *values, comm)) {
        hierarchical_allreduce(values, count, reduction_of(op, size, true), comm);
        return;
    }
    for (size_t begin = 0; begin < count; begin += BLOCK) {
        size_t length = block_length(count - begin);
        MPI_Allreduce(MPI_IN_PLACE, values + begin, (int)length, MPI_FLOAT, mpi_op(op, size), comm);
        if (op == HVD_AVERAGE)
            finish_average(values + begin, length, size);
    }
}

void hvd_mpi_average_of_working(float *values, size_t count, int working, MPI_Comm comm)
{
    hvd_mpi_allreduce(values, count, HVD_SUM, comm);
    hvd_divide(values, count, working);
}

void hvd_mpi_reduce_scatter(const float *values, size_t count, float *own, HvdOp op, MPI_Comm comm)
{
    int size, rank;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    hvd_mpi_count(count); // Open MPI adds the shares up in an int
    int *counts = allocate((size_t)size, sizeof *counts);
    for (int r = 0; r < size; r++)
        counts[r] = hvd_mpi_count(share_of(count, r, size).count);
    MPI_Reduce_scatter(values, own, counts, MPI_FLOAT, mpi_op(op, size), comm);
    if (op == HVD_AVERAGE)
        finish_average(own, (size_t)counts[rank], size);
    free(counts);
}

// ---- The same in bfloat16.

static void compress(Bfloat16 *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = bfloat16_of(from[i]);
}

// The average, from the sum.
static void expand_average(float *to, const Bfloat16 *from, size_t count)
{
    float factor = 1.0f / (float)world_size();
    for (size_t i = 0; i < count; i++)
        to[i] = factor * bfloat16_value(from[i]);
}

static void add_bf16(void *a, void *b, int *count, MPI_Datatype *type)
{
    (void)type;
    const Bfloat16 *from = a;
    Bfloat16 *to = b;
    for (int i = 0; i < *count; i++)
        to[i] = bfloat16_of(bfloat16_value(from[i]) + bfloat16_value(to[i]));
}

static MPI_Op bf16_sum(void)
{
    static MPI_Op sum = MPI_OP_NULL;
    if (sum == MPI_OP_NULL)
        MPI_Op_create(add_bf16, 1, &sum);
    return sum;
}

static Reduction bf16_reduction(void)
{
    return (Reduction){MPI_UINT16_T, bf16_sum(), 1};
}

static void average_as_bf16(float *values, size_t count, MPI_Comm comm)
{
    static Bfloat16 halves[BLOCK];
    for (size_t begin = 0; begin < count; begin += BLOCK) {
        size_t length = block_length(count - begin);
        compress(halves, values + begin, length);
        if (hierarchical_pays(length * sizeof *halves, comm))
            hierarchical_allreduce(halves, length, bf16_reduction(), comm);
        else
            MPI_Allreduce(MPI_IN_PLACE, halves, (int)length, MPI_UINT16_T, bf16_sum(), comm);
        expand_average(values + begin, halves, length);
    }
}

void hvd_mpi_average_gradients(float *values, size_t count)
{
    if (hvd_compresses())
        average_as_bf16(values, count, world_comm(WORLD_GRADIENTS));
    else
        hvd_mpi_allreduce(values, count, HVD_AVERAGE, world_comm(WORLD_GRADIENTS));
}

// ---- The transport.

// A piece of the gradients that is under way. The pieces are the same in every step, so the memory
// stays.
typedef struct {
    float *values;
    size_t count;
    bool compressed, hierarchical;
    Bfloat16 *halves;
    size_t length; // room in `halves`
} SentPiece;

static struct {
    SentPiece *pieces;
    MPI_Request *requests; // one for each piece
    int count, capacity;
} under_way;

static SentPiece *next_piece(void)
{
    if (under_way.count == under_way.capacity) {
        int capacity = 2 * under_way.capacity + 8;
        under_way.pieces = enlarge(under_way.pieces, (size_t)capacity, sizeof(SentPiece));
        under_way.requests = enlarge(under_way.requests, (size_t)capacity, sizeof(MPI_Request));
        memset(&under_way.pieces[under_way.capacity], 0,
               (size_t)(capacity - under_way.capacity) * sizeof(SentPiece));
        under_way.capacity = capacity;
    }
    return &under_way.pieces[under_way.count++];
}

static void compress_piece(SentPiece *piece)
{
    if (piece->length < piece->count) {
        free(piece->halves);
        piece->halves = allocate(piece->count, sizeof *piece->halves);
        piece->length = piece->count;
    }
    compress(piece->halves, piece->values, piece->count);
}

static void begin_average(float *values, size_t count)
{
    SentPiece *piece = next_piece();
    MPI_Request *request = &under_way.requests[under_way.count - 1];
    MPI_Comm comm = world_comm(WORLD_GRADIENTS);
    piece->values = values;
    piece->count = count;
    piece->compressed = hvd_compresses();
    if (piece->compressed)
        compress_piece(piece);
    void *sent = piece->compressed ? (void *)piece->halves : values;
    size_t bytes = count * (piece->compressed ? sizeof *piece->halves : sizeof *values);
    piece->hierarchical = hierarchical_pays(bytes, comm);
    Reduction reduction = piece->compressed
                              ? bf16_reduction()
                              : reduction_of(HVD_AVERAGE, world_size(), piece->hierarchical);
    *request = MPI_REQUEST_NULL;
    if (piece->hierarchical)
        hierarchical_begin(sent, count, reduction, comm);
    else
        MPI_Iallreduce(MPI_IN_PLACE, sent, hvd_mpi_count(count), reduction.type, reduction.op, comm,
                       request);
}

// On one machine the cores that would move the gradients compute them: overlap gains nothing.
static void average(const Parameters *parameters, size_t offset, size_t count)
{
    if (world_spans_hosts())
        begin_average(parameters->gradients + offset, count);
    else {
        hvd_mpi_average_gradients(parameters->gradients + offset, count);
        timeline_pieces_averaged();
    }
}

// MPI makes progress only inside MPI calls.
static void progress(void)
{
    int done;
    if (under_way.count == 0)
        return;
    MPI_Testall(under_way.count, under_way.requests, &done, MPI_STATUSES_IGNORE);
    hierarchical_progress(world_comm(WORLD_GRADIENTS));
}

static void finish(const Parameters *parameters)
{
    (void)parameters;
    if (under_way.count > 0) {
        hierarchical_finish(world_comm(WORLD_GRADIENTS));
        MPI_Waitall(under_way.count, under_way.requests, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < under_way.count; i++) {
        const SentPiece *piece = &under_way.pieces[i];
        if (piece->compressed)
            expand_average(piece->values, piece->halves, piece->count);
        else if (!piece->hierarchical)
            finish_average(piece->values, piece->count, world_size());
    }
    under_way.count = 0;
}

static void broadcast(float *values, size_t count, int root)
{
    MPI_Bcast(values, hvd_mpi_count(count), MPI_FLOAT, root, world_comm(WORLD_VARIABLES));
}

const Transport hvd_mpi = {
    .name = "mpi",
    .average = average,
    .progress = progress,
    .finish = finish,
    .broadcast = broadcast,
};
