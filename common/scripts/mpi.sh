#!/bin/sh
# Usage: mpi.sh env             lines for a shell to evaluate, after which a plain mpirun works here
#        mpi.sh line N WORD...  prints the mpirun line that works here without them
#        mpi.sh run N WORD...   runs it
#
# What Open MPI wants to be told: that root may use it; that there may be more ranks than cores, and that the
# first of several hosts is to have only its share of them then; that ranks which wait should let others
# have the core; and, where a container's kernel doesn't say which networks reach where, that comparing
# addresses will do (hvd_init sees to that on one machine; here it is for programs that start MPI
# themselves; nothing is kept from using a network). GOMP_SPINCOUNT lets OpenMP's threads, too, sleep soon
# when they wait. Programs that start jobs themselves set the same in common/comm/launch.c.

set -u
# shellcheck source=common/scripts/own.sh
. "${0%mpi.sh}own.sh"
spincount=${GOMP_SPINCOUNT:-10000}

is_root()
{
    [ "$(id -u)" -eq 0 ]
}

print_env()
{
    if is_root; then
        echo "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
        echo "export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    fi
    [ -z "$own$MPI_HOME" ] || echo "export PATH='${MPI_HOME:+$MPI_HOME/bin:}${own:+$own/bin:}'\"\$PATH\""
    # The first is Open MPI 4's, the second Open MPI 5's.
    echo "export OMPI_MCA_rmaps_base_oversubscribe=1"
    echo "export PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe"
    echo "export OMPI_MCA_mpi_yield_when_idle=1"
    echo "export OMPI_MCA_reachable=weighted"
    echo "export GOMP_SPINCOUNT=$spincount"
}

# The libraries are Open MPI's: another MPI's mpirun would start N jobs of one rank.
need_open_mpi()
{
    said=$(mpirun --version 2>&1 | head -n 1)
    case $said in
    *"(Open MPI)"*) ;;
    *)
        echo "hvdlab: $(command -v mpirun || echo mpirun) is not Open MPI's (it says: $said)." \
            "Put Open MPI's first in PATH (Debian package openmpi-bin)" >&2
        exit 2
        ;;
    esac
    # mpirun believes that it is in the job, and looks for its hosts.
    if [ -n "${SLURM_JOBID:-}" ] && { [ -z "${SLURM_NODELIST:-}" ] || [ -z "${SLURM_TASKS_PER_NODE:-}" ]; }; then
        echo "hvdlab: SLURM_JOBID is set, and other variables of a Slurm job are not: unset SLURM_JOBID, else mpirun fails" >&2
        exit 2
    elif [ -n "${SLURM_JOBID:-}" ] && [ -z "${OMPI_MCA_plm:-}${OMPI_MCA_ras:-}" ] && [ "${SLURM_NODELIST%%.*}" != "$(uname -n | cut -d . -f 1)" ] && ! command -v srun >/dev/null; then
        echo "hvdlab: SLURM_JOBID is set, and srun, by which mpirun would reach $SLURM_NODELIST, is not here: unset SLURM_JOBID" >&2
        exit 2
    fi
}

# print_line N WORD...
print_line()
{
    # By its whole name where a new shell does not find it.
    line=$(command -v mpirun)
    [ "$line" = "$MPI_HOME/bin/mpirun" ] || [ "$line" = "$own/bin/mpirun" ] || line=mpirun
    ! is_root || line="$line --allow-run-as-root"
    line="$line --oversubscribe"
    [ "$1" -le "$("${0%mpi.sh}cores.sh")" ] || line="$line --mca mpi_yield_when_idle 1"
    echo "$line -x GOMP_SPINCOUNT=$spincount -np $*"
}

action=$1
shift
case $action in
env) print_env ;;
line)
    need_open_mpi
    print_line "$@"
    ;;
run)
    need_open_mpi
    eval "$(print_env)"
    ranks=$1
    shift
    exec mpirun -np "$ranks" "$@"
    ;;
esac
