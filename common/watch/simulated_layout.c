// Makes one machine look like several nodes (base/layout.h: HVD_LAYOUT, HVD_RANKS_PER_NODE). All
// queries report the same layout: the launcher's variables, MPI's shared-memory communicators, and
// the machine's name from MPI or the system. hvd has its own functions. A query for more than the
// name leaves an event.

#include "watch/simulated_layout.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <string.h>
#include "base/launcher.h"
#include "base/layout.h"
#include "base/format.h"
#include "observe/trace.h"

#define VISIBLE __attribute__((visibility("default")))

static void replace_variable(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    if (secure_getenv(name))
        setenv(name, text, 1);
}

void simulate_launcher(void)
{
    if (!launched() || !simulates_nodes())
        return;
    Place place = launcher_place();
    static const char *const ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK",
                                        "MPI_LOCALRANKID", "SLURM_LOCALID"};
    static const char *const sizes[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        replace_variable(ranks[i], place.local_rank);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        replace_variable(sizes[i], place.local_size);
}

// ---- MPI. These stand before the library's own functions, as its profiling interface has it.

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *result)
{
    trace_call();
    if (type == MPI_COMM_TYPE_SHARED && simulates_nodes())
        return PMPI_Comm_split(comm, launcher_place().node, key, result);
    return PMPI_Comm_split_type(comm, type, key, info, result);
}

static int name_of_node(char *name, size_t size)
{
    return snprintf(name, size, "%s", node_name(launcher_place().node).text);
}

int MPI_Get_processor_name(char *name, int *length)
{
    if (!simulates_nodes())
        return PMPI_Get_processor_name(name, length);
    *length = name_of_node(name, MPI_MAX_PROCESSOR_NAME);
    return MPI_SUCCESS;
}

// ---- The system. The linker's --wrap sends a program's own calls here; those of Open MPI, which
// needs the true name, stay as they are.

char *__real_getenv(const char *name);
char *__wrap_getenv(const char *name);
int __real_gethostname(char *name, size_t size);
int __wrap_gethostname(char *name, size_t size);
int __real_uname(struct utsname *names);
int __wrap_uname(struct utsname *names);

// The library itself reads these by secure_getenv.
static bool says_who_is_here(const char *name)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "OMPI_COMM_WORLD_NODE_RANK",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_LOCALID",
                                        "HVD_LAYOUT",
                                        "HVD_RANKS_PER_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

VISIBLE char *__wrap_getenv(const char *name)
{
    if (says_who_is_here(name) && trace_on()) {
        char *call = format_text("getenv(%s)", name);
        trace("call", TEXT("function", call));
        free(call);
    }
    return __real_getenv(name);
}

VISIBLE int __wrap_gethostname(char *name, size_t size)
{
    if (!simulates_nodes())
        return __real_gethostname(name, size);
    name_of_node(name, size);
    return 0;
}

VISIBLE int __wrap_uname(struct utsname *names)
{
    int result = __real_uname(names);
    if (result == 0 && simulates_nodes())
        name_of_node(names->nodename, sizeof names->nodename);
    return result;
}
