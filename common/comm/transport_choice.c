// Chooses the transport of a model's arenas. All ranks must choose the same, so they first exchange
// what each has.

#include "comm/transport_choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "backend/backend.h"
#include "comm/hierarchical.h"
#include "comm/hooks.h"
#include "run/device.h"
#include "observe/trace.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "comm/world.h"

void (*after_nccl_start)(void);

// A mismatch would go unnoticed: another model's weights, or another order, would be accepted; and
// two ranks that expect different messages would wait forever.
void hvd_agree_on_arenas(const Parameters *parameters, MPI_Comm comm)
{
    const Device *device = device_current();
    if (parameters->device != device)
        die("hvd: the model was compiled on device %d, and this thread works on device %d; let it "
            "work on the model's",
            parameters->device->index, device->index);
    char layout[24];
    snprintf(layout, sizeof layout, "%016" PRIx64, parameters->layout);
    Term order = text_term("lay", "their weights out in the order ", layout,
                           "the processors' instruction sets differ: set DNNL_MAX_CPU_ISA=AVX2 "
                           "on all of them");
    agree_only(
        &(Collective){.name = "hvd",
                      .channel = "variables",
                      .object = "the first exchange of a model's values",
                      .terms = {text_term("compute", "on a ", device_is_gpu() ? "GPU" : "CPU",
                                          "--device cpu takes them all there"),
                                hvd_model_term(parameters), order, hvd_adder_term(),
                                CHOICE_TERM(HVD_TRANSPORT), CHOICE_TERM(HVD_HIERARCHICAL),
                                CHOICE_TERM(HVD_COMPRESSION)}},
        comm);
}

Term hvd_adder_term(void)
{
    bool own = hvd_own_allreduce() != NULL;
    Term term = text_term(
        "add", "gradients up by ",
        own ? "a function of the program's (hvd_use_allreduce)" : "the library's all-reduce", NULL);
    term.hash = 1 + own;
    return term;
}

Term hvd_model_term(const Parameters *parameters)
{
    return text_term("build", "a model with ", parameters->description, NULL);
}

// ---- Values that MPI reads and writes, wherever they lie.

static bool is_on_gpu(const void *values)
{
#ifdef HVDLAB_CUDA
    return hvd_is_on_gpu && hvd_is_on_gpu(values);
#else
    (void)values;
    return false;
#endif
}

float *hvd_host_values(float *values, size_t count)
{
    if (!is_on_gpu(values))
        return values;
    float *copy = allocate(count, sizeof *copy);
    Device *device = device_current();
    backend_of(device)->read(device, copy, values, count * sizeof *copy);
    return copy;
}

void hvd_return_values(float *values, float *host, size_t count)
{
    if (host == values)
        return;
    Device *device = device_current();
    backend_of(device)->write(device, values, host, count * sizeof *host);
    free(host);
}

// ---- The choice.

#ifdef HVDLAB_CUDA

void hvd_transport_stop(void)
{
    if (hvd_nccl_stop)
        hvd_nccl_stop();
}

static const Transport *mpi_from_gpu(void)
{
    // MPI cannot add bfloat16; our own MPI operation works in host memory only, as does the
    // hierarchical all-reduce.
    bool in_host = hvd_compresses() || hierarchical_pays(SIZE_MAX, world_comm(WORLD_GRADIENTS));
    return hvd_mpi_is_cuda_aware() && !in_host ? &hvd_cuda_aware : &hvd_staged;
}

static const Transport *choose_for_gpu(MPI_Comm comm)
{
    if (transport_choice() == TRANSPORT_MPI)
        return mpi_from_gpu();
    int ranks[2];
    char *problem = NULL;
    if (hvd_ranks_share_gpu(comm, ranks)) {
        problem = format_text("ranks %d and %d share a GPU", ranks[0], ranks[1]);
    } else {
        const char *words = hvd_nccl_start(comm);
        if (!words) {
            after_nccl_start();
            return &hvd_nccl;
        }
        problem = format_text("NCCL does not start: %s (NCCL_DEBUG=WARN says more)", words);
    }
    if (transport_choice() == TRANSPORT_NCCL)
        die("HVD_TRANSPORT=nccl: %s; unset it to let gradients travel through MPI", problem);
    warn_on_root("%s, so gradients travel through MPI instead of NCCL", problem);
    free(problem);
    return mpi_from_gpu();
}

#else

void hvd_transport_stop(void)
{
}

static const Transport *choose_for_gpu(MPI_Comm comm)
{
    (void)comm;
    CHECK(false); // there is no GPU without CUDA
    return NULL;
}

#endif

static const Transport *choose(MPI_Comm comm)
{
    if (device_is_gpu())
        return choose_for_gpu(comm);
    if (transport_choice() == TRANSPORT_NCCL)
        die("HVD_TRANSPORT=nccl needs a GPU for every worker, and this one computes on a CPU; "
            "unset it");
    return &hvd_mpi;
}

void transport_end(int status)
{
    if (status == EXIT_SUCCESS)
        hvd_transport_stop();
}

// The program's all-reduce.
static const Transport *program_transport(void)
{
    if (hvd_compresses())
        die("HVD_COMPRESSION=bf16: a function given to hvd_use_allreduce adds up floats; unset it");
#ifdef HVDLAB_CUDA
    if (device_is_gpu())
        return &hvd_staged;
#endif
    return &hvd_own;
}

const Transport *hvd_transport(int working, MPI_Comm comm)
{
    static const Transport *chosen;
    if (working < world_size())
        return hvd_joined(working);
    if (hvd_own_allreduce())
        return program_transport();
    if (!chosen) {
        chosen = choose(comm);
        trace("transport", TEXT("name", chosen->name),
              TEXT("compression", hvd_compresses() ? "bf16" : "none"));
    }
    return chosen;
}
