#!/usr/bin/env bash
# Usage, in a batch file: labs/09-many-machines/slurm/start.sh PROGRAM FLAG...
#
# Starts the program as the ranks that the job has asked for. srun does it where Slurm speaks PMIx, by which an
# Open MPI program learns its rank and finds the others; else mpirun, which asks Slurm for the nodes and
# has a daemon of its own started on each. Either way each rank may use all processors that the job has on
# its node, of which the kit gives every rank its share.

if [[ -z ${SLURM_JOB_ID:-} ]]; then
    echo "start.sh: this is not a job of Slurm's; submit a batch file that calls it, such as one_node.sbatch" >&2
    exit 2
fi
if srun --mpi=list 2>&1 | grep -qw pmix; then
    exec srun --mpi=pmix --cpu-bind=none "$@"
fi
eval "$(make -s env)"
exec mpirun --bind-to none "$@"
