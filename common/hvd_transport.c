// Which way a model's arenas take between the ranks. All ranks must come to the same answer, so
// they tell each other first what they have.

#include "hvd_transport.h"

#include <stdlib.h>
#include <string.h>
#include "device.h"
#include "trace.h"
#include "util.h"
#include "world.h"

typedef enum { AUTO, NCCL, MPI } Wish;

// The place of an environment variable's value in `names`; 0 where it is not set or empty.
static int setting(const char *variable, const char *const *names, int count)
{
    const char *text = getenv(variable);
    if (!text || !*text)
        return 0;
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    char *list = format_text("%s", names[0]);
    for (int i = 1; i < count; i++) {
        char *longer = format_text("%s%s%s", list, i + 1 < count ? ", " : " or ", names[i]);
        free(list);
        list = longer;
    }
    die("%s=%s is not %s", variable, text, list);
}

static Wish wish(void)
{
    static const char *const names[] = {"auto", "nccl", "mpi"};
    return (Wish)setting("HVD_TRANSPORT", names, 3);
}

bool hvd_compresses(void)
{
    static const char *const names[] = {"none", "bf16"};
    return setting("HVD_COMPRESSION", names, 2) == 1;
}

void hvd_check_settings(void)
{
    wish();
    hvd_compresses();
}

bool is_same_everywhere(double value, MPI_Comm comm)
{
    double low_high[2] = {-value, value};
    MPI_Allreduce(MPI_IN_PLACE, low_high, 2, MPI_DOUBLE, MPI_MAX, comm);
    return -low_high[0] == low_high[1];
}

static void check_same_setting(const char *name, int value, MPI_Comm comm)
{
    if (!is_same_everywhere(value, comm))
        die("%s is not the same on all ranks; mpirun -x %s hands it on to other machines", name,
            name);
}

// Weights and gradients of another model, or in another order, would be taken all the same; and
// where one rank expects other messages than another, both wait for ever.
static void check_ranks(const Parameters *parameters, MPI_Comm comm)
{
    if (!is_same_everywhere(device_is_gpu(), comm))
        die("some workers compute on a GPU and others on a CPU; --device cpu takes them all there");
    if (!is_same_everywhere((double)parameters->layout, comm))
        die("the workers' models differ, or their processors' instruction sets do; build the same "
            "model on each, and set DNNL_MAX_CPU_ISA=AVX2 if the processors differ");
    check_same_setting("HVD_TRANSPORT", (int)wish(), comm);
    check_same_setting("HVD_COMPRESSION", hvd_compresses(), comm);
}

#ifdef HVDLAB_CUDA

void hvd_transport_stop(void)
{
    hvd_nccl_stop();
}

// NCCL can only be ended in order where every rank comes to its end, as MPI (world.c).
static void end_with_the_program(int status, void *unused)
{
    (void)unused;
    if (status == EXIT_SUCCESS)
        hvd_transport_stop();
}

static const Transport *mpi_from_gpu(void)
{
    // MPI cannot add bfloat16, and what we teach it works in the host's memory.
    return hvd_mpi_is_cuda_aware() && !hvd_compresses() ? &hvd_cuda_aware : &hvd_staged;
}

static const Transport *choose_for_gpu(MPI_Comm comm)
{
    if (wish() == MPI)
        return mpi_from_gpu();
    int ranks[2];
    char *problem = NULL;
    if (hvd_ranks_share_gpu(comm, ranks)) {
        problem = format_text("ranks %d and %d share a GPU", ranks[0], ranks[1]);
    } else {
        const char *words = hvd_nccl_start(comm);
        if (!words) {
            on_exit(end_with_the_program, NULL);
            return &hvd_nccl;
        }
        problem = format_text("NCCL does not start: %s", words);
    }
    if (wish() == NCCL)
        die("HVD_TRANSPORT=nccl: %s", problem);
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
    if (wish() == NCCL)
        die("HVD_TRANSPORT=nccl needs a GPU for every worker, and this one computes on a CPU");
    return &hvd_mpi;
}

const Transport *hvd_transport(const Parameters *parameters, MPI_Comm comm)
{
    static const Transport *chosen;
    check_ranks(parameters, comm);
    if (!chosen) {
        chosen = choose(comm);
        trace("transport", TEXT("name", chosen->name),
              TEXT("compression", hvd_compresses() ? "bf16" : "none"));
    }
    return chosen;
}
