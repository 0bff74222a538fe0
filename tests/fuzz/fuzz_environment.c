// What the environment says: the launcher's variables, HVD_ and HVDLAB_ ones. Each line of the
// input is NAME=VALUE; names that no reader has are left out, so that an input is about something.

#include "fuzz.h"
#include <stdlib.h>
#include <string.h>
#include "hvd/hvd.h"
#include "comm/transport.h"
#include "nn/optimizer.h"
#include "comm/world.h"
#include "base/launcher.h"
#include "base/layout.h"

enum { MAX_VARIABLES = 32 };

extern char **environ;

static const char *const names[] = {
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_TASKS_PER_NODE",
    "SLURM_STEP_TASKS_PER_NODE",
    "HVD_LAYOUT",
    "HVD_RANKS_PER_NODE",
    "HVD_TRANSPORT",
    "HVD_HIERARCHICAL",
    "HVD_COMPRESSION",
    "HVD_FUSION_THRESHOLD",
};

// hvd's settings are read without MPI: the library's own function of this name is a weak one here.
void world_need(const char *caller)
{
    FUZZ_CHECK(caller);
}

static void read_place(void *unused)
{
    (void)unused;
    simulates_nodes();
    launched();
    Place place = launcher_place();
    FUZZ_CHECK(launcher_rank() >= 0 && launcher_size() >= 1);
    FUZZ_CHECK(place.nodes >= 1 && place.node >= 0 && place.node < place.nodes);
    FUZZ_CHECK(place.local_size >= 1 && place.local_rank >= 0);
}

static void read_hvd(void *unused)
{
    (void)unused;
    hvd_check_settings();
    (void)!hvd_distributed_optimizer(sgd(0.01f));
}

static bool is_read(const char *line)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(line, names[i], length) == 0 && line[length] == '=')
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1), *rest = text;
    FUZZ_CHECK(text);
    memcpy(text, bytes, size);
    text[size] = '\0';
    char *variables[MAX_VARIABLES + 1] = {0}, **others = environ;
    for (int count = 0; rest && count < MAX_VARIABLES;) {
        char *line = strsep(&rest, "\n");
        if (is_read(line))
            variables[count++] = line;
    }
    environ = variables;
    fuzz_call(read_place, NULL, FREES_ALL);
    fuzz_call(read_hvd, NULL, KEEPS_SOME); // an optimizer lives as long as its model
    environ = others;
    free(text);
    return 0;
}
