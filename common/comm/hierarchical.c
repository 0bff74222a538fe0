// The hierarchical all-reduce: the ranks of each host, the blocks of values in transfer, and the
// ring between the hosts.

#include "comm/hierarchical.h"

#include <stdlib.h>
#include <string.h>
#include "base/share.h"
#include "base/format.h"
#include "base/memory.h"
#include "comm/transport.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "comm/world.h"

#define BLOCK         ((size_t)1 << 20) // values: within a host they then stay in the cache
#define PART_BYTES    ((size_t)8 << 10) // for each host: latency * bandwidth of a link
#define TWO_LEVELS    "two_levels"      // as traces have it
#define MAX_BLOCKS    64                // under way
#define ENOUGH_BLOCKS 8                 // for all links to be busy

// Values in transfer. The memory is reused for the next ones.
typedef struct {
    char *values;
    size_t count;
    Reduction reduction;
    size_t bytes; // of a value
    char *share;  // this rank's sums: of its host, then of all
    char *other;  // a part from the previous host
    size_t share_room, other_room;
    int step; // of the ring; -1: this rank has no share
    MPI_Request requests[2];
    size_t sent; // bytes, to another host
} RingBlock;

// The hosts of a communicator's ranks.
typedef struct {
    MPI_Comm comm;
    MPI_Comm within;  // those of this host
    MPI_Comm between; // those with this rank's share, one of each host; else MPI_COMM_NULL
    int rank, size;   // within the host
    int host, hosts;  // the hosts in the order of their first ranks
    int shares;       // on every host: the ranks 0 to shares - 1 have one
    RingBlock blocks[MAX_BLOCKS];
    int first, count; // a ring buffer; first: the oldest
} Levels;

// ---- Hosts.

static int free_levels(MPI_Comm comm, int key, void *value, void *unused)
{
    (void)comm, (void)key, (void)unused;
    Levels *levels = value;
    for (int i = 0; i < MAX_BLOCKS; i++) {
        free(levels->blocks[i].share);
        free(levels->blocks[i].other);
    }
    PMPI_Comm_free(&levels->within);
    if (levels->between != MPI_COMM_NULL)
        PMPI_Comm_free(&levels->between);
    free(levels);
    return MPI_SUCCESS;
}

static Levels *find_levels(MPI_Comm comm)
{
    Levels *levels = allocate(1, sizeof *levels);
    int rank;
    levels->comm = comm;
    PMPI_Comm_rank(comm, &rank);
    levels->within = ranks_of_machine(comm, rank);
    PMPI_Comm_rank(levels->within, &levels->rank);
    PMPI_Comm_size(levels->within, &levels->size);
    int first = rank, is_first = levels->rank == 0;
    PMPI_Bcast(&first, 1, MPI_INT, 0, levels->within);
    PMPI_Allreduce(&is_first, &levels->hosts, 1, MPI_INT, MPI_SUM, comm);
    PMPI_Allreduce(&levels->size, &levels->shares, 1, MPI_INT, MPI_MIN, comm);
    bool has_share = levels->rank < levels->shares;
    PMPI_Comm_split(comm, has_share ? levels->rank : MPI_UNDEFINED, first, &levels->between);
    if (has_share)
        PMPI_Comm_rank(levels->between, &levels->host);
    return levels;
}

// Cached with the communicator.
static int levels_key = MPI_KEYVAL_INVALID;

// NULL: not determined yet.
static Levels *known_levels(MPI_Comm comm)
{
    Levels *levels;
    int found;
    if (levels_key == MPI_KEYVAL_INVALID)
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_levels, &levels_key, NULL);
    PMPI_Comm_get_attr(comm, levels_key, (void *)&levels, &found);
    return found ? levels : NULL;
}

static Levels *levels_of(MPI_Comm comm)
{
    Levels *levels = known_levels(comm);
    if (!levels) {
        levels = find_levels(comm);
        PMPI_Comm_set_attr(comm, levels_key, levels);
    }
    return levels;
}

bool hierarchical_pays(size_t bytes, MPI_Comm comm)
{
    if (!world_spans_hosts() || bytes == 0)
        return false;
    HierarchyChoice choice = hierarchy_choice();
    if (choice == HIERARCHY_NEVER)
        return false;
    int hosts = levels_of(comm)->hosts;
    return hosts > 1 && (choice == HIERARCHY_ALWAYS || bytes >= (size_t)hosts * PART_BYTES);
}

// ---- Parts: of a block for the ranks of a host, of a share for the hosts.

static Share share_of_rank(const Levels *levels, const RingBlock *block, int rank)
{
    if (rank >= levels->shares)
        return (Share){block->count, 0};
    return share_of(block->count, rank, levels->shares);
}

// Part `i` of this rank's share.
typedef struct {
    char *values;
    int count;
} RingPart;

static RingPart part_of(const Levels *levels, const RingBlock *block, int i)
{
    Share own = share_of_rank(levels, block, levels->rank);
    Share part = share_of(own.count, i, levels->hosts);
    return (RingPart){block->share + part.begin * block->bytes, (int)part.count};
}

static void room_for(char **memory, size_t *room, size_t bytes)
{
    if (*room < bytes) {
        free(*memory);
        *memory = allocate(bytes, 1);
        *room = bytes;
    }
}

// ---- Between the hosts: a ring for each share. A reduce-scatter in hosts - 1 steps, then an
// all-gather.

static bool adds_up(const Levels *levels, const RingBlock *block)
{
    return block->step < levels->hosts - 1;
}

static int steps_around(const Levels *levels)
{
    return 2 * (levels->hosts - 1);
}

// The part that this host receives in a step; it sends the next one.
static int part_to_get(const Levels *levels, int step)
{
    return (levels->host + 2 * levels->hosts - step - 1) % levels->hosts;
}

static void begin_step(const Levels *levels, RingBlock *block)
{
    int hosts = levels->hosts, get = part_to_get(levels, block->step);
    int tag = (int)(block - levels->blocks);
    RingPart in = part_of(levels, block, get), out = part_of(levels, block, (get + 1) % hosts);
    PMPI_Irecv(adds_up(levels, block) ? block->other : in.values, in.count, block->reduction.type,
               (levels->host + hosts - 1) % hosts, tag, levels->between, &block->requests[0]);
    PMPI_Isend(out.values, out.count, block->reduction.type, (levels->host + 1) % hosts, tag,
               levels->between, &block->requests[1]);
    block->sent += (size_t)out.count * block->bytes;
}

static void end_step(const Levels *levels, RingBlock *block)
{
    if (adds_up(levels, block)) {
        RingPart in = part_of(levels, block, part_to_get(levels, block->step));
        PMPI_Reduce_local(block->other, in.values, in.count, block->reduction.type,
                          block->reduction.op);
    }
    block->step++;
}

// True at the end of the ring.
static bool go_on(const Levels *levels, RingBlock *block)
{
    while (block->step >= 0 && block->step < steps_around(levels)) {
        int done;
        PMPI_Testall(2, block->requests, &done, MPI_STATUSES_IGNORE);
        if (!done)
            return false;
        end_step(levels, block);
        if (block->step < steps_around(levels))
            begin_step(levels, block);
    }
    return true;
}

static void all_go_on(Levels *levels)
{
    for (int i = 0; i < levels->count; i++)
        go_on(levels, &levels->blocks[(levels->first + i) % MAX_BLOCKS]);
}

// ---- Within the host.

static void begin_phase(const char *name, const RingBlock *block)
{
    span_begin_call(&(SpanCall){.name = name,
                                .count = (int64_t)block->count,
                                .peer = -1,
                                .bytes = (int64_t)(block->count * block->bytes),
                                .partner = -1});
}

static void add_up_within(const Levels *levels, RingBlock *block)
{
    int *counts = allocate((size_t)levels->size, sizeof *counts);
    for (int r = 0; r < levels->size; r++)
        counts[r] = (int)share_of_rank(levels, block, r).count;
    begin_phase("reduce-scatter within the host", block);
    PMPI_Reduce_scatter(block->values, block->share, counts, block->reduction.type,
                        block->reduction.op, levels->within);
    span_end();
    free(counts);
}

static void gather_within(const Levels *levels, RingBlock *block)
{
    int *counts = allocate((size_t)levels->size, sizeof *counts);
    int *begins = allocate((size_t)levels->size, sizeof *begins);
    for (int r = 0; r < levels->size; r++) {
        Share share = share_of_rank(levels, block, r);
        counts[r] = (int)share.count;
        begins[r] = (int)share.begin;
    }
    begin_phase("all-gather within the host", block);
    PMPI_Allgatherv(block->share, counts[levels->rank], block->reduction.type, block->values,
                    counts, begins, block->reduction.type, levels->within);
    span_end();
    free(begins);
    free(counts);
}

// ---- Blocks.

static void multiply_share(const Levels *levels, const RingBlock *block)
{
    float *share = (float *)(void *)block->share, factor = block->reduction.factor;
    size_t count = share_of_rank(levels, block, levels->rank).count;
    for (size_t i = 0; factor != 1 && i < count; i++)
        share[i] *= factor;
}

static void trace_sent(size_t bytes, MPI_Comm comm)
{
    char name[MPI_MAX_OBJECT_NAME];
    trace("between_hosts", TEXT("name", comm_name(comm, name)), NUMBER("bytes", bytes));
}

static void finish_oldest(Levels *levels)
{
    RingBlock *block = &levels->blocks[levels->first];
    begin_phase("all-reduce between hosts", block);
    while (!go_on(levels, block))
        all_go_on(levels);
    span_end();
    multiply_share(levels, block);
    gather_within(levels, block);
    trace_sent(block->sent, levels->comm);
    levels->first = (levels->first + 1) % MAX_BLOCKS;
    levels->count--;
}

static void begin_block(Levels *levels, char *values, size_t count, Reduction reduction)
{
    RingBlock *block = &levels->blocks[(levels->first + levels->count++) % MAX_BLOCKS];
    int bytes;
    PMPI_Type_size(reduction.type, &bytes);
    block->values = values;
    block->count = count;
    block->reduction = reduction;
    block->bytes = (size_t)bytes;
    block->sent = 0;
    size_t share = share_of_rank(levels, block, levels->rank).count;
    room_for(&block->share, &block->share_room, share * block->bytes);
    room_for(&block->other, &block->other_room,
             share_of(share, 0, levels->hosts).count * block->bytes);
    add_up_within(levels, block);
    block->step = levels->rank < levels->shares ? 0 : -1;
    if (block->step == 0)
        begin_step(levels, block);
    all_go_on(levels);
}

// Leaves at most `most` blocks in transfer.
static void begin_blocks(char *values, size_t count, Reduction reduction, int most, MPI_Comm comm)
{
    Levels *levels = levels_of(comm);
    char name[MPI_MAX_OBJECT_NAME] = "";
    int bytes;
    PMPI_Type_size(reduction.type, &bytes);
    if (trace_on())
        trace_call_among(TWO_LEVELS, comm_name(comm, name), count * (size_t)bytes, comm);
    trace_collective_end(TWO_LEVELS, name); // it continues in the background
    for (size_t begin = 0; begin < count; begin += BLOCK) {
        size_t left = count - begin;
        while (levels->count >= most)
            finish_oldest(levels);
        begin_block(levels, values + begin * (size_t)bytes, left < BLOCK ? left : BLOCK, reduction);
    }
}

void hierarchical_begin(void *values, size_t count, Reduction reduction, MPI_Comm comm)
{
    begin_blocks(values, count, reduction, MAX_BLOCKS, comm);
}

void hierarchical_progress(MPI_Comm comm)
{
    Levels *levels = known_levels(comm);
    if (levels)
        all_go_on(levels);
}

void hierarchical_finish(MPI_Comm comm)
{
    Levels *levels = known_levels(comm);
    while (levels && levels->count > 0)
        finish_oldest(levels);
}

void hierarchical_allreduce(void *values, size_t count, Reduction reduction, MPI_Comm comm)
{
    begin_blocks(values, count, reduction, ENOUGH_BLOCKS, comm);
    hierarchical_finish(comm);
}
