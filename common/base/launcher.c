// Reads the variables of Open MPI, PMI and Slurm, and finds the launcher's process.

#include "base/launcher.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/numbers.h"
#include "base/process.h"
#include "base/role.h"

// Slurm's variables describe this process only in a step that srun started. A job's shell has them
// too, as if it were task 0 of many; it belongs to no step, or to a special step, whose number is
// near the maximum of 32 bits.
bool launched_by_srun(void)
{
    const long first_special_step = 0xfffffff0;
    return environment_number("SLURM_STEP_ID", first_special_step - 1) >= 0;
}

// The first of the launchers' variables that is set. The order matters: mpirun may itself have been
// started by srun, and then Slurm's variables count nodes, not ranks. A name may be NULL.
static int from_launcher(const char *open_mpi, const char *pmi, const char *slurm, int otherwise)
{
    long number = environment_number(open_mpi, INT_MAX);
    if (number < 0)
        number = environment_number(pmi, INT_MAX);
    if (number < 0 && slurm && launched_by_srun())
        number = environment_number(slurm, INT_MAX);
    return number < 0 ? otherwise : (int)number;
}

int launcher_rank(void)
{
    return from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
                         launched() ? 0 : role_rank());
}

int launcher_size(void)
{
    return from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", role_size());
}

bool launched(void)
{
    return from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", 0) > 0;
}

// Parses one item of a Slurm list, "3" or "2(x4)" (four nodes): its number, and its count of nodes.
// Returns the start of the next item, or NULL if this is no item.
static const char *slurm_item(const char *text, int *number, int *nodes)
{
    uint64_t tasks = 0, times = 1;
    text = read_digits(text, MAX_LAUNCHED, &tasks);
    if (text && strncmp(text, "(x", 2) == 0) {
        text = read_digits(text + 2, MAX_LAUNCHED, &times);
        text = text && *text == ')' ? text + 1 : NULL;
    }
    *number = (int)tasks;
    *nodes = (int)times;
    if (!text || tasks < 1 || times < 1)
        return NULL;
    return *text == ',' ? text + 1 : *text == '\0' ? text : NULL;
}

// How many tasks of the step are on this node: "2(x3),1" is two on each of three nodes and one on
// the fourth. 1 if Slurm does not set it.
static int slurm_local_size(void)
{
    const char *list = secure_getenv("SLURM_STEP_TASKS_PER_NODE");
    if (!list || !*list)
        list = secure_getenv("SLURM_TASKS_PER_NODE"); // of the job: the step has none of its own
    long node = environment_number("SLURM_NODEID", INT_MAX);
    if (!launched_by_srun() || !list)
        return 1;
    for (int tasks, nodes; list && *list; node -= nodes) {
        list = slurm_item(list, &tasks, &nodes);
        if (list && node < nodes)
            return tasks;
    }
    return 1;
}

int launcher_local_rank(void)
{
    return from_launcher("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", 0);
}

int launcher_local_size(void)
{
    return from_launcher("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL, slurm_local_size());
}

int launcher_above(int process)
{
    static const char *const launchers[] = {"mpirun", "mpiexec", "orte",      "prte",
                                            "prun",   "hydra",   "slurmstepd"};
    ProcessStatus status = {0};
    process_status(process, &status);
    const int parent = status.parent;
    for (int above = parent; above >= 1 && process_status(above, &status); above = status.parent)
        for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
            if (strncmp(status.name, launchers[i], strlen(launchers[i])) == 0)
                return above;
    return parent;
}

int launcher_process(void)
{
    return launched() ? launcher_above(getpid()) : -1;
}

// A process's number may be used again: the moment at which it began belongs to its name. Open MPI
// makes a job's number from that of mpirun's process, and so may use that again, too.
static JobName job_of(const char *number, int process)
{
    JobName job;
    ProcessStatus status = {0};
    process_status(process, &status);
    snprintf(job.text, sizeof job.text, "%.200s@%d/%llu", number, process, status.began);
    return job;
}

static JobName launched_job(void)
{
    JobName job;
    const char *name = getenv("PMIX_NAMESPACE");
    if (!name)
        name = getenv("OMPI_MCA_ess_base_jobid");
    if (name)
        snprintf(job.text, sizeof job.text, "%s", name);
    else
        snprintf(job.text, sizeof job.text, "%ld.%ld",
                 environment_number("SLURM_JOB_ID", LONG_MAX - 1),
                 environment_number("SLURM_STEP_ID", LONG_MAX - 1));
    if (launcher_local_size() != launcher_size()) // a launcher on each of several machines
        return job;
    JobName number = job;
    return job_of(number.text, launcher_process());
}

JobName launcher_job(void)
{
    JobName job;
    Role role = role_from_environment();
    const char *name = getenv("HVD_JOB");
    if (launched())
        return launched_job();
    if (!role.kind)
        return job_of("", getpid());
    snprintf(job.text, sizeof job.text, "%s/%d/%s", name ? name : "", role.workers,
             getenv("HVD_SERVERS"));
    return job;
}
