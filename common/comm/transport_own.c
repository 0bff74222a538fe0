// Two transports for single updates, through the host's memory: the program's own all-reduce
// (hvd_use_allreduce), and the one while some ranks have joined (hvd_join).

#include "comm/transport.h"

#include "comm/transport_choice.h"
#include "comm/world.h"
#include "observe/timeline.h"
#include "observe/trace.h"

static HvdAllreduce own_allreduce;

void hvd_use_allreduce(HvdAllreduce allreduce)
{
    world_called(__func__);
    own_allreduce = allreduce;
}

HvdAllreduce hvd_own_allreduce(void)
{
    return own_allreduce;
}

void hvd_own_average(float *values, size_t count)
{
    trace_collective("hvd_use_allreduce", "gradients", count * sizeof *values, "sum", -1);
    own_allreduce(values, count, world_comm(WORLD_GRADIENTS));
    trace_collective_end("hvd_use_allreduce", "gradients");
    hvd_divide(values, count, world_size());
}

static void own_average(const Parameters *parameters, size_t offset, size_t count)
{
    hvd_own_average(parameters->gradients + offset, count);
    timeline_pieces_averaged();
}

static void own_finish(const Parameters *parameters)
{
    (void)parameters;
}

static void own_broadcast(float *values, size_t count, int root)
{
    hvd_mpi.broadcast(values, count, root);
}

const Transport hvd_own = {
    .name = "own",
    .average = own_average,
    .finish = own_finish,
    .broadcast = own_broadcast,
};

// Ranks that contribute gradients, not zeros.
static int contributing;

static void joined_average(const Parameters *parameters, size_t offset, size_t count)
{
    (void)parameters, (void)offset, (void)count;
}

static void joined_finish(const Parameters *parameters)
{
    float *host = hvd_host_values(parameters->gradients, parameters->length);
    hvd_mpi_average_of_working(host, parameters->length, contributing, world_comm(WORLD_GRADIENTS));
    hvd_return_values(parameters->gradients, host, parameters->length);
}

const Transport *hvd_joined(int working)
{
    static const Transport joined = {
        .name = "joined", .average = joined_average, .finish = joined_finish};
    contributing = working;
    return &joined;
}
