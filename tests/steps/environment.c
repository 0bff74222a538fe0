// What a check takes from the environment. Everything else stays behind: settings of MPI, UCX,
// OpenMP, oneDNN, hwloc or the C library that were made for other programs (OMPI_MCA_btl=openib),
// and a batch system's description of a job that this run is not part of (SLURM_NODELIST). The
// check and common/scripts/mpi.sh then set what its runs need.

#include "environment.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/format.h"

extern char **environ;

const char *const environment_of_check[] = {"BUILD", "HVDLAB_CHECK_DEVICE", "HVDLAB_PATIENCE",
                                            "HVDLAB_SEAL", NULL};

const char *build_folder(void)
{
    const char *build = getenv("BUILD");
    return build && *build ? build : "build";
}

// A star stands for the rest of a name.
static const char *const passed_on[] = {
    "PATH", "HOME", "USER", "LOGNAME",
    // Where libraries and headers are that an administrator or a user has installed.
    "LD_LIBRARY_PATH", "LIBRARY_PATH", "LD_RUN_PATH", "CPATH", "C_INCLUDE_PATH",
    // Where Open MPI is, if it was moved.
    "OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX",
    // Which GPUs there are.
    "CUDA_*", "EMULATED_*",
    // An older processor, to try how the kit runs there.
    "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA",
    // Of programs that were built with sanitizers.
    "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", NULL};

static bool is_listed(const char *variable, const char *const *names)
{
    for (; *names; names++) {
        size_t length = strcspn(*names, "*");
        bool begins = strncmp(variable, *names, length) == 0;
        if (begins && ((*names)[length] == '*' || variable[length] == '='))
            return true;
    }
    return false;
}

void environment_keep(bool (*is_kept)(const char *variable))
{
    for (char **variable = environ; *variable;) {
        char *name = format_text("%.*s", (int)strcspn(*variable, "="), *variable);
        // A variable without a name can't be unset.
        if (is_kept(*variable) || !*name || unsetenv(name) != 0)
            variable++;
        else
            variable = environ;
        free(name);
    }
}

static bool is_for_checks(const char *variable)
{
    return is_listed(variable, passed_on) || is_listed(variable, environment_of_check);
}

void environment_limit(void)
{
    environment_keep(is_for_checks);
    // The messages of compilers and MPI, which the check reads, are in English then.
    if (setenv("LC_ALL", "C", 1) != 0)
        die("cannot set LC_ALL");
}
