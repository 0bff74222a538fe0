// The tests may themselves have been started by a launcher.

#ifndef HVDLAB_TESTS_FORGET_LAUNCHER_H
#define HVDLAB_TESTS_FORGET_LAUNCHER_H

#include <stdlib.h>

static inline void forget_launcher(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_STEP_ID",
                                        "SLURM_NODEID",
                                        "SLURM_TASKS_PER_NODE",
                                        "SLURM_STEP_TASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

#endif
