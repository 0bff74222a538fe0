#!/usr/bin/env bash
# Usage: sweep.sh PROGRAM...
#
# Times all-reduces of many sizes on 2, 3, 4, 8, 16, ... workers, up to as many as there are processors:
# MPI's own and, on GPUs, NCCL's, by build/sweep, and those of the programs, which begin with
# sweep_allreduce. Prints a table of each and the lines through their times, writes build/sweep.json and
# draws build/sweep.svg and .png. A program that does not come to its end is left out from there on, with
# a line.
#
# From the environment: BUILD; BENCH=quick for small arrays on few workers; HVDLAB_FLAGS, such as
# "--max-count 67108864".

set -euo pipefail
build=${BUILD:-build}
processors=$(common/scripts/cores.sh)
counts=(2 3 4)
for ((n = 8; n < processors; n *= 2)); do
    counts+=("$n")
done
((processors <= 4)) || counts+=("$processors")
if [[ ${BENCH:-} == quick ]]; then
    counts=(2 3)
    export HVDLAB_FLAGS="--max-count 10000 ${HVDLAB_FLAGS:-}"
fi

lines=$(mktemp)
trap 'rm -f "$lines" "$lines.before"' EXIT
export HVD_SWEEP=$lines
# An all-reduce that hangs ends with a message that names which rank waits for which.
export HVD_STALL_SHUTDOWN_SECONDS=${HVD_STALL_SHUTDOWN_SECONDS:-15}

programs=("$@")
for n in "${counts[@]}"; do
    common/scripts/mpi.sh run "$n" "$build/sweep"
    for i in "${!programs[@]}"; do
        cp "$lines" "$lines.before"
        if ! common/scripts/mpi.sh run "$n" "${programs[i]}"; then
            echo "make sweep: ${programs[i]} did not come to its end on $n workers; it is left out from here on" >&2
            mv "$lines.before" "$lines"
            unset "programs[i]"
        fi
    done
done

"$build/sweep" --report "$lines" "$build"
gnuplot -e "folder='$build'; workers='${counts[*]}'; processors=$processors" tests/bench/sweep.gp
echo "Written to $build/sweep.json; drawn: $build/sweep.svg and .png"
